-- Tells which jobs have not begun. The caller's transaction has the one write lock: none of them begins before it ends.
SELECT j.id
FROM json_each(:rows) AS r
CROSS JOIN x_jobs AS j
WHERE j.id = json_extract(r.value, '$.id')
    AND j.attempt = 0
    AND j.state IN ('ready', 'delayed', 'running', 'suspended');
