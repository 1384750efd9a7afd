-- Keeps how far runs are, each fenced on its claim's token.
UPDATE x_jobs
SET progress = mine.progress
FROM (
    SELECT
        json_extract(r.value, '$.id') AS id,
        json_extract(r.value, '$.token') AS token,
        json_extract(r.value, '$.progress') AS progress
    FROM json_each(:rows) AS r
) AS mine
WHERE x_jobs.id = mine.id
    AND x_jobs.claim_token = mine.token
    AND x_jobs.state = 'running'
RETURNING id, claim_token;
