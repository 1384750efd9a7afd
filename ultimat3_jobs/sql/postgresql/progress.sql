-- Keeps how far runs are, each fenced on its claim's token. A row that another transaction has locked is left for the
-- next time: nobody waits for progress.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH given AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, token uuid, progress text)
),
mine AS MATERIALIZED (
    SELECT j.id, r.progress
    FROM given AS r
    JOIN x_jobs AS j ON j.id = r.id AND j.id = ANY (ARRAY(SELECT id FROM given))
    WHERE j.claim_token = r.token AND j.state || '' = 'running'
    ORDER BY j.id
    FOR UPDATE OF j SKIP LOCKED
)
UPDATE x_jobs AS j
SET progress = (SELECT mine.progress::jsonb FROM mine WHERE mine.id = j.id)
WHERE j.id = ANY (ARRAY(SELECT id FROM mine))
RETURNING j.id, j.claim_token;
