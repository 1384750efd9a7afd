-- Keeps the history of failed attempts, in the transaction that settles them.
INSERT INTO x_job_attempts (
    id, job_id, kind, attempt, worker, release, error_class, message, traceback, rule, decision,
    started_at, finished_at, next_run_at
)
SELECT
    r.id, j.id, 'failure', j.attempt, j.claimed_by, coalesce(r.release, ''), j.error_class,
    coalesce(r.message, j.last_error), coalesce(r.traceback, ''), coalesce(r.rule, ''), r.decision,
    j.started_at, statement_timestamp(), CASE WHEN j.state = 'delayed' OR j.state = 'ready' THEN j.run_at END
FROM json_to_recordset(CAST(:rows AS json)) AS r (
    id uuid, job_id uuid, decision text, message text, traceback text, rule text, release text
)
JOIN x_jobs AS j ON j.id = r.job_id;
