-- Looks at no more than :limit delayed and suspended jobs whose time has come, and makes them ready. One that waits for an
-- event which is not there stays as it is until its wait is over, and is looked at again later. The queue with the longest
-- wait goes first, so that one which always has more than :limit does not hold up the others.
WITH RECURSIVE queues AS (
    -- Each queue with the first time at which something in it is due.
    (
        SELECT queue, run_at
        FROM x_jobs
        WHERE state IN ('delayed', 'suspended')
        ORDER BY queue, run_at
        LIMIT 1
    )
    UNION ALL
    SELECT following.*
    FROM queues AS q
    CROSS JOIN LATERAL (
        SELECT j.queue, j.run_at
        FROM x_jobs AS j
        WHERE j.state IN ('delayed', 'suspended') AND j.queue > q.queue
        ORDER BY j.queue, j.run_at
        LIMIT 1
    ) AS following
),
-- Materialised: the planner may run a subquery with a LIMIT twice, and more rows would be taken than were asked for.
due AS MATERIALIZED (
    SELECT head.*
    FROM (SELECT queue FROM queues WHERE run_at <= statement_timestamp() ORDER BY run_at) AS waiting
    CROSS JOIN LATERAL (
        SELECT j.id, j.run_id, j.created_at, j.wait_event, j.wait_match, j.wait_until
        FROM x_jobs AS j
        WHERE j.state IN ('delayed', 'suspended')
            AND j.queue = waiting.queue
            AND j.run_at <= statement_timestamp()
        ORDER BY j.run_at
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) AS head
    LIMIT :limit
),
looked AS MATERIALIZED (
    -- Whether nothing is left to wait for. In the order of publication: a mere EXISTS may read events from the first on.
    SELECT
        due.id,
        due.wait_event = ''
        OR coalesce(due.wait_until <= statement_timestamp(), false)
        OR (
            due.wait_match = ''
            AND (
                SELECT e.id
                FROM x_job_events AS e
                WHERE e.name = due.wait_event
                    AND e.published_at >= due.created_at
                    AND e.expires_at > statement_timestamp()
                    AND NOT EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = due.run_id AND s.event_id = e.id)
                ORDER BY e.published_at
                LIMIT 1
            ) IS NOT NULL
        )
        OR (
            due.wait_match > ''
            AND (
                SELECT e.id
                FROM x_job_events AS e
                WHERE e.name = due.wait_event
                    AND e.match = due.wait_match
                    AND e.published_at >= due.created_at
                    AND e.expires_at > statement_timestamp()
                    AND NOT EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = due.run_id AND s.event_id = e.id)
                ORDER BY e.published_at
                LIMIT 1
            ) IS NOT NULL
        ) AS is_over
    FROM due
)
UPDATE x_jobs AS j
SET state = CASE WHEN looked.is_over THEN 'ready' ELSE j.state END,
    run_at = CASE
        WHEN looked.is_over THEN j.run_at
        ELSE least(j.wait_until, statement_timestamp() + make_interval(secs => coalesce(j.wait_poll, 60)))
    END,
    park_reason = CASE WHEN looked.is_over THEN '' ELSE j.park_reason END,
    updated_at = statement_timestamp()
FROM looked
-- The array keeps the planner, who cannot know how few these are, from reading all jobs.
WHERE j.id = ANY (ARRAY(SELECT id FROM due)) AND j.id = looked.id
RETURNING j.id, j.state = 'ready';
