-- Keeps the history of failed attempts, in the transaction that settles them.
INSERT INTO x_job_attempts (
    id, job_id, kind, attempt, worker, error_class, message, decision, started_at, finished_at, next_run_at
)
SELECT
    r.id, j.id, 'failure', j.attempt, j.claimed_by, j.error_class, j.last_error, r.decision,
    j.started_at, statement_timestamp(), CASE WHEN j.state = 'delayed' OR j.state = 'ready' THEN j.run_at END
FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, job_id uuid, decision text)
JOIN x_jobs AS j ON j.id = r.job_id;
