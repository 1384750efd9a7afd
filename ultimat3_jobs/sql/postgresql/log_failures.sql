-- Keeps the history of failed attempts, in the transaction that settles them.
INSERT INTO x_job_attempts (
    id, job_id, kind, attempt, worker, release, error_class, message, traceback, rule, decision,
    started_at, finished_at, next_run_at
)
SELECT
    r.id, r.job_id, 'failure', j.attempt, j.claimed_by, coalesce(r.release, ''), j.error_class,
    coalesce(r.message, j.last_error), coalesce(r.traceback, ''), coalesce(r.rule, ''), r.decision,
    j.started_at, statement_timestamp(), CASE WHEN j.state = 'delayed' OR j.state = 'ready' THEN j.run_at END
FROM json_to_recordset(CAST(:rows AS json)) AS r (
    id uuid, job_id uuid, decision text, message text, traceback text, rule text, release text
)
-- The limit keeps each look-up by its id, whatever the statistics say of the table.
CROSS JOIN LATERAL (
    SELECT x.attempt, x.claimed_by, x.error_class, x.last_error, x.started_at, x.state, x.run_at
    FROM x_jobs AS x
    WHERE x.id = r.job_id
    LIMIT 1
) AS j;
