-- Lets go of outbox rows that a relay did not publish, where its claim on them still holds.
UPDATE x_outbox
SET claimed_at = NULL, claimed_by = '', claim_token = NULL
FROM (
    SELECT json_extract(r.value, '$.id') AS id, json_extract(r.value, '$.token') AS token FROM json_each(:rows) AS r
) AS released
WHERE x_outbox.id = released.id
    AND x_outbox.claim_token = released.token
    AND x_outbox.claimed_at > strftime('%Y-%m-%d %H:%M:%f', 'now', (-:lease) || ' seconds') || '000'
    AND x_outbox.outcome IS NULL
RETURNING id;
