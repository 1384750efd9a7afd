-- Keeps how far runs are, each fenced on its claim's token. A row that another transaction has locked is left for the
-- next time: nobody waits for progress.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
WITH mine AS MATERIALIZED (
    SELECT j.id, r.progress
    FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, token uuid, progress text)
    JOIN x_jobs AS j ON j.id = r.id
    WHERE j.claim_token = r.token AND j.state || '' = 'running'
    ORDER BY j.id
    FOR UPDATE OF j SKIP LOCKED
)
UPDATE x_jobs AS j
SET progress = mine.progress::jsonb
FROM mine
WHERE j.id = mine.id
RETURNING j.id, j.claim_token;
