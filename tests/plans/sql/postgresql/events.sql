-- Inserts events of one name, numbered from 1 to %(count)s by their age: the youngest is 1.
INSERT INTO x_job_events (staged_id, name, match, payload, published_at, expires_at)
SELECT
    CAST(lpad(to_hex(%(base)s + %(count)s + 1 - n), 32, '0') AS uuid), %(named)s, 'none-' || n %% 500, '{"a": 1}',
    CASE
        WHEN n > %(count)s - %(young)s THEN k.now + make_interval(hours => 1, secs => n)
        ELSE k.now - make_interval(days => 1, secs => 1000000 - n)
    END,
    CASE WHEN n <= %(expired)s THEN k.now - interval '1 hour' ELSE k.now + interval '7 days' END
FROM (SELECT statement_timestamp() AS now, CAST(%(kind)s AS text)) AS k
CROSS JOIN generate_series(1, %(count)s) AS n
ORDER BY n;
