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
    SELECT j.id
    FROM asked
    CROSS JOIN x_jobs AS j INDEXED BY x_jobs_awaiting
        ON j.state = 'suspended'
        AND j.wait_event > ''
        AND j.wait_event = asked.name
        AND j.wait_match = asked.match
    WHERE EXISTS (
        SELECT 1
        FROM published AS e
        WHERE e.name = j.wait_event
            AND j.wait_match IN ('', e.match)
            AND e.published_at >= j.created_at
            AND NOT EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = j.run_id AND s.event_id = e.id)
    )
    LIMIT :limit
)
RETURNING id;
