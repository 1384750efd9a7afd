-- Takes at most :limit due jobs of the served queues, in the order (priority, run_at, id), each under its own token.
-- The queues are merged row by row: only rows that are taken are locked, and beside them one of each queue is read.
-- Of jobs whose earlier worker went silent at most :lapsed are taken, and the rest of those is passed over: one of them
-- may be what ended it.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH RECURSIVE queues AS (
    -- Each queue with its first row.
    (
        SELECT queue, priority, run_at, id, lapses
        FROM x_jobs
        WHERE state = 'ready'
        ORDER BY queue, priority DESC, run_at, id
        LIMIT 1
    )
    UNION ALL
    SELECT following.*
    FROM queues AS q
    CROSS JOIN LATERAL (
        SELECT j.queue, j.priority, j.run_at, j.id, j.lapses
        FROM x_jobs AS j
        WHERE j.state = 'ready' AND j.queue > q.queue
        ORDER BY j.queue, j.priority DESC, j.run_at, j.id
        LIMIT 1
    ) AS following
),
heads AS (
    -- Each step holds, of every served queue, the first row that no step has passed. The next step passes the best.
    -- `suspect`: 1 where the best is of a worker that went silent; `passed`: how many such the steps before have passed.
    -- Once those are enough, the rest of them is skipped where the following row is read: a step costs more.
    SELECT
        row_number() OVER best AS place, first_value(least(lapses, 1)) OVER best AS suspect, 0 AS passed,
        queue, priority, run_at, id, lapses
    FROM queues
    WHERE (CAST(:only AS jsonb) = '[]' OR queue IN (SELECT jsonb_array_elements_text(CAST(:only AS jsonb))))
        AND queue NOT IN (SELECT jsonb_array_elements_text(CAST(:excluded AS jsonb)))
    WINDOW best AS (ORDER BY priority DESC, run_at, id)
    UNION ALL
    SELECT row_number() OVER best, first_value(least(head.lapses, 1)) OVER best, h.passed + h.suspect, head.*
    FROM heads AS h
    CROSS JOIN LATERAL (
        SELECT h.queue, h.priority, h.run_at, h.id, h.lapses
        WHERE h.place > 1
        UNION ALL
        (
            SELECT j.queue, j.priority, j.run_at, j.id, j.lapses
            FROM x_jobs AS j
            WHERE h.place = 1
                AND j.state = 'ready'
                AND j.queue = h.queue
                AND j.priority = h.priority
                AND (j.run_at, j.id) > (h.run_at, h.id)
                AND (j.lapses = 0 OR h.passed + h.suspect < :lapsed)
            ORDER BY j.run_at, j.id
            LIMIT 1
        )
        UNION ALL
        (
            SELECT j.queue, j.priority, j.run_at, j.id, j.lapses
            FROM x_jobs AS j
            WHERE h.place = 1
                AND j.state = 'ready'
                AND j.queue = h.queue
                AND j.priority < h.priority
                AND (j.lapses = 0 OR h.passed + h.suspect < :lapsed)
            ORDER BY j.priority DESC, j.run_at, j.id
            LIMIT 1
        )
        LIMIT 1
    ) AS head
    WINDOW best AS (ORDER BY head.priority DESC, head.run_at, head.id)
),
-- Steps are made as this asks for them, until :limit rows are locked. Materialised: the planner may run a subquery with
-- a LIMIT twice, and more rows would be taken than were asked for.
chosen AS MATERIALIZED (
    SELECT mine.id
    FROM heads
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM x_jobs AS j
        WHERE j.state = 'ready'
            AND j.queue = heads.queue
            AND j.priority = heads.priority
            AND j.run_at = heads.run_at
            AND j.id = heads.id
        FOR UPDATE SKIP LOCKED
    ) AS mine
    WHERE heads.place = 1
        AND (heads.lapses = 0 OR heads.passed < :lapsed)
    LIMIT :limit
)
UPDATE x_jobs AS j
SET state = 'running',
    attempt = j.attempt + 1,
    claimed_by = :worker,
    claim_token = gen_random_uuid(),
    visible_at = statement_timestamp() + make_interval(secs => :lease),
    -- A last attempt is marked as begun by its worker: one that lapses without the mark is given back.
    started_at = CASE WHEN j.attempt + 1 < j.max_attempts THEN statement_timestamp() END,
    updated_at = statement_timestamp()
WHERE j.id = ANY (ARRAY(SELECT id FROM chosen))
RETURNING
    j.id, j.claim_token, j.run_id, j.name, j.queue, j.input, j.tenant_id, j.attempt, j.max_attempts, j.parks,
    j.lapses,
    -- A number, which holds every moment that a row can: a timestamp of no year in Python would cost the whole batch.
    j.enqueued_by, j.traceparent, j.priority, extract(epoch FROM j.run_at);
