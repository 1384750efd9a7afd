-- Inserts outbox rows of one kind, numbered from 1 to %(count)s.
INSERT INTO x_outbox (
    id, name, queue, input, fingerprint, idempotency_key, tenant_id, max_attempts, run_at, staged_at, published_at,
    outcome, job_id
)
SELECT
    p.id, 'shop.job' || n %% 20, 'mail', '{"a": 1}', '', k.kind || '-' || n,
    CASE WHEN n %% 7 > 0 THEN 'tenant-' || n %% 500 END,
    3, k.now, k.now - make_interval(secs => 1000000 - n),
    CASE k.kind WHEN 'published' THEN k.now END,
    CASE k.kind WHEN 'published' THEN 'published' END,
    CASE k.kind WHEN 'published' THEN p.id END
FROM (SELECT CAST(%(kind)s AS text) AS kind, statement_timestamp() AS now) AS k
CROSS JOIN generate_series(1, %(count)s) AS n
CROSS JOIN LATERAL (SELECT CAST(lpad(to_hex(%(base)s + n), 32, '0') AS uuid) AS id) AS p
ORDER BY n;
