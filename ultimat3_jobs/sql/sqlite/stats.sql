-- The depth of each queue that has work or dead letters. No count goes past :cap.
WITH RECURSIVE ready_queues (queue) AS (
    SELECT min(queue) FROM x_jobs WHERE state = 'ready'
    UNION ALL
    SELECT (SELECT min(j.queue) FROM x_jobs AS j WHERE j.state = 'ready' AND j.queue > q.queue)
    FROM ready_queues AS q WHERE q.queue IS NOT NULL
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
    SELECT queue FROM ready_queues WHERE queue IS NOT NULL
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
    -- Of the first :cap in the order of the claim: with one priority that holds the oldest.
    (
        SELECT (julianday('now') - julianday(min(c.run_at))) * 86400.0
        FROM (
            SELECT j.run_at AS run_at FROM x_jobs AS j
            WHERE j.state = 'ready' AND j.queue = q.queue
            ORDER BY j.priority DESC, j.run_at, j.id
            LIMIT :cap
        ) AS c
    )
FROM queues AS q
ORDER BY q.queue;
