-- Removes what says that a worker is alive.
DELETE FROM x_job_leases AS l
WHERE l.lease_key = :key AND l.kind = 'worker';
