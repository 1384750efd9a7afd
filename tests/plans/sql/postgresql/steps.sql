-- Inserts one recorded step of each run of one kind, numbered from 1 to %(count)s.
INSERT INTO x_job_steps (run_id, name, seq, kind, state, attempt, output)
SELECT CAST(lpad(to_hex(%(base)s + n), 32, '0') AS uuid), 'step-1', 1, 'step', 'done', 1, '1'
FROM generate_series(1, %(count)s) AS n;
