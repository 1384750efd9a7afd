-- Inserts passes in the ledger, numbered from 1 to %(count)s.
INSERT INTO x_backfills (run_id, name, "table", batch, created_at, updated_at)
SELECT
    CAST(lpad(to_hex(%(base)s + n), 32, '0') AS uuid), %(kind)s || '-' || n / 4, 'shop_order', 100, statement_timestamp(),
    statement_timestamp()
FROM generate_series(1, %(count)s) AS n;
