-- Records a run's wait for an event and gives it the first that it may have. Fenced on the claim's token: no sweep takes
-- the job before the statement's transaction ends. A wait that is over stays as it is.
-- The plus keeps SQLite from looking for events by their expiry, of which most have none that helps.
INSERT INTO x_job_steps (
    run_id, name, seq, kind, state, attempt, output, event_id, until, started_at, finished_at
)
WITH mine AS MATERIALIZED (
    SELECT
        j.run_id,
        j.created_at,
        json_extract(r.value, '$.event') AS event,
        json_extract(r.value, '$.match') AS match,
        json_extract(r.value, '$.name') AS name,
        json_extract(r.value, '$.seq') AS seq,
        json_extract(r.value, '$.attempt') AS attempt,
        strftime('%Y-%m-%d %H:%M:%f', 'now', json_extract(r.value, '$.delay') || ' seconds') || '000' AS until,
        strftime('%Y-%m-%d %H:%M:%f', 'now') || '000' AS now
    FROM json_each(:rows) AS r
    CROSS JOIN x_jobs AS j ON j.id = json_extract(r.value, '$.id')
    WHERE j.claim_token = json_extract(r.value, '$.token') AND j.state = 'running'
),
first AS MATERIALIZED (
    SELECT
        m.*,
        coalesce(
            (
                SELECT e.id
                FROM x_job_events AS e
                WHERE m.match = ''
                    AND e.name = m.event
                    AND e.published_at >= m.created_at
                    AND +e.expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
                    AND NOT EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = m.run_id AND s.event_id = e.id)
                ORDER BY e.published_at, e.id
                LIMIT 1
            ),
            (
                SELECT e.id
                FROM x_job_events AS e
                WHERE m.match > ''
                    AND e.name = m.event
                    AND e.match = m.match
                    AND e.published_at >= m.created_at
                    AND +e.expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
                    AND NOT EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = m.run_id AND s.event_id = e.id)
                ORDER BY e.published_at, e.id
                LIMIT 1
            )
        ) AS event_id
    FROM mine AS m
)
SELECT
    f.run_id, f.name, f.seq, 'wait',
    CASE WHEN e.id IS NOT NULL THEN 'done' WHEN f.until <= f.now THEN 'timed-out' ELSE 'waiting' END,
    f.attempt,
    CASE WHEN e.id IS NOT NULL THEN json_object('payload', json(e.payload), 'published_at', e.published_at) END,
    e.id, f.until, f.now,
    CASE WHEN e.id IS NOT NULL OR f.until <= f.now THEN f.now END
FROM first AS f
LEFT JOIN x_job_events AS e ON e.id = f.event_id
WHERE true
ON CONFLICT (run_id, name) DO UPDATE
SET state = CASE
        WHEN x_job_steps.state <> 'waiting' THEN x_job_steps.state
        WHEN excluded.event_id IS NOT NULL THEN 'done'
        WHEN x_job_steps.until <= excluded.started_at THEN 'timed-out'
        ELSE 'waiting'
    END,
    attempt = CASE WHEN x_job_steps.state = 'waiting' THEN excluded.attempt ELSE x_job_steps.attempt END,
    output = CASE WHEN x_job_steps.state = 'waiting' THEN excluded.output ELSE x_job_steps.output END,
    event_id = CASE WHEN x_job_steps.state = 'waiting' THEN excluded.event_id ELSE x_job_steps.event_id END,
    finished_at = CASE
        WHEN x_job_steps.state = 'waiting'
            AND (excluded.event_id IS NOT NULL OR x_job_steps.until <= excluded.started_at)
            THEN excluded.started_at
        ELSE x_job_steps.finished_at
    END
RETURNING state, output, until;
