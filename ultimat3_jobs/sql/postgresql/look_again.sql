-- Makes ready those of the given suspended runs whose event is there by now. Called when their suspension is committed:
-- whoever published meanwhile could not see them waiting.
-- Events are looked for in the order of publication: a mere EXISTS may read them from the first on.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH waiting AS MATERIALIZED (
    SELECT j.id
    FROM x_jobs AS j
    WHERE j.id = ANY (ARRAY(SELECT r.id FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)))
        AND j.state || '' = 'suspended'
        AND j.wait_event || '' > ''
        AND (
            (
                j.wait_match = ''
                AND (
                    SELECT e.id
                    FROM x_job_events AS e
                    WHERE e.name = j.wait_event
                        AND e.published_at >= j.created_at
                        AND e.expires_at > statement_timestamp()
                        AND NOT EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = j.run_id AND s.event_id = e.id)
                    ORDER BY e.published_at
                    LIMIT 1
                ) IS NOT NULL
            )
            OR (
                j.wait_match > ''
                AND (
                    SELECT e.id
                    FROM x_job_events AS e
                    WHERE e.name = j.wait_event
                        AND e.match = j.wait_match
                        AND e.published_at >= j.created_at
                        AND e.expires_at > statement_timestamp()
                        AND NOT EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = j.run_id AND s.event_id = e.id)
                    ORDER BY e.published_at
                    LIMIT 1
                ) IS NOT NULL
            )
        )
    ORDER BY j.id
    FOR UPDATE OF j SKIP LOCKED
)
UPDATE x_jobs AS j
SET state = 'ready',
    run_at = least(j.run_at, statement_timestamp()),
    park_reason = '',
    updated_at = statement_timestamp()
WHERE j.id = ANY (ARRAY(SELECT id FROM waiting))
RETURNING j.id;
