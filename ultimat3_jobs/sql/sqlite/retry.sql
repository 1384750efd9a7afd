-- Starts dead letters again, their attempts anew: of each key the newest, unless another row has taken the key.
UPDATE x_jobs
SET state = 'ready',
    stop = '',
    attempt = 0,
    lapses = 0,
    parks = 0,
    park_reason = '',
    run_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000',
    claim_token = NULL,
    cancel_requested_at = NULL,
    cancel_requested_by = '',
    cancel_reason = '',
    finished_at = NULL,
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE id IN (
        SELECT letters.id
        FROM (
            SELECT
                j.id,
                row_number() OVER (
                    PARTITION BY j.name, COALESCE(j.tenant_id, ''), j.idempotency_key ORDER BY j.id DESC
                ) AS place
            FROM json_each(:rows) AS r
            CROSS JOIN x_jobs AS j
            WHERE j.id = json_extract(r.value, '$.id') AND j.state IN ('dead', 'failed')
        ) AS letters
        WHERE letters.place = 1
    )
    AND NOT EXISTS (
        SELECT 1
        FROM x_jobs AS x
        WHERE x.name = x_jobs.name
            AND COALESCE(x.tenant_id, '') = COALESCE(x_jobs.tenant_id, '')
            AND x.idempotency_key = x_jobs.idempotency_key
            AND (x.state IN ('ready', 'delayed', 'running', 'suspended') OR x.key_until IS NOT NULL)
    )
RETURNING id;
