-- Finds the live passes of backfills by their keys: the unique index lets each have one.
SELECT j.name, j.run_id
FROM json_each(:rows) AS r
CROSS JOIN x_jobs AS j
WHERE j.name = json_extract(r.value, '$.name')
    AND COALESCE(j.tenant_id, '') = coalesce(json_extract(r.value, '$.tenant_id'), '')
    AND j.idempotency_key = json_extract(r.value, '$.idempotency_key')
    AND (j.state IN ('ready', 'delayed', 'running', 'suspended') OR j.key_until IS NOT NULL)
    AND j.state IN ('ready', 'delayed', 'running', 'suspended');
