-- Finds the live passes of backfills by their keys: the unique index lets each have one.
SELECT j.name, j.run_id
FROM json_to_recordset(CAST(:rows AS json)) AS r (name text, tenant_id text, idempotency_key text)
CROSS JOIN LATERAL (
    SELECT x.name, x.run_id
    FROM x_jobs AS x
    WHERE x.name = r.name
        AND COALESCE(x.tenant_id, '') = coalesce(r.tenant_id, '')
        AND x.idempotency_key = r.idempotency_key
        AND (x.state IN ('ready', 'delayed', 'running', 'suspended') OR x.key_until IS NOT NULL)
        AND x.state || '' IN ('ready', 'delayed', 'running', 'suspended')
    -- The limit keeps each look-up by its key, whatever the statistics say of the table.
    LIMIT 1
) AS j;
