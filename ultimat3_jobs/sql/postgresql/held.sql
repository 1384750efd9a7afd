-- Tells which claims still own their row, and of which the row was cancelled.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH given AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, token uuid)
)
SELECT j.id, r.token, j.state
FROM given AS r
JOIN x_jobs AS j ON j.id = r.id AND j.id = ANY (ARRAY(SELECT id FROM given))
WHERE j.state || '' = 'cancelled' OR (j.claim_token = r.token AND j.state || '' = 'running');
