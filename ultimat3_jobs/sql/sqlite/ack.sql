-- Ends jobs whose bodies ended well. Fenced on the claim's token, even past the lease, and answered row by row.
-- The token stays on the row: a commit whose answer was lost is recognised as ours.
-- A row that was asked again ends only where :with_rerun says that its successor is queued in the same transaction.
UPDATE x_jobs
SET state = 'done',
    result = settled.result,
    progress = coalesce(settled.progress, x_jobs.progress),
    last_error = '',
    parks = 0,
    park_reason = '',
    visible_at = NULL,
    finished_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000',
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
FROM (
    SELECT
        json_extract(r.value, '$.id') AS id,
        json_extract(r.value, '$.token') AS token,
        json_extract(r.value, '$.result') AS result,
        json_extract(r.value, '$.progress') AS progress
    FROM json_each(:rows) AS r
) AS settled
WHERE x_jobs.id = settled.id
    AND x_jobs.claim_token = settled.token
    AND x_jobs.state = 'running'
    AND (x_jobs.rerun IS NULL OR :with_rerun)
RETURNING id, claim_token, rerun;
