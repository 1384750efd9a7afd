-- Removes what says that a worker is alive.
DELETE FROM x_job_leases
WHERE lease_key = :key AND kind = 'worker';
