-- Gives outbox rows that were set aside back to the relay, their tries anew.
UPDATE x_outbox AS o
SET outcome = NULL, job_id = NULL, attempts = 0, error = ''
FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)
WHERE o.id = r.id AND o.outcome = 'set_aside'
RETURNING o.id, o.name;
