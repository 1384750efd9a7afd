-- Inserts slots of limits that are taken, numbered from 1 to %(count)s, and a worker that is alive for each 100 of them.
INSERT INTO x_job_leases (lease_key, slot, kind, holder, granted_at, expires_at)
WITH RECURSIVE numbers (n) AS (
    SELECT 1
    UNION ALL
    SELECT n + 1 FROM numbers WHERE n < %(count)s
)
SELECT
    CASE WHEN n %% 100 = 0 THEN 'worker:' ELSE 'concurrency:' END || n, 0,
    CASE WHEN n %% 100 = 0 THEN 'worker' ELSE %(kind)s END, 'w' || n, strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now') || '000',
    strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '1 day') || '000'
FROM numbers;
