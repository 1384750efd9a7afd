-- Lists the :limit dead letters of one queue that died last, for people.
SELECT j.id, j.state, j.queue, j.name, j.tenant_id, j.idempotency_key, j.cause, j.error_class
FROM x_jobs AS j
WHERE j.state IN ('dead', 'failed') AND j.queue = :queue
ORDER BY j.finished_at DESC
LIMIT :limit;
