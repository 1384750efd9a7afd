-- Records a run's wait for an event and gives it the first that it may have. Fenced on the claim's token: no sweep takes
-- the job before the statement's transaction ends. A wait that is over stays as it is.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH given AS MATERIALIZED (
    SELECT *
    FROM json_to_recordset(CAST(:rows AS json)) AS r (
        id uuid, token uuid, event text, match text, name text, seq integer, attempt integer, delay double precision
    )
),
mine AS MATERIALIZED (
    SELECT
        j.run_id, j.created_at, r.event, r.match, r.name, r.seq, r.attempt,
        statement_timestamp() + make_interval(secs => r.delay) AS until
    FROM given AS r
    JOIN x_jobs AS j ON j.id = r.id AND j.id = ANY (ARRAY(SELECT id FROM given))
    WHERE j.claim_token = r.token AND j.state || '' = 'running'
    FOR SHARE OF j
),
first AS MATERIALIZED (
    SELECT found.*
    FROM mine
    CROSS JOIN LATERAL (
        (
            SELECT e.id, e.payload, e.published_at
            FROM x_job_events AS e
            WHERE mine.match = ''
                AND e.name = mine.event
                AND e.published_at >= mine.created_at
                AND e.expires_at > statement_timestamp()
                AND NOT EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = mine.run_id AND s.event_id = e.id)
            ORDER BY e.published_at, e.id
            LIMIT 1
        )
        UNION ALL
        (
            SELECT e.id, e.payload, e.published_at
            FROM x_job_events AS e
            WHERE mine.match > ''
                AND e.name = mine.event
                AND e.match = mine.match
                AND e.published_at >= mine.created_at
                AND e.expires_at > statement_timestamp()
                AND NOT EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = mine.run_id AND s.event_id = e.id)
            ORDER BY e.published_at, e.id
            LIMIT 1
        )
    ) AS found
)
INSERT INTO x_job_steps AS s (
    run_id, name, seq, kind, state, attempt, output, event_id, until, started_at, finished_at
)
SELECT
    mine.run_id, mine.name, mine.seq, 'wait', t.state, mine.attempt,
    CASE
        WHEN first.id IS NOT NULL THEN jsonb_build_object(
            'payload', first.payload,
            'published_at', to_char(first.published_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')
        )
    END,
    first.id, mine.until, statement_timestamp(), CASE WHEN t.state <> 'waiting' THEN statement_timestamp() END
FROM mine
LEFT JOIN first ON true
CROSS JOIN LATERAL (
    SELECT
        CASE
            WHEN first.id IS NOT NULL THEN 'done'
            WHEN mine.until <= statement_timestamp() THEN 'timed-out'
            ELSE 'waiting'
        END AS state
) AS t
ON CONFLICT (run_id, name) DO UPDATE
SET state = CASE
        WHEN s.state <> 'waiting' THEN s.state
        WHEN excluded.event_id IS NOT NULL THEN 'done'
        WHEN s.until <= statement_timestamp() THEN 'timed-out'
        ELSE 'waiting'
    END,
    attempt = CASE WHEN s.state = 'waiting' THEN excluded.attempt ELSE s.attempt END,
    output = CASE WHEN s.state = 'waiting' THEN excluded.output ELSE s.output END,
    event_id = CASE WHEN s.state = 'waiting' THEN excluded.event_id ELSE s.event_id END,
    finished_at = CASE
        WHEN s.state = 'waiting' AND (excluded.event_id IS NOT NULL OR s.until <= statement_timestamp())
            THEN statement_timestamp()
        ELSE s.finished_at
    END
RETURNING s.state, s.output::text, to_char(s.until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US');
