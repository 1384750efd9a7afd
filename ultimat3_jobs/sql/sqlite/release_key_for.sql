-- Lets go of the key that one dead letter needs, where a finished row holds it whose time of holding has passed.
UPDATE x_jobs
SET key_until = NULL, updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
FROM x_jobs AS j
WHERE j.id = :id
    AND j.state IN ('dead', 'failed')
    AND x_jobs.name = j.name
    AND COALESCE(x_jobs.tenant_id, '') = COALESCE(j.tenant_id, '')
    AND x_jobs.idempotency_key = j.idempotency_key
    AND (x_jobs.state IN ('ready', 'delayed', 'running', 'suspended') OR x_jobs.key_until IS NOT NULL)
    AND x_jobs.state NOT IN ('ready', 'delayed', 'running', 'suspended')
    AND x_jobs.key_until <= strftime('%Y-%m-%d %H:%M:%f', 'now') || '000';
