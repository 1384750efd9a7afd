-- Forgets what these jobs recorded from the step :name on, so that it is done again. An event that one of these steps had
-- taken can be taken again.
DELETE FROM x_job_steps
WHERE rowid IN (
        SELECT s.rowid
        FROM json_each(:rows) AS r
        CROSS JOIN x_jobs AS j
        CROSS JOIN x_job_steps AS f
        CROSS JOIN x_job_steps AS s
        WHERE j.id = json_extract(r.value, '$.id')
            AND f.run_id = j.run_id
            AND f.name = :name
            AND s.run_id = f.run_id
            AND (s.seq > f.seq OR s.name = f.name)
    );
