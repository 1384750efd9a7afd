-- Lets go of the keys of finished rows whose time of holding has passed.
UPDATE x_jobs
SET key_until = NULL, updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE id IN (SELECT json_extract(r.value, '$.id') FROM json_each(:rows) AS r)
    AND state NOT IN ('ready', 'delayed', 'running', 'suspended')
    AND key_until <= strftime('%Y-%m-%d %H:%M:%f', 'now') || '000';
