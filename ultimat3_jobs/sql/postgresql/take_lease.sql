-- Takes a table, or the name of a backfill, for the pass of a run. Refused while the run that has it is live: whether it
-- is, its job's row says.
INSERT INTO x_job_leases AS l (lease_key, slot, kind, holder, granted_at)
VALUES (:key, 0, :kind, :holder, statement_timestamp())
ON CONFLICT (lease_key, slot) DO UPDATE
SET holder = excluded.holder, granted_at = excluded.granted_at
WHERE l.holder = excluded.holder
    OR NOT EXISTS (
        SELECT 1
        FROM x_jobs AS j
        WHERE j.id = CAST(l.holder AS uuid) AND j.state || '' IN ('ready', 'delayed', 'running', 'suspended')
    )
RETURNING l.holder;
