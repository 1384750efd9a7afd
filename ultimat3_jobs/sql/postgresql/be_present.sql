-- Writes that a worker is alive, what it serves, and until when that holds.
INSERT INTO x_job_leases (lease_key, slot, kind, holder, granted_at, expires_at, data)
VALUES (
    :key, 0, 'worker', :worker, statement_timestamp(), statement_timestamp() + make_interval(secs => :lease),
    CAST(:data AS jsonb)
)
ON CONFLICT (lease_key, slot) DO UPDATE
SET expires_at = excluded.expires_at;
