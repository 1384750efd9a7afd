-- Lets go of outbox rows that a relay did not publish, where its claim on them still holds.
-- Rows are reached by id: `coalesce` hides the column from the planner, which would otherwise read the whole of a
-- partial index that its statistics take for empty.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH given AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, token uuid)
)
UPDATE x_outbox AS o
SET claimed_at = NULL, claimed_by = '', claim_token = NULL
FROM given AS r
WHERE o.id = r.id
    AND o.id = ANY (ARRAY(SELECT id FROM given))
    AND o.claim_token = r.token
    AND o.claimed_at > statement_timestamp() - make_interval(secs => :lease)
    AND coalesce(o.outcome, '') = ''
RETURNING o.id;
