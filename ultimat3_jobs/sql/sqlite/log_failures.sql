-- Keeps the history of failed attempts, in the transaction that settles them.
INSERT INTO x_job_attempts (
    id, job_id, kind, attempt, worker, release, error_class, message, traceback, rule, decision,
    started_at, finished_at, next_run_at
)
SELECT
    json_extract(r.value, '$.id'), j.id, 'failure', j.attempt, j.claimed_by,
    coalesce(json_extract(r.value, '$.release'), ''), j.error_class,
    coalesce(json_extract(r.value, '$.message'), j.last_error), coalesce(json_extract(r.value, '$.traceback'), ''),
    coalesce(json_extract(r.value, '$.rule'), ''), json_extract(r.value, '$.decision'),
    j.started_at, strftime('%Y-%m-%d %H:%M:%f', 'now') || '000',
    CASE WHEN j.state IN ('delayed', 'ready') THEN j.run_at END
FROM json_each(:rows) AS r
CROSS JOIN x_jobs AS j
WHERE j.id = json_extract(r.value, '$.job_id');
