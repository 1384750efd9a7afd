-- Takes a table, or the name of a backfill, for the pass of a run. Refused while the run that has it is live: whether it
-- is, its job's row says.
INSERT INTO x_job_leases (lease_key, slot, kind, holder, granted_at)
VALUES (:key, 0, :kind, :holder, strftime('%Y-%m-%d %H:%M:%f', 'now') || '000')
ON CONFLICT (lease_key, slot) DO UPDATE
SET holder = excluded.holder, granted_at = excluded.granted_at
WHERE x_job_leases.holder = excluded.holder
    OR NOT EXISTS (
        SELECT 1
        FROM x_jobs AS j
        WHERE j.id = x_job_leases.holder AND j.state IN ('ready', 'delayed', 'running', 'suspended')
    )
RETURNING holder;
