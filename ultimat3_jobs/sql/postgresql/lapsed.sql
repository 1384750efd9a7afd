-- Lists at most :limit running jobs whose leases have lapsed, each with the end of its lease. Takes nothing.
SELECT j.id, to_char(j.visible_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')
FROM x_jobs AS j
WHERE j.state = 'running' AND j.visible_at <= statement_timestamp()
LIMIT :limit;
