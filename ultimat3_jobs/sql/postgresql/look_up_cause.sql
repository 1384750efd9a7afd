-- Lists the :limit newest jobs that ended after a failure of one cause, with ids before :before, for people.
-- Compared and ordered as the index is: by the id alone the planner would go through others until it had enough.
SELECT j.id, j.state, j.queue, j.name, j.tenant_id, j.idempotency_key, j.cause, j.error_class
FROM x_jobs AS j
WHERE j.finished_at IS NOT NULL AND j.cause > ''
    AND j.cause >= :cause
    AND (j.cause, j.id) < (:cause, CAST(:before AS uuid))
ORDER BY j.cause DESC, j.id DESC
LIMIT :limit;
