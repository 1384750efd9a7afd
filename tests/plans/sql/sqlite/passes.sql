-- Inserts passes in the ledger, numbered from 1 to %(count)s.
INSERT INTO x_backfills (run_id, name, "table", batch, created_at, updated_at)
WITH RECURSIVE numbers (n) AS (
    SELECT 1
    UNION ALL
    SELECT n + 1 FROM numbers WHERE n < %(count)s
)
SELECT
    printf('%%032x', %(base)s + n), %(kind)s || '-' || n / 4, 'shop_order', 100,
    strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now') || '000', strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now') || '000'
FROM numbers;
