-- Reads all that a run has recorded, in its order. Outputs beyond :budget bytes are left out, and read one by one.
SELECT
    s.name, s.seq, s.kind, s.state,
    CASE WHEN s.size <= :budget THEN s.output END,
    s.size > :budget AND s.output IS NOT NULL,
    s.until,
    coalesce(s.until <= strftime('%Y-%m-%d %H:%M:%f', 'now') || '000', 0)
FROM (
    SELECT t.*, coalesce(sum(length(CAST(t.output AS blob))) OVER (ORDER BY t.seq, t.name), 0) AS size
    FROM x_job_steps AS t
    WHERE t.run_id = :run_id
) AS s
ORDER BY s.seq, s.name;
