-- Lets go of the key that one dead letter needs, where a finished row holds it whose time of holding has passed.
-- The row is reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
UPDATE x_jobs AS x
SET key_until = NULL, updated_at = statement_timestamp()
FROM x_jobs AS j
WHERE j.id = CAST(:id AS uuid)
    AND j.state || '' IN ('dead', 'failed')
    AND x.name = j.name
    AND COALESCE(x.tenant_id, '') = COALESCE(j.tenant_id, '')
    AND x.idempotency_key = j.idempotency_key
    AND (x.state IN ('ready', 'delayed', 'running', 'suspended') OR x.key_until IS NOT NULL)
    AND x.state NOT IN ('ready', 'delayed', 'running', 'suspended')
    AND x.key_until <= statement_timestamp();
