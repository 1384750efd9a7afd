-- Keeps who started a dead letter again, in the transaction that does so.
INSERT INTO x_job_attempts (id, job_id, kind, attempt, by, reason, finished_at, next_run_at)
SELECT r.id, j.id, 'retry', j.attempt, r.by, r.reason, statement_timestamp(), j.run_at
FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, job_id uuid, by text, reason text)
JOIN x_jobs AS j ON j.id = r.job_id;
