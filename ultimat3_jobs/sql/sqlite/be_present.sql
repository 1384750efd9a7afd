-- Writes that a worker is alive, what it serves, and until when that holds.
INSERT INTO x_job_leases (lease_key, slot, kind, holder, granted_at, expires_at, data)
VALUES (
    :key, 0, 'worker', :worker, strftime('%Y-%m-%d %H:%M:%f', 'now') || '000',
    strftime('%Y-%m-%d %H:%M:%f', 'now', :lease || ' seconds') || '000', :data
)
ON CONFLICT (lease_key, slot) DO UPDATE
SET expires_at = excluded.expires_at;
