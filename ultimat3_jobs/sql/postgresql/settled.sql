-- Tells which claims have already ended their row: the answer to their commit was lost, the commit was not.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH given AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, token uuid)
)
SELECT j.id, j.claim_token
FROM given AS r
JOIN x_jobs AS j ON j.id = r.id AND j.id = ANY (ARRAY(SELECT id FROM given))
WHERE j.claim_token = r.token
    AND j.state NOT IN ('ready', 'delayed', 'running', 'suspended');
