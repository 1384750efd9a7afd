-- Lists the :limit newest jobs whose ids lie before :before, for people.
SELECT j.id, j.state, j.queue, j.name, j.tenant_id, j.idempotency_key, j.cause, j.error_class
FROM x_jobs AS j
WHERE j.id < :before
ORDER BY j.id DESC
LIMIT :limit;
