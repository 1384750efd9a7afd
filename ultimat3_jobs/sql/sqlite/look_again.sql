-- Makes ready those of the given suspended runs whose event is there by now. Called when their suspension is committed:
-- whoever published meanwhile could not see them waiting.
-- The plus keeps SQLite from looking for events by their expiry, of which most have none that helps.
WITH waiting AS MATERIALIZED (
    SELECT j.id
    FROM json_each(:rows) AS r
    CROSS JOIN x_jobs AS j ON j.id = json_extract(r.value, '$.id')
    WHERE +j.state = 'suspended'
        AND +j.wait_event > ''
        AND (
            (
                j.wait_match = ''
                AND EXISTS (
                    SELECT 1
                    FROM x_job_events AS e
                    WHERE e.name = j.wait_event
                        AND e.published_at >= j.created_at
                        AND +e.expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
                        AND NOT EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = j.run_id AND s.event_id = e.id)
                )
            )
            OR (
                j.wait_match > ''
                AND EXISTS (
                    SELECT 1
                    FROM x_job_events AS e
                    WHERE e.name = j.wait_event
                        AND e.match = j.wait_match
                        AND e.published_at >= j.created_at
                        AND +e.expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
                        AND NOT EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = j.run_id AND s.event_id = e.id)
                )
            )
        )
)
UPDATE x_jobs
SET state = 'ready',
    run_at = min(run_at, strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'),
    park_reason = '',
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE id IN (SELECT id FROM waiting)
RETURNING id;
