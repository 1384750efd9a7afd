-- Takes at most :limit due jobs of the served queues, in the order (priority, run_at, id), each under a token of its own.
WITH RECURSIVE queues AS (
    (SELECT queue FROM x_jobs WHERE state = 'ready' ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT j.queue FROM x_jobs AS j WHERE j.state = 'ready' AND j.queue > q.queue ORDER BY j.queue LIMIT 1)
    FROM queues AS q
    WHERE q.queue IS NOT NULL
),
served AS (
    SELECT queue
    FROM queues
    WHERE queue IS NOT NULL
        AND (CAST(:only AS jsonb) = '[]' OR queue IN (SELECT jsonb_array_elements_text(CAST(:only AS jsonb))))
        AND queue NOT IN (SELECT jsonb_array_elements_text(CAST(:excluded AS jsonb)))
),
-- Materialised: the planner may run a subquery with a LIMIT twice, and more rows would be taken than were asked for.
chosen AS MATERIALIZED (
    SELECT head.id
    FROM served
    CROSS JOIN LATERAL (
        SELECT j.id, j.priority, j.run_at
        FROM x_jobs AS j
        WHERE j.state = 'ready' AND j.queue = served.queue
        ORDER BY j.priority DESC, j.run_at, j.id
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) AS head
    ORDER BY head.priority DESC, head.run_at, head.id
    LIMIT :limit
)
UPDATE x_jobs AS j
SET state = 'running',
    attempt = j.attempt + 1,
    claimed_by = :worker,
    claim_token = gen_random_uuid(),
    visible_at = statement_timestamp() + make_interval(secs => :lease),
    started_at = statement_timestamp(),
    updated_at = statement_timestamp()
FROM chosen
WHERE j.id = chosen.id AND j.state = 'ready'
RETURNING
    j.id, j.claim_token, j.run_id, j.name, j.queue, j.input, j.tenant_id, j.attempt, j.max_attempts, j.parks,
    j.enqueued_by, j.traceparent, j.priority, j.run_at;
