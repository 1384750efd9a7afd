-- Lets go of what the pass of a run has taken, where the claim still owns its job: a worker that comes back late frees
-- nothing that a later attempt holds.
WITH mine AS MATERIALIZED (
    SELECT j.id
    FROM x_jobs AS j
    WHERE j.id = CAST(:id AS uuid) AND j.claim_token = CAST(:token AS uuid) AND j.state || '' = 'running'
    FOR UPDATE OF j
)
DELETE FROM x_job_leases AS l
WHERE l.lease_key = ANY (ARRAY(SELECT r.lease_key FROM json_to_recordset(CAST(:rows AS json)) AS r (lease_key text)))
    AND l.slot = 0
    AND l.holder = :holder
    AND EXISTS (SELECT 1 FROM mine);
