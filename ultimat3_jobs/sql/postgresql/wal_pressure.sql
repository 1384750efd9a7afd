-- Tells how many bytes of write-ahead log have come since the last checkpoint began, and how many the server aims at.
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), c.redo_lsn)::float8,
       pg_size_bytes(current_setting('max_wal_size'))::float8
  FROM pg_control_checkpoint() AS c;
