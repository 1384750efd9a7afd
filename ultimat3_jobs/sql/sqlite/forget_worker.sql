-- Removes one of the workers that went silent. Few rows are there to look through: one for each process.
DELETE FROM x_job_leases
WHERE kind = 'worker'
    AND slot = 0
    AND lease_key = (
        SELECT lease_key
        FROM x_job_leases
        WHERE kind = 'worker' AND expires_at < strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
        LIMIT 1
    )
RETURNING holder;
