-- Makes ready at most :limit delayed and suspended jobs whose time has come.
WITH RECURSIVE queues (queue) AS (
    SELECT min(queue) FROM x_jobs WHERE state IN ('delayed', 'suspended')
    UNION ALL
    SELECT (SELECT min(j.queue) FROM x_jobs AS j WHERE j.state IN ('delayed', 'suspended') AND j.queue > q.queue)
    FROM queues AS q
    WHERE q.queue IS NOT NULL
),
due AS (
    SELECT head.value AS id
    FROM queues
    CROSS JOIN json_each((
        SELECT json_group_array(first.id)
        FROM (
            SELECT x.id
            FROM x_jobs AS x
            WHERE x.state IN ('delayed', 'suspended')
                AND x.queue = queues.queue
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
