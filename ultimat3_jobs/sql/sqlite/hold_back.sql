-- Tells which jobs have not begun. The caller's transaction has the one write lock: none of them begins before it ends.
SELECT j.id
FROM json_each(:rows) AS r
CROSS JOIN x_jobs AS j
WHERE j.id = json_extract(r.value, '$.id')
    AND j.attempt = 0
    AND NOT EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = j.run_id)
    AND j.state IN ('ready', 'delayed', 'running', 'suspended');
