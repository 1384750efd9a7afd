-- Lists the :limit newest dead letters whose ids lie before :before, for people.
SELECT j.id, j.state, j.queue, j.name, j.tenant_id, j.idempotency_key, j.cause, j.error_class
FROM x_jobs AS j
WHERE j.state IN ('dead', 'failed') AND j.finished_at IS NOT NULL
    AND j.id < CAST(:before AS uuid)
ORDER BY j.id DESC
LIMIT :limit;
