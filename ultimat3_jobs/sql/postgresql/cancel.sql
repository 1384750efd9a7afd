-- Stops live jobs for good. Whoever runs one loses its claim, and can write nothing more about it.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH stopped AS MATERIALIZED (
    SELECT j.id
    FROM x_jobs AS j
    WHERE j.id = ANY (ARRAY(SELECT r.id FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)))
        AND j.state || '' IN ('ready', 'delayed', 'running', 'suspended')
    ORDER BY j.id
    FOR UPDATE OF j
)
UPDATE x_jobs AS j
SET state = 'cancelled',
    stop = 'cancelled',
    key_until = NULL,
    rerun = NULL,
    claim_token = NULL,
    visible_at = NULL,
    park_reason = '',
    cancel_requested_at = statement_timestamp(),
    cancel_requested_by = :by,
    cancel_reason = :reason,
    finished_at = statement_timestamp(),
    updated_at = statement_timestamp()
WHERE j.id = ANY (ARRAY(SELECT id FROM stopped))
RETURNING j.id;
