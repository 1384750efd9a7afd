-- Tells whether a claim still owns its job and has recorded a step: the answer to its commit was lost.
SELECT s.name
FROM x_jobs AS j
CROSS JOIN x_job_steps AS s
WHERE j.id = :id
    AND j.claim_token = :token
    AND j.state = 'running'
    AND s.run_id = j.run_id
    AND s.name = :name;
