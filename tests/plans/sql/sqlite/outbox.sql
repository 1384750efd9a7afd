-- Inserts outbox rows of one kind, numbered from 1 to %(count)s.
INSERT INTO x_outbox (
    id, name, queue, input, fingerprint, idempotency_key, tenant_id, max_attempts, run_at, staged_at, published_at,
    outcome, job_id
)
WITH RECURSIVE numbers (n) AS (
    SELECT 1
    UNION ALL
    SELECT n + 1 FROM numbers WHERE n < %(count)s
),
kinds (kind, now) AS (
    SELECT %(kind)s, strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now') || '000'
),
placed (n, id) AS (
    SELECT n, printf('%%032x', %(base)s + n) FROM numbers
)
SELECT
    p.id, 'shop.job' || (n %% 20), 'mail', '{"a": 1}', '', k.kind || '-' || n,
    CASE WHEN n %% 7 > 0 THEN 'tenant-' || (n %% 500) END,
    3, k.now, strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', (n - 1000000) || ' seconds') || '000',
    CASE k.kind WHEN 'published' THEN k.now END,
    CASE k.kind WHEN 'published' THEN 'published' END,
    CASE k.kind WHEN 'published' THEN p.id END
FROM kinds AS k
CROSS JOIN placed AS p;
