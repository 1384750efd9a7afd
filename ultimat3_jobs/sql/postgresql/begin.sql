-- Marks last attempts as begun, before their bodies. Fenced on the claim's token and answered row by row.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
WITH mine AS MATERIALIZED (
    SELECT j.id
    FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, token uuid)
    JOIN x_jobs AS j ON j.id = r.id
    WHERE j.claim_token = r.token AND j.state || '' = 'running'
    ORDER BY j.id
    FOR UPDATE OF j
)
UPDATE x_jobs AS j
SET started_at = statement_timestamp()
FROM mine
WHERE j.id = mine.id
RETURNING j.id, j.claim_token;
