-- Lets go of the keys of finished rows whose time of holding has passed.
UPDATE x_jobs AS j
SET key_until = NULL, updated_at = statement_timestamp()
FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)
WHERE j.id = r.id
    AND j.state NOT IN ('ready', 'delayed', 'running', 'suspended')
    AND j.key_until <= statement_timestamp();
