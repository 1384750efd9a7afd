-- Lists at most :limit running jobs whose leases have lapsed, each with the end of its lease. Takes nothing.
SELECT j.id, j.visible_at
FROM x_jobs AS j
WHERE j.state = 'running' AND j.visible_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
LIMIT :limit;
