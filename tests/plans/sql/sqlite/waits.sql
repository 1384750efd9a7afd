-- Inserts suspended runs that wait for events of one name, numbered from 1 to %(count)s: half for any, half for a match
-- that none has.
INSERT INTO x_jobs (
    id, run_id, name, queue, input, fingerprint, idempotency_key, state, max_attempts, run_at, wait_event, wait_match,
    wait_poll, created_at, updated_at
)
WITH RECURSIVE numbers (n) AS (
    SELECT 1
    UNION ALL
    SELECT n + 1 FROM numbers WHERE n < %(count)s
),
placed (n, id) AS (
    SELECT n, printf('%%032x', %(base)s + n) FROM numbers
)
SELECT
    p.id, p.id, 'shop.job' || (n %% 20), 'default', '{"a": 1}', '', %(kind)s || '-' || n, 'suspended', 3,
    CASE
        WHEN n <= %(waiting_due)s THEN strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', (-n) || ' seconds') || '000'
        ELSE strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '+1 day', (n %% 9973) || ' seconds') || '000'
    END,
    %(named)s, CASE WHEN n %% 2 = 1 THEN 'order-' || (n %% 100) ELSE '' END, 30,
    strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '-1 minute') || '000',
    strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now') || '000'
FROM placed AS p;
