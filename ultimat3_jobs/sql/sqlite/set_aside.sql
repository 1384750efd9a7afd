-- Counts a failed try of outbox rows, and sets aside those that have used their tries. A row that is relayed under a
-- lease must be under the claim that says so.
UPDATE x_outbox
SET attempts = attempts + 1,
    error = failed.error,
    outcome = CASE WHEN attempts + 1 >= failed.tries THEN 'set_aside' END,
    claimed_at = NULL,
    claimed_by = '',
    claim_token = NULL
FROM (
    SELECT
        json_extract(r.value, '$.id') AS id,
        json_extract(r.value, '$.token') AS token,
        json_extract(r.value, '$.tries') AS tries,
        json_extract(r.value, '$.error') AS error
    FROM json_each(:rows) AS r
) AS failed
WHERE x_outbox.id = failed.id
    AND x_outbox.outcome IS NULL
    AND (
        failed.token IS NULL
        OR (
            x_outbox.claim_token = failed.token
            AND x_outbox.claimed_at > strftime('%Y-%m-%d %H:%M:%f', 'now', (-:lease) || ' seconds') || '000'
        )
    )
RETURNING id, outcome;
