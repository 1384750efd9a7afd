-- Lets go of the keys of finished rows whose time of holding has passed.
-- Rows are reached by id: `coalesce` hides the column from the planner, which would otherwise read the whole of a
-- partial index that its statistics take for empty.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH passed AS MATERIALIZED (
    SELECT j.id
    FROM x_jobs AS j
    WHERE j.id = ANY (ARRAY(SELECT r.id FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)))
        AND j.state NOT IN ('ready', 'delayed', 'running', 'suspended')
        AND coalesce(j.key_until <= statement_timestamp(), false)
    -- In one order for everyone: two batches never wait for one another in a ring.
    ORDER BY j.id
    FOR UPDATE OF j
)
UPDATE x_jobs AS j
SET key_until = NULL, updated_at = statement_timestamp()
WHERE j.id = ANY (ARRAY(SELECT id FROM passed));
