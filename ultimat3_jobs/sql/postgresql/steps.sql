-- Reads all that a run has recorded, in its order. Outputs beyond :budget bytes are left out, and read one by one.
SELECT
    s.name, s.seq, s.kind, s.state,
    CASE WHEN s.size <= :budget THEN s.output END,
    s.size > :budget AND s.output IS NOT NULL,
    to_char(s.until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'),
    coalesce(s.until <= statement_timestamp(), false)
FROM (
    SELECT t.*, coalesce(sum(octet_length(t.output::text)) OVER (ORDER BY t.seq, t.name), 0) AS size
    FROM x_job_steps AS t
    WHERE t.run_id = CAST(:run_id AS uuid)
) AS s
ORDER BY s.seq, s.name;
