-- Inserts passes of 20 backfills in the ledger, numbered from 1 to %(count)s, the newest first; 1 of 7 completed.
INSERT INTO x_backfills (run_id, name, "table", batch, outcome, created_at, updated_at)
WITH RECURSIVE numbers (n) AS (
    SELECT 1
    UNION ALL
    SELECT n + 1 FROM numbers WHERE n < %(count)s
)
SELECT
    printf('%%032x', %(base)s + n), %(kind)s || '-' || (n %% 20), 'shop_order', 100,
    CASE WHEN n %% 7 = 0 THEN 'completed' ELSE '' END,
    strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '-' || n || ' seconds') || '000', strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now') || '000'
FROM numbers;
