-- Looks at no more than :limit delayed and suspended jobs whose time has come, and makes them ready. One that waits for an
-- event which is not there stays as it is until its wait is over, and is looked at again later. The queue with the longest
-- wait goes first, so that one which always has more than :limit does not hold up the others.
-- The plus keeps SQLite from looking for events by their expiry, of which most have none that helps.
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
),
looked AS MATERIALIZED (
    -- Whether nothing is left to wait for.
    SELECT
        x.id,
        x.wait_event = ''
        OR coalesce(x.wait_until <= strftime('%Y-%m-%d %H:%M:%f', 'now') || '000', false)
        OR (
            x.wait_match = ''
            AND EXISTS (
                SELECT 1
                FROM x_job_events AS e
                WHERE e.name = x.wait_event
                    AND e.published_at >= x.created_at
                    AND +e.expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
                    AND NOT EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = x.run_id AND s.event_id = e.id)
            )
        )
        OR (
            x.wait_match > ''
            AND EXISTS (
                SELECT 1
                FROM x_job_events AS e
                WHERE e.name = x.wait_event
                    AND e.match = x.wait_match
                    AND e.published_at >= x.created_at
                    AND +e.expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
                    AND NOT EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = x.run_id AND s.event_id = e.id)
            )
        ) AS is_over
    FROM due
    CROSS JOIN x_jobs AS x ON x.id = due.id
)
UPDATE x_jobs
SET state = CASE WHEN looked.is_over THEN 'ready' ELSE x_jobs.state END,
    run_at = CASE
        WHEN looked.is_over THEN x_jobs.run_at
        ELSE min(
            coalesce(x_jobs.wait_until, '9999'),
            strftime('%Y-%m-%d %H:%M:%f', 'now', coalesce(x_jobs.wait_poll, 60) || ' seconds') || '000'
        )
    END,
    park_reason = CASE WHEN looked.is_over THEN '' ELSE x_jobs.park_reason END,
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
FROM looked
WHERE x_jobs.id = looked.id
RETURNING id, state = 'ready';
