-- Takes at most :limit due jobs of the served queues, in the order (priority, run_at, id), each under its own token.
-- Of jobs whose earlier worker went silent at most :lapsed are taken, and the rest of those is passed over: one of them
-- may be what ended it.
WITH RECURSIVE queues (queue, priority, run_at, id, lapses) AS (
    -- Each queue with its first row.
    SELECT * FROM (
        SELECT queue, priority, run_at, id, lapses
        FROM x_jobs
        WHERE state = 'ready'
        ORDER BY queue, priority DESC, run_at, id
        LIMIT 1
    )
    UNION ALL
    SELECT following.queue, following.priority, following.run_at, following.id, following.lapses
    FROM queues AS q
    CROSS JOIN x_jobs AS following
    WHERE following.id = (
        SELECT j.id
        FROM x_jobs AS j
        WHERE j.state = 'ready' AND j.queue > q.queue
        ORDER BY j.queue, j.priority DESC, j.run_at, j.id
        LIMIT 1
    )
),
-- The queues are merged row by row: the best row that is at hand is taken and the one behind it in its queue comes to
-- hand. Only rows that are taken are read, and one more of each queue.
-- `suspects`: how many of the rows passed in this queue are of workers that went silent. Once those are enough, the rest
-- of them is skipped where the following row is read: a step costs more.
passed (queue, priority, run_at, id, suspects) AS (
    SELECT queue, priority, run_at, id, lapses > 0
    FROM queues
    WHERE (json_array_length(:only) = 0 OR queue IN (SELECT o.value FROM json_each(:only) AS o))
        AND queue NOT IN (SELECT e.value FROM json_each(:excluded) AS e)
    UNION ALL
    -- The plus signs: between two columns of text SQLite would search the index by run_at alone and read all its equals.
    SELECT behind.queue, behind.priority, behind.run_at, behind.id, c.suspects + (behind.lapses > 0)
    FROM passed AS c
    CROSS JOIN x_jobs AS behind
    WHERE behind.id = coalesce(
        (
            SELECT j.id
            FROM x_jobs AS j
            WHERE j.state = 'ready'
                AND j.queue = c.queue
                AND j.priority = c.priority
                AND (j.run_at, j.id) > (+c.run_at, +c.id)
                AND (j.lapses = 0 OR c.suspects < :lapsed)
            ORDER BY j.run_at, j.id
            LIMIT 1
        ),
        (
            SELECT j.id
            FROM x_jobs AS j
            WHERE j.state = 'ready'
                AND j.queue = c.queue
                AND j.priority < c.priority
                AND (j.lapses = 0 OR c.suspects < :lapsed)
            ORDER BY j.priority DESC, j.run_at, j.id
            LIMIT 1
        )
    )
    ORDER BY 2 DESC, 3, 4
),
-- Rows are passed as this asks for them, until :limit are taken.
chosen (id) AS (
    SELECT id
    FROM (
        SELECT j.id, j.lapses, count(*) FILTER (WHERE j.lapses > 0) OVER (ROWS UNBOUNDED PRECEDING) AS nth
        FROM passed
        CROSS JOIN x_jobs AS j
        WHERE j.id = passed.id
    )
    WHERE lapses = 0 OR nth <= :lapsed
    LIMIT :limit
)
UPDATE x_jobs
SET state = 'running',
    attempt = attempt + 1,
    claimed_by = :worker,
    claim_token = lower(hex(randomblob(16))),
    visible_at = strftime('%Y-%m-%d %H:%M:%f', 'now', :lease || ' seconds') || '000',
    -- A last attempt is marked as begun by its worker: one that lapses without the mark is given back.
    started_at = CASE
        WHEN attempt + 1 < max_attempts THEN strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
    END,
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE id IN (SELECT id FROM chosen) AND state = 'ready'
RETURNING
    id, claim_token, run_id, name, queue, input, tenant_id, attempt, max_attempts, parks,
    lapses,
    enqueued_by, traceparent, priority, run_at;
