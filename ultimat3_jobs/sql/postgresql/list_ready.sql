-- Lists the first :limit jobs that wait for a worker, from the queue :queue on, for people.
SELECT j.id, j.state, j.queue, j.name, j.tenant_id, j.idempotency_key, j.cause, j.error_class
FROM x_jobs AS j
WHERE j.state = 'ready' AND j.queue >= :queue
ORDER BY j.queue, j.priority DESC, j.run_at, j.id
LIMIT :limit;
