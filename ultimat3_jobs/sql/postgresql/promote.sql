-- Makes ready at most :limit delayed and suspended jobs whose time has come.
WITH RECURSIVE queues AS (
    (SELECT queue FROM x_jobs WHERE state IN ('delayed', 'suspended') ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.queue FROM x_jobs AS j
        WHERE j.state IN ('delayed', 'suspended') AND j.queue > q.queue
        ORDER BY j.queue LIMIT 1
    )
    FROM queues AS q
    WHERE q.queue IS NOT NULL
),
due AS MATERIALIZED (
    SELECT head.id
    FROM queues
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM x_jobs AS j
        WHERE j.state IN ('delayed', 'suspended')
            AND j.queue = queues.queue
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
