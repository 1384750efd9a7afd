-- Inserts jobs of one kind, numbered from 1 to %(count)s.
INSERT INTO x_jobs (
    id, run_id, name, queue, input, fingerprint, idempotency_key, key_until, tenant_id, priority, state, attempt,
    max_attempts, run_at, visible_at, claimed_by, claim_token, created_at, updated_at, started_at, finished_at
)
WITH RECURSIVE numbers (n) AS (
    SELECT 1
    UNION ALL
    SELECT n + 1 FROM numbers WHERE n < %(count)s
),
kinds (kind, tomorrow, moment) AS (
    SELECT %(kind)s, strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '+1 day') || '000', '2024-02-29 12:00:00.000000'
),
queues (place, queue) AS (
    VALUES (0, 'alpha'), (1, 'bulk'), (2, 'default'), (3, 'import'), (4, 'mail'), (5, 'reports')
),
placed (n, id, queue) AS (
    SELECT n, printf('%%032x', %(base)s + n), CASE WHEN n <= %(deep)s THEN 'bulk' ELSE queue END
    FROM numbers
    CROSS JOIN queues ON place = n %% 6
)
SELECT
    p.id, p.id, 'shop.job' || (n %% 20), p.queue, '{"a": 1}', '', k.kind || '-' || n,
    CASE WHEN k.kind = 'done' AND n %% 100 = 0 THEN k.tomorrow END,
    CASE WHEN n %% 7 > 0 THEN 'tenant-' || (n %% 500) END,
    CASE p.queue WHEN 'bulk' THEN 9 WHEN 'reports' THEN 0 ELSE json_extract('[0, 0, 5, -5]', '$[' || (n / 6 %% 4) || ']') END,
    CASE
        WHEN k.kind = 'delayed' AND n %% 30 = 0 THEN 'suspended'
        WHEN k.kind = 'dead' AND n %% 10 = 0 THEN 'failed'
        ELSE k.kind
    END,
    CASE WHEN k.kind IN ('ready', 'delayed') THEN 0 ELSE 1 END,
    3,
    CASE
        WHEN k.kind = 'ready' AND p.queue = 'reports' THEN k.moment
        WHEN k.kind = 'delayed' AND n > %(due)s
            THEN strftime('%%Y-%%m-%%d %%H:%%M:%%f', k.tomorrow, (n %% 9973) || ' seconds') || '000'
        ELSE strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', (- 1 - n %% 9973) || ' seconds') || '000'
    END,
    CASE
        WHEN k.kind <> 'running' THEN NULL
        WHEN n <= %(lapsed)s THEN strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '-1 minute') || '000'
        ELSE k.tomorrow
    END,
    '',
    CASE WHEN k.kind IN ('running', 'done') THEN p.id END,
    k.moment, k.moment, k.moment,
    CASE WHEN k.kind IN ('done', 'dead') THEN k.moment END
FROM kinds AS k
CROSS JOIN placed AS p;
