-- Finds the row that holds each key in its namespace, and before it the row that has the very id of the request: the
-- request was queued before. `expired`: a finished row whose time of holding has passed.
-- `begun`: it may have read the data already. One that sleeps has an attempt less than it has begun, and steps. The
-- subquery has a limit, or the planner might read all steps of all runs into a hash.
SELECT
    r.position, j.id, j.run_id, j.fingerprint,
    j.attempt > 0 OR (SELECT true FROM x_job_steps AS s WHERE s.run_id = j.run_id LIMIT 1) IS NOT NULL AS begun,
    j.state NOT IN ('ready', 'delayed', 'running', 'suspended') AS finished,
    j.state NOT IN ('ready', 'delayed', 'running', 'suspended') AND j.key_until <= statement_timestamp() AS expired
FROM json_to_recordset(CAST(:rows AS json)) AS r (
    position integer, id uuid, name text, tenant_id text, idempotency_key text
)
CROSS JOIN LATERAL (
    -- The limits keep each look-up by its id or key, whatever the statistics say of the table.
    (
        SELECT own.id, own.run_id, own.fingerprint, own.attempt, own.state, own.key_until
        FROM x_jobs AS own
        WHERE own.id = r.id
        LIMIT 1
    )
    UNION ALL
    (
        SELECT x.id, x.run_id, x.fingerprint, x.attempt, x.state, x.key_until
        FROM x_jobs AS x
        WHERE x.name = r.name
            AND COALESCE(x.tenant_id, '') = coalesce(r.tenant_id, '')
            AND x.idempotency_key = r.idempotency_key
            AND (x.state IN ('ready', 'delayed', 'running', 'suspended') OR x.key_until IS NOT NULL)
        LIMIT 1
    )
) AS j;
