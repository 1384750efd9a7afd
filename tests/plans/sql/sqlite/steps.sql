-- Inserts waits, numbered from 1 to %(count)s, that have got events. The first are of one run, which has had the oldest
-- events that have not expired.
INSERT INTO x_job_steps (run_id, name, seq, kind, state, event_id)
WITH RECURSIVE numbers (n) AS (
    SELECT 1
    UNION ALL
    SELECT n + 1 FROM numbers WHERE n < %(count)s
)
SELECT
    CASE WHEN n <= %(had)s THEN %(run)s ELSE printf('%%032x', %(base)s + n / 10) END,
    %(kind)s || '-' || n, n, 'wait', 'done', %(expired)s + n
FROM numbers;
