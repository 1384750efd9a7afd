-- Starts dead letters again, their attempts anew: of each key the newest, unless another row has taken the key.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH letters AS MATERIALIZED (
    SELECT j.id, j.name, COALESCE(j.tenant_id, '') AS tenant_id, j.idempotency_key
    FROM x_jobs AS j
    WHERE j.id = ANY (ARRAY(SELECT r.id FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)))
        AND j.state || '' IN ('dead', 'failed')
    ORDER BY j.id
    FOR UPDATE OF j
),
newest AS MATERIALIZED (
    SELECT DISTINCT ON (l.name COLLATE "C", l.tenant_id COLLATE "C", l.idempotency_key COLLATE "C") l.id
    FROM letters AS l
    -- Keys are taken in the order of the enqueue: two batches never wait for one another in a ring.
    ORDER BY l.name COLLATE "C", l.tenant_id COLLATE "C", l.idempotency_key COLLATE "C", l.id DESC
)
UPDATE x_jobs AS j
SET state = 'ready',
    stop = '',
    attempt = 0,
    lapses = 0,
    parks = 0,
    park_reason = '',
    run_at = statement_timestamp(),
    claim_token = NULL,
    cancel_requested_at = NULL,
    cancel_requested_by = '',
    cancel_reason = '',
    finished_at = NULL,
    updated_at = statement_timestamp()
FROM newest
WHERE j.id = newest.id
    AND NOT EXISTS (
        SELECT 1
        FROM x_jobs AS x
        WHERE x.name = j.name
            AND COALESCE(x.tenant_id, '') = COALESCE(j.tenant_id, '')
            AND x.idempotency_key = j.idempotency_key
            AND (x.state IN ('ready', 'delayed', 'running', 'suspended') OR x.key_until IS NOT NULL)
    )
RETURNING j.id;
