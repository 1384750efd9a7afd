-- Makes ready at most :limit delayed and suspended jobs whose time has come. The queue with the longest wait goes
-- first, so that one which always has more than :limit does not hold up the others.
WITH RECURSIVE queues (queue) AS (
    SELECT min(queue) FROM x_jobs WHERE state IN ('delayed', 'suspended')
    UNION ALL
    SELECT (SELECT min(j.queue) FROM x_jobs AS j WHERE j.state IN ('delayed', 'suspended') AND j.queue > q.queue)
    FROM queues AS q
    WHERE q.queue IS NOT NULL
),
due AS (
    SELECT head.value AS id
    FROM (
        SELECT
            q.queue,
            (
                SELECT min(j.run_at)
                FROM x_jobs AS j
                WHERE j.state IN ('delayed', 'suspended') AND j.queue = q.queue
            ) AS first_due
        FROM queues AS q
        WHERE q.queue IS NOT NULL
        ORDER BY first_due
        -- No limit; but without one, SQLite drops the order of a subquery that is joined.
        LIMIT -1
    ) AS waiting
    CROSS JOIN json_each((
        SELECT json_group_array(first.id)
        FROM (
            SELECT x.id
            FROM x_jobs AS x
            WHERE x.state IN ('delayed', 'suspended')
                AND x.queue = waiting.queue
                AND x.run_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
            ORDER BY x.run_at
            LIMIT :limit
        ) AS first
    )) AS head
    LIMIT :limit
)
UPDATE x_jobs
SET state = 'ready', park_reason = '', updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE id IN (SELECT id FROM due)
RETURNING id;
