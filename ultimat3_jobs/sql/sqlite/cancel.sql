-- Stops live jobs for good. Whoever runs one loses its claim, and can write nothing more about it.
UPDATE x_jobs
SET state = 'cancelled',
    stop = 'cancelled',
    key_until = NULL,
    rerun = NULL,
    claim_token = NULL,
    visible_at = NULL,
    park_reason = '',
    cancel_requested_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000',
    cancel_requested_by = :by,
    cancel_reason = :reason,
    finished_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000',
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE id IN (SELECT json_extract(r.value, '$.id') FROM json_each(:rows) AS r)
    AND state IN ('ready', 'delayed', 'running', 'suspended')
RETURNING id;
