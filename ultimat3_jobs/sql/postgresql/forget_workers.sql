-- Removes a few of the workers that went silent. Few are there: one for each process.
DELETE FROM x_job_leases AS l
WHERE l.slot = 0
    AND l.lease_key = ANY (
        ARRAY(
            SELECT w.lease_key
            FROM x_job_leases AS w
            WHERE w.kind = 'worker' AND w.expires_at < statement_timestamp()
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
    );
