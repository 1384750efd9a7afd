-- Lists the :limit newest jobs of one tenant that ended in one state, with ids before :before, for people.
SELECT j.id, j.state, j.queue, j.name, j.tenant_id, j.idempotency_key, j.cause, j.error_class
FROM x_jobs AS j
WHERE j.state IN ('done', 'failed', 'dead', 'cancelled')
    AND j.state = :state
    AND j.tenant_id = :tenant
    AND j.id < CAST(:before AS uuid)
ORDER BY j.id DESC
LIMIT :limit;
