-- Forgets what these jobs recorded from the step :name on, so that it is done again. An event that one of these steps had
-- taken can be taken again.
DELETE FROM x_job_steps AS s
USING (
    SELECT f.run_id, f.name, f.seq
    FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)
    JOIN x_jobs AS j ON j.id = r.id
    JOIN x_job_steps AS f ON f.run_id = j.run_id
    WHERE f.name = :name
) AS first
WHERE s.run_id = first.run_id AND (s.seq > first.seq OR s.name = first.name);
