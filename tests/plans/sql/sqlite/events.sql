-- Inserts events of one name, numbered from 1 to %(count)s by their age: the youngest is 1.
INSERT INTO x_job_events (staged_id, name, match, payload, published_at, expires_at)
WITH RECURSIVE numbers (n) AS (
    SELECT 1
    UNION ALL
    SELECT n + 1 FROM numbers WHERE n < %(count)s
)
SELECT
    printf('%%032x', %(base)s + %(count)s + 1 - n), %(named)s, 'none-' || (n %% 500), '{"a": 1}',
    CASE
        WHEN n > %(count)s - %(young)s
            THEN strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '+1 hour', n || ' seconds') || '000'
        ELSE strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '-1 day', (n - 1000000) || ' seconds') || '000'
    END,
    CASE
        WHEN n <= %(expired)s THEN strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '-1 hour') || '000'
        ELSE strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '+7 days') || '000'
    END
FROM numbers
ORDER BY n;
