-- Lists the :limit newest jobs of one key that ended in one state, with ids before :before, for people.
SELECT j.id, j.state, j.queue, j.name, j.tenant_id, j.idempotency_key, j.cause, j.error_class
FROM x_jobs AS j
WHERE j.finished_at IS NOT NULL
    AND j.idempotency_key = :key
    AND j.state = :state
    AND j.id < :before
ORDER BY j.id DESC
LIMIT :limit;
