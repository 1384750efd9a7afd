-- Keeps who started a dead letter again or cancelled a job, and why, in the transaction that does so.
INSERT INTO x_job_attempts (id, job_id, kind, attempt, by, reason, rule, finished_at, next_run_at)
SELECT
    r.id, r.job_id, r.kind, j.attempt, r.by, r.reason, r.rule, statement_timestamp(),
    CASE WHEN j.state = 'ready' THEN j.run_at END
FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, job_id uuid, kind text, by text, reason text, rule text)
-- The limit keeps each look-up by its id, whatever the statistics say of the table.
CROSS JOIN LATERAL (SELECT x.attempt, x.state, x.run_at FROM x_jobs AS x WHERE x.id = r.job_id LIMIT 1) AS j;
