-- The depth of each queue that has work or dead letters. No count goes past :cap.
WITH RECURSIVE ready_queues AS (
    (SELECT queue FROM x_jobs WHERE state = 'ready' ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT j.queue FROM x_jobs AS j WHERE j.state = 'ready' AND j.queue > q.queue ORDER BY j.queue LIMIT 1)
    FROM ready_queues AS q WHERE q.queue IS NOT NULL
),
waiting_queues AS (
    (SELECT queue FROM x_jobs WHERE state IN ('delayed', 'suspended') ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.queue FROM x_jobs AS j
        WHERE j.state IN ('delayed', 'suspended') AND j.queue > q.queue
        ORDER BY j.queue LIMIT 1
    )
    FROM waiting_queues AS q WHERE q.queue IS NOT NULL
),
dead_queues AS (
    (SELECT queue FROM x_jobs WHERE state IN ('dead', 'failed') ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.queue FROM x_jobs AS j WHERE j.state IN ('dead', 'failed') AND j.queue > q.queue ORDER BY j.queue LIMIT 1
    )
    FROM dead_queues AS q WHERE q.queue IS NOT NULL
),
queues AS (
    SELECT queue FROM ready_queues WHERE queue IS NOT NULL
    UNION SELECT queue FROM waiting_queues WHERE queue IS NOT NULL
    UNION SELECT queue FROM dead_queues WHERE queue IS NOT NULL
    UNION SELECT queue FROM x_jobs WHERE state = 'running'
)
SELECT
    q.queue,
    (SELECT count(*) FROM (SELECT 1 FROM x_jobs AS j WHERE j.state = 'ready' AND j.queue = q.queue LIMIT :cap) AS c),
    w.delayed,
    w.suspended,
    (SELECT count(*) FROM (SELECT 1 FROM x_jobs AS j WHERE j.state = 'running' AND j.queue = q.queue LIMIT :cap) AS c),
    (
        SELECT count(*)
        FROM (SELECT 1 FROM x_jobs AS j WHERE j.state IN ('dead', 'failed') AND j.queue = q.queue LIMIT :cap) AS c
    ),
    -- Of the first :cap in the order of the claim: with one priority that holds the oldest.
    (
        SELECT extract(epoch FROM statement_timestamp() - min(c.run_at))
        FROM (
            SELECT j.run_at FROM x_jobs AS j
            WHERE j.state = 'ready' AND j.queue = q.queue
            ORDER BY j.priority DESC, j.run_at, j.id
            LIMIT :cap
        ) AS c
    )
FROM queues AS q
CROSS JOIN LATERAL (
    SELECT
        count(*) FILTER (WHERE c.state = 'delayed') AS delayed,
        count(*) FILTER (WHERE c.state = 'suspended') AS suspended
    FROM (
        SELECT j.state FROM x_jobs AS j WHERE j.state IN ('delayed', 'suspended') AND j.queue = q.queue LIMIT :cap
    ) AS c
) AS w
ORDER BY q.queue;
