-- Reads the output of one recorded step.
SELECT s.output
FROM x_job_steps AS s
WHERE s.run_id = CAST(:run_id AS uuid) AND s.name = :name;
