-- Makes ready at most :limit suspended runs that wait for events which were stored.
WITH published AS MATERIALIZED (
    SELECT e.id, e.name, e.match, e.published_at
    FROM json_each(:rows) AS r
    CROSS JOIN x_job_events AS e ON e.staged_id = json_extract(r.value, '$.id')
    WHERE e.expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
),
asked AS MATERIALIZED (
    -- What a run may ask for to get one of them. A run asks for one thing, and so comes up once.
    SELECT name, match FROM published
    UNION
    SELECT name, '' FROM published
)
UPDATE x_jobs
SET state = 'ready',
    run_at = min(run_at, strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'),
    park_reason = '',
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE id IN (
    SELECT head.value
    FROM asked
    CROSS JOIN json_each((
        SELECT json_group_array(first.id)
        FROM (
            SELECT j.id
            FROM x_jobs AS j
            WHERE j.state = 'suspended'
                AND j.wait_event > ''
                AND j.wait_event = asked.name
                AND j.wait_match = asked.match
                AND EXISTS (
                    SELECT 1
                    FROM published AS p
                    -- The plus keeps SQLite from making an index of these few for each run.
                    WHERE +p.name = j.wait_event
                        AND j.wait_match IN ('', p.match)
                        AND p.published_at >= j.created_at
                        AND NOT EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = j.run_id AND s.event_id = p.id)
                )
            LIMIT :limit
        ) AS first
    )) AS head
    LIMIT :limit
)
RETURNING id;
