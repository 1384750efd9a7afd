-- Lists the :limit newest jobs of one key that ended in one state, with ids before :before, for people.
-- Compared and ordered as the index is: by the id alone the planner would go through others until it had enough.
SELECT j.id, j.state, j.queue, j.name, j.tenant_id, j.idempotency_key, j.cause, j.error_class
FROM x_jobs AS j
WHERE j.finished_at IS NOT NULL
    AND j.idempotency_key >= :key
    AND j.state >= :state
    AND (j.idempotency_key, j.state, j.id) < (:key, :state, CAST(:before AS uuid))
ORDER BY j.idempotency_key DESC, j.state DESC, j.id DESC
LIMIT :limit;
