-- Tells which of these jobs there are, in which states, and under which keys.
SELECT j.id, j.state, j.name, COALESCE(j.tenant_id, ''), j.idempotency_key
FROM json_each(:rows) AS r
CROSS JOIN x_jobs AS j
WHERE j.id = json_extract(r.value, '$.id');
