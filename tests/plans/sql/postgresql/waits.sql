-- Inserts suspended runs that wait for events of one name, numbered from 1 to %(count)s: half for any, half for a match
-- that none has.
INSERT INTO x_jobs (
    id, run_id, name, queue, input, fingerprint, idempotency_key, state, max_attempts, run_at, wait_event, wait_match,
    wait_poll, created_at, updated_at
)
SELECT
    p.id, p.id, 'shop.job' || n %% 20, 'default', '{"a": 1}', '', k.kind || '-' || n, 'suspended', 3,
    CASE
        WHEN n <= %(waiting_due)s THEN k.now - make_interval(secs => n)
        ELSE k.now + make_interval(days => 1, secs => n %% 9973)
    END,
    %(named)s, CASE WHEN n %% 2 = 1 THEN 'order-' || n %% 100 ELSE '' END, 30, k.now - interval '1 minute', k.now
FROM (SELECT CAST(%(kind)s AS text) AS kind, statement_timestamp() AS now) AS k
CROSS JOIN generate_series(1, %(count)s) AS n
CROSS JOIN LATERAL (SELECT CAST(lpad(to_hex(%(base)s + n), 32, '0') AS uuid) AS id) AS p
ORDER BY n;
