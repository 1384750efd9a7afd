-- Makes live rows that have begun remember that they were asked again; the rows that had ended by now stay out.
-- The follower counts as enqueued now, or when it was staged: an event that comes before it is queued is its as well.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty. In one order for everyone: two batches never wait for one another in a ring.
WITH asked AS MATERIALIZED (
    SELECT j.id, r.request
    FROM (SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS g (id uuid, request text) ORDER BY g.id) AS r
    CROSS JOIN LATERAL (
        SELECT x.id
        FROM x_jobs AS x
        WHERE x.id = r.id AND x.state || '' IN ('ready', 'delayed', 'running', 'suspended')
        LIMIT 1
        FOR UPDATE
    ) AS j
)
UPDATE x_jobs AS j
SET rerun = asked.request::jsonb || jsonb_build_object(
        'requested_at',
        coalesce(
            asked.request::jsonb ->> 'requested_at',
            to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        )
    ),
    updated_at = statement_timestamp()
FROM asked
WHERE j.id = asked.id
RETURNING j.id;
