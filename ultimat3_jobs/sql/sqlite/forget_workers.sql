-- Removes a few of the workers that went silent. Few are there: one for each process.
DELETE FROM x_job_leases
WHERE (lease_key, slot) IN (
    SELECT lease_key, slot
    FROM x_job_leases
    WHERE kind = 'worker' AND expires_at < strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
    LIMIT :limit
);
