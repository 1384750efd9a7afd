-- Inserts jobs of one kind, numbered from 1 to %(count)s.
INSERT INTO x_jobs (
    id, run_id, name, queue, input, fingerprint, idempotency_key, key_until, tenant_id, priority, state, attempt,
    max_attempts, run_at, visible_at, claimed_by, claim_token, created_at, updated_at, started_at, finished_at
)
SELECT
    p.id, p.id, 'shop.job' || n %% 20, p.queue, '{"a": 1}', '', k.kind || '-' || n,
    CASE WHEN k.kind = 'done' AND n %% 100 = 0 THEN k.now + interval '1 day' END,
    CASE WHEN n %% 7 > 0 THEN 'tenant-' || n %% 500 END,
    CASE p.queue WHEN 'bulk' THEN 9 WHEN 'reports' THEN 0 ELSE (ARRAY[0, 0, 5, -5])[1 + n / 6 %% 4] END,
    CASE
        WHEN k.kind = 'delayed' AND n %% 30 = 0 THEN 'suspended'
        WHEN k.kind = 'dead' AND n %% 10 = 0 THEN 'failed'
        ELSE k.kind
    END,
    CASE WHEN k.kind IN ('ready', 'delayed') THEN 0 ELSE 1 END,
    3,
    CASE
        WHEN k.kind = 'ready' AND p.queue = 'reports' THEN k.moment
        WHEN k.kind = 'delayed' AND n > %(due)s THEN k.now + make_interval(days => 1, secs => n %% 9973)
        ELSE k.now - make_interval(secs => 1 + n %% 9973)
    END,
    CASE
        WHEN k.kind <> 'running' THEN NULL
        WHEN n <= %(lapsed)s THEN k.now - interval '1 minute'
        ELSE k.now + interval '1 day'
    END,
    '',
    CASE WHEN k.kind IN ('running', 'done') THEN p.id END,
    k.moment, k.moment, k.moment,
    CASE WHEN k.kind IN ('done', 'dead') THEN k.moment END
FROM (
    SELECT
        CAST(%(kind)s AS text) AS kind, statement_timestamp() AS now, CAST('2024-02-29 12:00+00' AS timestamptz) AS moment
) AS k
CROSS JOIN generate_series(1, %(count)s) AS n
CROSS JOIN LATERAL (
    SELECT
        CAST(lpad(to_hex(%(base)s + n), 32, '0') AS uuid) AS id,
        CASE
            WHEN n <= %(deep)s THEN 'bulk'
            ELSE (ARRAY['alpha', 'bulk', 'default', 'import', 'mail', 'reports'])[1 + n %% 6]
        END AS queue
) AS p
ORDER BY n;
