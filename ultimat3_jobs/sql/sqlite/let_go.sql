-- Lets go of what the pass of a run has taken, where the claim still owns its job: a worker that comes back late frees
-- nothing that a later attempt holds.
DELETE FROM x_job_leases
WHERE lease_key IN (SELECT json_extract(r.value, '$.lease_key') FROM json_each(:rows) AS r)
    AND slot = 0
    AND holder = :holder
    AND EXISTS (SELECT 1 FROM x_jobs AS j WHERE j.id = :id AND j.claim_token = :token AND j.state = 'running');
