-- Inserts passes of 20 backfills in the ledger, numbered from 1 to %(count)s, the newest first; 1 of 7 completed.
INSERT INTO x_backfills (run_id, name, "table", batch, outcome, created_at, updated_at)
SELECT
    CAST(lpad(to_hex(%(base)s + n), 32, '0') AS uuid), %(kind)s || '-' || (n %% 20), 'shop_order', 100,
    CASE WHEN n %% 7 = 0 THEN 'completed' ELSE '' END, statement_timestamp() - n * interval '1 second',
    statement_timestamp()
FROM generate_series(1, %(count)s) AS n;
