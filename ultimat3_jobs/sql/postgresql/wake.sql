-- Makes ready at most :limit suspended runs that wait for events which were stored. Never waits for a locked row: whoever
-- has it looks for the event behind its own commit, or at the next look for it.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH published AS MATERIALIZED (
    SELECT e.id, e.name, e.match, e.published_at
    FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)
    JOIN x_job_events AS e ON e.staged_id = r.id
    WHERE e.expires_at > statement_timestamp()
),
asked AS MATERIALIZED (
    -- What a run may ask for to get one of them. A run asks for one thing, and so comes up once.
    SELECT name, match FROM published
    UNION
    SELECT name, '' FROM published
),
-- Materialised: the planner may run a subquery with a LIMIT twice, and more rows would be taken than were asked for.
waiting AS MATERIALIZED (
    SELECT one.id
    FROM asked
    CROSS JOIN LATERAL (
        SELECT j.id
        FROM x_jobs AS j
        WHERE j.state = 'suspended'
            AND j.wait_event > ''
            AND j.wait_event = asked.name
            AND j.wait_match = asked.match
            AND EXISTS (
                SELECT 1
                FROM published AS e
                WHERE e.name = j.wait_event
                    AND j.wait_match IN ('', e.match)
                    AND e.published_at >= j.created_at
                    AND NOT EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = j.run_id AND s.event_id = e.id)
            )
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) AS one
    LIMIT :limit
)
UPDATE x_jobs AS j
SET state = 'ready',
    run_at = least(j.run_at, statement_timestamp()),
    park_reason = '',
    updated_at = statement_timestamp()
WHERE j.id = ANY (ARRAY(SELECT id FROM waiting))
RETURNING j.id;
