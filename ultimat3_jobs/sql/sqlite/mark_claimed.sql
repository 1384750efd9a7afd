-- Records what a relay that publishes to another database made of outbox rows, where its claim on them still holds.
UPDATE x_outbox
SET outcome = marked.outcome,
    job_id = marked.job_id,
    error = marked.error,
    published_at = CASE
        WHEN marked.outcome = 'set_aside' THEN NULL
        ELSE strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
    END
FROM (
    SELECT
        json_extract(r.value, '$.id') AS id,
        json_extract(r.value, '$.token') AS token,
        json_extract(r.value, '$.outcome') AS outcome,
        json_extract(r.value, '$.job_id') AS job_id,
        json_extract(r.value, '$.error') AS error
    FROM json_each(:rows) AS r
) AS marked
WHERE x_outbox.id = marked.id
    AND x_outbox.claim_token = marked.token
    AND x_outbox.claimed_at > strftime('%Y-%m-%d %H:%M:%f', 'now', (-:lease) || ' seconds') || '000'
    AND x_outbox.outcome IS NULL
RETURNING id;
