-- Tells how many bytes of write-ahead log have come since the last checkpoint, and how many the server aims at: no
-- server is here.
SELECT 0.0, NULL;
