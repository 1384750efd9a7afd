-- Starts one dead letter again, its attempts anew, unless another row has taken its key.
UPDATE x_jobs
SET state = 'ready',
    stop = '',
    attempt = 0,
    run_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000',
    claim_token = NULL,
    finished_at = NULL,
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE id = :id
    AND state IN ('dead', 'failed')
    AND NOT EXISTS (
        SELECT 1
        FROM x_jobs AS x
        WHERE x.name = x_jobs.name
            AND COALESCE(x.tenant_id, '') = COALESCE(x_jobs.tenant_id, '')
            AND x.idempotency_key = x_jobs.idempotency_key
            AND (x.state IN ('ready', 'delayed', 'running', 'suspended') OR x.key_until IS NOT NULL)
    )
RETURNING id;
