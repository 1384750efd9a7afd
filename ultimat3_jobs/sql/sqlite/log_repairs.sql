-- Keeps who started a dead letter again or cancelled a job, and why, in the transaction that does so.
INSERT INTO x_job_attempts (id, job_id, kind, attempt, by, reason, rule, finished_at, next_run_at)
SELECT
    json_extract(r.value, '$.id'), j.id, json_extract(r.value, '$.kind'), j.attempt, json_extract(r.value, '$.by'),
    json_extract(r.value, '$.reason'), json_extract(r.value, '$.rule'), strftime('%Y-%m-%d %H:%M:%f', 'now') || '000',
    CASE WHEN j.state = 'ready' THEN j.run_at END
FROM json_each(:rows) AS r
CROSS JOIN x_jobs AS j
WHERE j.id = json_extract(r.value, '$.job_id');
