-- Lets rows that ended and were asked again go of their keys: their successors take them in the same transaction.
UPDATE x_jobs AS j
SET rerun = NULL, key_until = NULL
FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)
WHERE j.id = r.id;
