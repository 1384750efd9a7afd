-- Tells whether the table is there, and whether a vacuum waits for its lock on it: none does here.
SELECT :table IS NOT NULL, FALSE;
