-- On PostgreSQL this bounds how long a relay may fall silent in a transaction, in :milliseconds. SQLite has no such
-- bound: whoever has the write lock has it until its process ends.
SELECT :milliseconds;
