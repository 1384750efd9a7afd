-- Tells whether a claim still owns its job and has recorded a step: the answer to its commit was lost.
-- The row is reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
SELECT s.name
FROM x_jobs AS j
JOIN x_job_steps AS s ON s.run_id = j.run_id
WHERE j.id = CAST(:id AS uuid)
    AND j.claim_token = CAST(:token AS uuid)
    AND j.state || '' = 'running'
    AND s.name = :name;
