-- The depth of each queue that has work or dead letters. No count goes past :cap.
WITH RECURSIVE ready_heads AS (
    -- The first row of each priority of each queue: one of them is the oldest of its queue.
    (
        SELECT queue, priority, run_at
        FROM x_jobs
        WHERE state = 'ready'
        ORDER BY queue, priority DESC, run_at
        LIMIT 1
    )
    UNION ALL
    SELECT following.*
    FROM ready_heads AS h
    CROSS JOIN LATERAL (
        (
            SELECT j.queue, j.priority, j.run_at
            FROM x_jobs AS j
            WHERE j.state = 'ready' AND j.queue = h.queue AND j.priority < h.priority
            ORDER BY j.priority DESC, j.run_at
            LIMIT 1
        )
        UNION ALL
        (
            SELECT j.queue, j.priority, j.run_at
            FROM x_jobs AS j
            WHERE j.state = 'ready' AND j.queue > h.queue
            ORDER BY j.queue, j.priority DESC, j.run_at
            LIMIT 1
        )
        LIMIT 1
    ) AS following
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
    SELECT queue FROM ready_heads
    UNION SELECT queue FROM waiting_queues WHERE queue IS NOT NULL
    UNION SELECT queue FROM dead_queues WHERE queue IS NOT NULL
    UNION SELECT queue FROM x_jobs WHERE state = 'running'
)
-- The counts are ordered as the indexes are: for a LIMIT without an order the planner may well read the whole table.
SELECT
    q.queue,
    (
        SELECT count(*)
        FROM (
            SELECT 1 FROM x_jobs AS j
            WHERE j.state = 'ready' AND j.queue = q.queue
            ORDER BY j.priority DESC, j.run_at, j.id
            LIMIT :cap
        ) AS c
    ),
    w.delayed,
    w.suspended,
    (SELECT count(*) FROM (SELECT 1 FROM x_jobs AS j WHERE j.state = 'running' AND j.queue = q.queue LIMIT :cap) AS c),
    (
        SELECT count(*)
        FROM (
            SELECT 1 FROM x_jobs AS j
            WHERE j.state IN ('dead', 'failed') AND j.queue = q.queue
            ORDER BY j.finished_at
            LIMIT :cap
        ) AS c
    ),
    (SELECT extract(epoch FROM statement_timestamp() - min(h.run_at)) FROM ready_heads AS h WHERE h.queue = q.queue)
FROM queues AS q
CROSS JOIN LATERAL (
    SELECT
        count(*) FILTER (WHERE c.state = 'delayed') AS delayed,
        count(*) FILTER (WHERE c.state = 'suspended') AS suspended
    FROM (
        SELECT j.state FROM x_jobs AS j
        WHERE j.state IN ('delayed', 'suspended') AND j.queue = q.queue
        ORDER BY j.run_at
        LIMIT :cap
    ) AS c
) AS w
ORDER BY q.queue;
