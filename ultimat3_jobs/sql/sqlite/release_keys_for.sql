-- Lets go of the keys that dead letters need, where finished rows hold them whose time of holding has passed.
UPDATE x_jobs
SET key_until = NULL, updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE id IN (
    SELECT x.id
    FROM json_each(:rows) AS r
    CROSS JOIN x_jobs AS j
    CROSS JOIN x_jobs AS x
    WHERE j.id = json_extract(r.value, '$.id')
        AND j.state IN ('dead', 'failed')
        AND x.name = j.name
        AND COALESCE(x.tenant_id, '') = COALESCE(j.tenant_id, '')
        AND x.idempotency_key = j.idempotency_key
        AND (x.state IN ('ready', 'delayed', 'running', 'suspended') OR x.key_until IS NOT NULL)
        AND x.state NOT IN ('ready', 'delayed', 'running', 'suspended')
        AND x.key_until <= strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
);
