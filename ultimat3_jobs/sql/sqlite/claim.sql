-- Takes at most :limit due jobs of the served queues, in the order (priority, run_at, id), each under a token of its own.
WITH RECURSIVE queues (queue) AS (
    SELECT min(queue) FROM x_jobs WHERE state = 'ready'
    UNION ALL
    SELECT (SELECT min(j.queue) FROM x_jobs AS j WHERE j.state = 'ready' AND j.queue > q.queue)
    FROM queues AS q
    WHERE q.queue IS NOT NULL
),
served AS (
    SELECT queue
    FROM queues
    WHERE queue IS NOT NULL
        AND (json_array_length(:only) = 0 OR queue IN (SELECT o.value FROM json_each(:only) AS o))
        AND queue NOT IN (SELECT e.value FROM json_each(:excluded) AS e)
),
chosen AS (
    SELECT j.id
    FROM served
    -- The first rows of each queue, read in the order of the index.
    CROSS JOIN json_each((
        SELECT json_group_array(first.id)
        FROM (
            SELECT x.id
            FROM x_jobs AS x
            WHERE x.state = 'ready' AND x.queue = served.queue
            ORDER BY x.priority DESC, x.run_at, x.id
            LIMIT :limit
        ) AS first
    )) AS head
    CROSS JOIN x_jobs AS j ON j.id = head.value
    ORDER BY j.priority DESC, j.run_at, j.id
    LIMIT :limit
)
UPDATE x_jobs
SET state = 'running',
    attempt = attempt + 1,
    claimed_by = :worker,
    claim_token = lower(hex(randomblob(16))),
    visible_at = strftime('%Y-%m-%d %H:%M:%f', 'now', :lease || ' seconds') || '000',
    started_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000',
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE id IN (SELECT id FROM chosen) AND state = 'ready'
RETURNING
    id, claim_token, run_id, name, queue, input, tenant_id, attempt, max_attempts, parks,
    enqueued_by, traceparent, priority, run_at;
