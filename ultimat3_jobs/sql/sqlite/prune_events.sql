-- Deletes at most :limit events that have expired.
DELETE FROM x_job_events
WHERE id IN (
    SELECT p.id FROM x_job_events AS p WHERE p.expires_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') || '000' ORDER BY p.expires_at LIMIT :limit
)
RETURNING id;
