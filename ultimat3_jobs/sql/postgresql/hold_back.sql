-- Keeps jobs that have not begun from beginning until the caller's transaction ends. Those that have begun by now stay
-- out of what comes back. Several callers may hold one job back; a claim passes over it.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
SELECT j.id
FROM x_jobs AS j
WHERE j.id = ANY (ARRAY(SELECT r.id FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)))
    AND j.attempt = 0
    AND (SELECT true FROM x_job_steps AS s WHERE s.run_id = j.run_id LIMIT 1) IS NULL
    AND j.state || '' IN ('ready', 'delayed', 'running', 'suspended')
-- In one order for everyone: two callers never wait for one another in a ring.
ORDER BY j.id
FOR SHARE OF j;
