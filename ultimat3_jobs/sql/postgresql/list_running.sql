-- Lists the first :limit running jobs, from the queue :queue on, for people.
SELECT j.id, j.state, j.queue, j.name, j.tenant_id, j.idempotency_key, j.cause, j.error_class
FROM x_jobs AS j
WHERE j.state = 'running' AND j.queue >= :queue
ORDER BY j.queue
LIMIT :limit;
