-- Renews leases, each fenced on its claim's token.
UPDATE x_jobs
SET visible_at = strftime('%Y-%m-%d %H:%M:%f', 'now', :lease || ' seconds') || '000'
WHERE (id, claim_token) IN (
        SELECT json_extract(r.value, '$.id'), json_extract(r.value, '$.token') FROM json_each(:rows) AS r
    )
    AND state = 'running'
RETURNING id, claim_token;
