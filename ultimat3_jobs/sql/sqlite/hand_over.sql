-- Lets rows that ended and were asked again go of their keys: their successors take them in the same transaction.
UPDATE x_jobs
SET rerun = NULL, key_until = NULL
WHERE id IN (SELECT json_extract(r.value, '$.id') FROM json_each(:rows) AS r);
