-- Renews leases, each fenced on its claim's token. A row that another transaction has locked is left for the next beat.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH given AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, token uuid)
),
mine AS MATERIALIZED (
    SELECT j.id
    FROM given AS r
    JOIN x_jobs AS j ON j.id = r.id AND j.id = ANY (ARRAY(SELECT id FROM given))
    WHERE j.claim_token = r.token AND j.state || '' = 'running'
    ORDER BY j.id
    FOR UPDATE OF j SKIP LOCKED
)
UPDATE x_jobs AS j
SET visible_at = statement_timestamp() + make_interval(secs => :lease)
WHERE j.id = ANY (ARRAY(SELECT id FROM mine))
RETURNING j.id, j.claim_token;
