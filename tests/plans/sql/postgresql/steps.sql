-- Inserts waits, numbered from 1 to %(count)s, that have got events. The first are of one run, which has had the oldest
-- events that have not expired.
INSERT INTO x_job_steps (run_id, name, seq, kind, state, event_id)
SELECT
    CASE
        WHEN n <= %(had)s THEN CAST(%(run)s AS uuid) ELSE CAST(lpad(to_hex(%(base)s + n / 10), 32, '0') AS uuid)
    END,
    %(kind)s || '-' || n, n, 'wait', 'done', %(expired)s + n
FROM generate_series(1, %(count)s) AS n;
