-- Makes ready at most :limit delayed and suspended jobs whose time has come. The queue with the longest wait goes
-- first, so that one which always has more than :limit does not hold up the others.
WITH RECURSIVE queues AS (
    -- Each queue with the first time at which something in it is due.
    (
        SELECT queue, run_at
        FROM x_jobs
        WHERE state IN ('delayed', 'suspended')
        ORDER BY queue, run_at
        LIMIT 1
    )
    UNION ALL
    SELECT following.*
    FROM queues AS q
    CROSS JOIN LATERAL (
        SELECT j.queue, j.run_at
        FROM x_jobs AS j
        WHERE j.state IN ('delayed', 'suspended') AND j.queue > q.queue
        ORDER BY j.queue, j.run_at
        LIMIT 1
    ) AS following
),
-- Materialised: the planner may run a subquery with a LIMIT twice, and more rows would be taken than were asked for.
due AS MATERIALIZED (
    SELECT head.id
    FROM (SELECT queue FROM queues WHERE run_at <= statement_timestamp() ORDER BY run_at) AS waiting
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM x_jobs AS j
        WHERE j.state IN ('delayed', 'suspended')
            AND j.queue = waiting.queue
            AND j.run_at <= statement_timestamp()
        ORDER BY j.run_at
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) AS head
    LIMIT :limit
)
UPDATE x_jobs AS j
SET state = 'ready', park_reason = '', updated_at = statement_timestamp()
FROM due
WHERE j.id = due.id
RETURNING j.id;
