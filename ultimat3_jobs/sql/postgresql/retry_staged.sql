-- Gives outbox rows that were set aside back to the relay, their tries anew.
-- Rows are reached by id: `coalesce` hides the column from the planner, which would otherwise read the whole of a
-- partial index that its statistics take for empty.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH aside AS MATERIALIZED (
    SELECT o.id
    FROM x_outbox AS o
    WHERE o.id = ANY (ARRAY(SELECT r.id FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)))
        AND coalesce(o.outcome, '') = 'set_aside'
    -- In one order for everyone: two batches never wait for one another in a ring.
    ORDER BY o.id
    FOR UPDATE OF o
)
UPDATE x_outbox AS o
SET outcome = NULL, job_id = NULL, attempts = 0, error = ''
WHERE o.id = ANY (ARRAY(SELECT id FROM aside))
RETURNING o.id, o.name;
