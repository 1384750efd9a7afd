-- Records what the relay made of outbox rows.
-- Rows are reached by id: `coalesce` hides the column from the planner, which would otherwise read the whole of a
-- partial index that its statistics take for empty.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH given AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, outcome text, job_id uuid, error text)
)
UPDATE x_outbox AS o
SET outcome = r.outcome,
    job_id = r.job_id,
    error = r.error,
    published_at = CASE WHEN r.outcome = 'set_aside' THEN NULL ELSE statement_timestamp() END
FROM given AS r
WHERE o.id = r.id
    AND o.id = ANY (ARRAY(SELECT id FROM given))
    AND coalesce(o.outcome, '') = ''
RETURNING o.id;
