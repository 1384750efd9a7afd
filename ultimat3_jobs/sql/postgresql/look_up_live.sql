-- Lists at most :limit jobs of one name that hold their key, in the order of tenant and key, for people.
SELECT j.id, j.state, j.queue, j.name, j.tenant_id, j.idempotency_key, j.cause, j.error_class
FROM x_jobs AS j
WHERE j.name = :name AND (j.state IN ('ready', 'delayed', 'running', 'suspended') OR j.key_until IS NOT NULL)
ORDER BY COALESCE(j.tenant_id, ''), j.idempotency_key
LIMIT :limit;
