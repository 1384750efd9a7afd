-- Tells which of these jobs there are, in which states, and under which keys.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
SELECT j.id, j.state, j.name, COALESCE(j.tenant_id, ''), j.idempotency_key
FROM x_jobs AS j
WHERE j.id = ANY (ARRAY(SELECT r.id FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)));
