-- The depth of each queue that has work or dead letters. No count goes past :cap.
WITH RECURSIVE ready_heads (queue, priority, run_at) AS (
    -- The first row of each priority of each queue: one of them is the oldest of its queue.
    SELECT * FROM (
        SELECT queue, priority, run_at
        FROM x_jobs
        WHERE state = 'ready'
        ORDER BY queue, priority DESC, run_at
        LIMIT 1
    )
    UNION ALL
    SELECT following.queue, following.priority, following.run_at
    FROM ready_heads AS h
    CROSS JOIN x_jobs AS following
    WHERE following.id = coalesce(
        (
            SELECT j.id
            FROM x_jobs AS j
            WHERE j.state = 'ready' AND j.queue = h.queue AND j.priority < h.priority
            ORDER BY j.priority DESC, j.run_at
            LIMIT 1
        ),
        (
            SELECT j.id
            FROM x_jobs AS j
            WHERE j.state = 'ready' AND j.queue > h.queue
            ORDER BY j.queue, j.priority DESC, j.run_at
            LIMIT 1
        )
    )
),
waiting_queues (queue) AS (
    SELECT min(queue) FROM x_jobs WHERE state IN ('delayed', 'suspended')
    UNION ALL
    SELECT (SELECT min(j.queue) FROM x_jobs AS j WHERE j.state IN ('delayed', 'suspended') AND j.queue > q.queue)
    FROM waiting_queues AS q WHERE q.queue IS NOT NULL
),
dead_queues (queue) AS (
    SELECT min(queue) FROM x_jobs WHERE state IN ('dead', 'failed')
    UNION ALL
    SELECT (SELECT min(j.queue) FROM x_jobs AS j WHERE j.state IN ('dead', 'failed') AND j.queue > q.queue)
    FROM dead_queues AS q WHERE q.queue IS NOT NULL
),
queues AS (
    SELECT queue FROM ready_heads
    UNION SELECT queue FROM waiting_queues WHERE queue IS NOT NULL
    UNION SELECT queue FROM dead_queues WHERE queue IS NOT NULL
    UNION SELECT queue FROM x_jobs WHERE state = 'running'
)
SELECT
    q.queue,
    (SELECT count(*) FROM (SELECT 1 FROM x_jobs AS j WHERE j.state = 'ready' AND j.queue = q.queue LIMIT :cap)),
    (
        SELECT count(*) FROM (
            SELECT j.state AS state FROM x_jobs AS j
            WHERE j.state IN ('delayed', 'suspended') AND j.queue = q.queue
            LIMIT :cap
        ) AS c
        WHERE c.state = 'delayed'
    ),
    (
        SELECT count(*) FROM (
            SELECT j.state AS state FROM x_jobs AS j
            WHERE j.state IN ('delayed', 'suspended') AND j.queue = q.queue
            LIMIT :cap
        ) AS c
        WHERE c.state = 'suspended'
    ),
    (SELECT count(*) FROM (SELECT 1 FROM x_jobs AS j WHERE j.state = 'running' AND j.queue = q.queue LIMIT :cap)),
    (SELECT count(*) FROM (SELECT 1 FROM x_jobs AS j WHERE j.state IN ('dead', 'failed') AND j.queue = q.queue LIMIT :cap)),
    (
        SELECT (julianday('now') - julianday(min(h.run_at))) * 86400.0
        FROM ready_heads AS h
        WHERE h.queue = q.queue
    )
FROM queues AS q
ORDER BY q.queue;
