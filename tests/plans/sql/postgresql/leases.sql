-- Inserts slots of limits that are taken, numbered from 1 to %(count)s, and a worker that is alive for each 100 of them.
INSERT INTO x_job_leases (lease_key, slot, kind, holder, granted_at, expires_at)
SELECT
    CASE WHEN n %% 100 = 0 THEN 'worker:' ELSE 'concurrency:' END || n, 0,
    CASE WHEN n %% 100 = 0 THEN 'worker' ELSE %(kind)s END, 'w' || n, statement_timestamp(),
    statement_timestamp() + interval '1 day'
FROM generate_series(1, %(count)s) AS n;
