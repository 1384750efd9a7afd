-- Records what the relay made of outbox rows.
-- Rows are reached by id: `coalesce` hides the column from the planner, which would otherwise read the whole of a
-- partial index that its statistics take for empty.
-- `num_nulls` has the planner expect one row of the batch: it might go through many once for each row of the table.
UPDATE x_outbox AS o
SET outcome = r.outcome,
    job_id = r.job_id,
    error = r.error,
    published_at = CASE WHEN r.outcome = 'set_aside' THEN NULL ELSE statement_timestamp() END
FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, outcome text, job_id uuid, error text)
WHERE num_nulls(r.id) = 0 AND o.id = r.id AND coalesce(o.outcome, '') = ''
RETURNING o.id;
