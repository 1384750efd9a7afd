-- Inserts one recorded step of each run of one kind, numbered from 1 to %(count)s.
INSERT INTO x_job_steps (run_id, name, seq, kind, state, attempt, output)
WITH RECURSIVE numbers (n) AS (
    SELECT 1
    UNION ALL
    SELECT n + 1 FROM numbers WHERE n < %(count)s
)
SELECT printf('%%032x', %(base)s + n), 'step-1', 1, 'step', 'done', 1, '1'
FROM numbers;
