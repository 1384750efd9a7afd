-- Lets the attempts of a running job count anew, since it has got on. Fenced on the claim's token.
UPDATE x_jobs
SET attempt = 1,
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE id = :id AND claim_token = :token AND state = 'running'
RETURNING id;
