-- Lets go of outbox rows that a relay did not publish, where its claim on them still holds.
-- Rows are reached by id: `coalesce` hides the column from the planner, which would otherwise read the whole of a
-- partial index that its statistics take for empty.
-- `num_nulls` has the planner expect one row of the batch: it might go through many once for each row of the table.
UPDATE x_outbox AS o
SET claimed_at = NULL, claimed_by = '', claim_token = NULL
FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, token uuid)
WHERE num_nulls(r.id) = 0 AND o.id = r.id
    AND o.claim_token = r.token
    AND o.claimed_at > statement_timestamp() - make_interval(secs => :lease)
    AND coalesce(o.outcome, '') = ''
RETURNING o.id;
