-- Removes one of the workers that went silent. Few rows are there to look through: one for each process.
DELETE FROM x_job_leases AS l
WHERE l.kind = 'worker'
    AND l.slot = 0
    AND l.lease_key = (
        SELECT w.lease_key
        FROM x_job_leases AS w
        WHERE w.kind = 'worker' AND w.expires_at < statement_timestamp()
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    )
RETURNING l.holder;
