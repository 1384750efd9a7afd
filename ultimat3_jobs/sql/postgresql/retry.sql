-- Starts one dead letter again, its attempts anew, unless another row has taken its key.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
UPDATE x_jobs AS j
SET state = 'ready',
    stop = '',
    attempt = 0,
    run_at = statement_timestamp(),
    claim_token = NULL,
    finished_at = NULL,
    updated_at = statement_timestamp()
WHERE j.id = CAST(:id AS uuid)
    AND j.state || '' IN ('dead', 'failed')
    AND NOT EXISTS (
        SELECT 1
        FROM x_jobs AS x
        WHERE x.name = j.name
            AND COALESCE(x.tenant_id, '') = COALESCE(j.tenant_id, '')
            AND x.idempotency_key = j.idempotency_key
            AND (x.state IN ('ready', 'delayed', 'running', 'suspended') OR x.key_until IS NOT NULL)
    )
RETURNING j.id;
