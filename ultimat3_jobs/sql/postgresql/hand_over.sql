-- Lets rows that ended and were asked again go of their keys: their successors take them in the same transaction.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
UPDATE x_jobs AS j
SET rerun = NULL, key_until = NULL
WHERE j.id = ANY (ARRAY(SELECT r.id FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)));
