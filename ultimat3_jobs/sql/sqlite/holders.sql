-- Finds the row that holds each key in its namespace, and before it the row that has the very id of the request: the
-- request was queued before. `expired`: a finished row whose time of holding has passed.
-- `begun`: it may have read the data already. One that sleeps has an attempt less than it has begun, and steps.
SELECT json_extract(r.value, '$.position'), j.id, j.run_id, j.fingerprint,
    j.attempt > 0 OR EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = j.run_id), true, false
FROM json_each(:rows) AS r
CROSS JOIN x_jobs AS j
WHERE j.id = json_extract(r.value, '$.id')
UNION ALL
SELECT
    json_extract(r.value, '$.position'), j.id, j.run_id, j.fingerprint,
    j.attempt > 0 OR EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = j.run_id) AS begun,
    j.state NOT IN ('ready', 'delayed', 'running', 'suspended') AS finished,
    j.state NOT IN ('ready', 'delayed', 'running', 'suspended')
        AND j.key_until <= strftime('%Y-%m-%d %H:%M:%f', 'now') || '000' AS expired
FROM json_each(:rows) AS r
CROSS JOIN x_jobs AS j
WHERE j.name = json_extract(r.value, '$.name')
    AND COALESCE(j.tenant_id, '') = coalesce(json_extract(r.value, '$.tenant_id'), '')
    AND j.idempotency_key = json_extract(r.value, '$.idempotency_key')
    AND (j.state IN ('ready', 'delayed', 'running', 'suspended') OR j.key_until IS NOT NULL);
