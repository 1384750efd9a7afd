-- Tells whether the table is there, and whether a vacuum waits for its lock on it. Everyone may read the locks. An oid
-- names a table within its database alone.
SELECT to_regclass(:table) IS NOT NULL,
       EXISTS (
           SELECT
             FROM pg_locks AS l
            WHERE l.relation = to_regclass(:table)
              AND l.database = (SELECT a.datid FROM pg_stat_get_activity(pg_backend_pid()) AS a)
              AND l.mode = 'ShareUpdateExclusiveLock'
              AND NOT l.granted
       );
