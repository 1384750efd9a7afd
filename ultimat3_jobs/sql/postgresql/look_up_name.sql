-- Lists the :limit newest jobs of one name that ended in one state, with ids before :before, for people.
-- Compared and ordered as the index is: by the id alone the planner would go through others until it had enough.
SELECT j.id, j.state, j.queue, j.name, j.tenant_id, j.idempotency_key, j.cause, j.error_class
FROM x_jobs AS j
WHERE j.finished_at IS NOT NULL
    AND j.name >= :name
    AND j.state >= :state
    AND (j.name, j.state, j.id) < (:name, :state, CAST(:before AS uuid))
ORDER BY j.name DESC, j.state DESC, j.id DESC
LIMIT :limit;
