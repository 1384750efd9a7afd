-- Lets go of the keys that dead letters need, where finished rows hold them whose time of holding has passed.
-- Rows are reached by id: `|| ''` and `coalesce` hide a column from the planner, which would otherwise read the whole of
-- a partial index that its statistics take for empty.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH held AS MATERIALIZED (
    SELECT h.id
    FROM x_jobs AS j
    CROSS JOIN LATERAL (
        SELECT x.id
        FROM x_jobs AS x
        WHERE x.name = j.name
            AND COALESCE(x.tenant_id, '') = COALESCE(j.tenant_id, '')
            AND x.idempotency_key = j.idempotency_key
            AND (x.state IN ('ready', 'delayed', 'running', 'suspended') OR x.key_until IS NOT NULL)
        LIMIT 1
    ) AS h
    WHERE j.id = ANY (ARRAY(SELECT r.id FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)))
        AND j.state || '' IN ('dead', 'failed')
),
passed AS MATERIALIZED (
    SELECT j.id
    FROM held
    JOIN x_jobs AS j ON j.id = held.id
    WHERE j.state NOT IN ('ready', 'delayed', 'running', 'suspended')
        AND coalesce(j.key_until <= statement_timestamp(), false)
    -- In one order for everyone: two batches never wait for one another in a ring.
    ORDER BY j.id
    FOR UPDATE OF j
)
UPDATE x_jobs AS j
SET key_until = NULL, updated_at = statement_timestamp()
WHERE j.id = ANY (ARRAY(SELECT id FROM passed));
