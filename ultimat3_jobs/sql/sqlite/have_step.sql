-- Tells which of these jobs have recorded the step :name.
SELECT j.id
FROM json_each(:rows) AS r
CROSS JOIN x_jobs AS j
CROSS JOIN x_job_steps AS s
WHERE j.id = json_extract(r.value, '$.id') AND s.run_id = j.run_id AND s.name = :name;
