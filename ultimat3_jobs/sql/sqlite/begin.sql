-- Marks last attempts as begun, before their bodies. Fenced on the claim's token and answered row by row.
UPDATE x_jobs
SET started_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE (id, claim_token) IN (
        SELECT json_extract(r.value, '$.id'), json_extract(r.value, '$.token') FROM json_each(:rows) AS r
    )
    AND state = 'running'
RETURNING id, claim_token;
