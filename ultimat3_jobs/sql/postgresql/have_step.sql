-- Tells which of these jobs have recorded the step :name.
SELECT j.id
FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)
JOIN x_jobs AS j ON j.id = r.id
JOIN x_job_steps AS s ON s.run_id = j.run_id
WHERE s.name = :name;
