-- Gives outbox rows that were set aside back to the relay, their tries anew.
UPDATE x_outbox
SET outcome = NULL, job_id = NULL, attempts = 0, error = ''
WHERE id IN (SELECT json_extract(r.value, '$.id') FROM json_each(:rows) AS r) AND outcome = 'set_aside'
RETURNING id, name;
