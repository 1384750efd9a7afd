-- Tells which claims still own their row, and of which the row was cancelled.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
SELECT j.id, r.token, j.state
FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, token uuid)
JOIN x_jobs AS j ON j.id = r.id
WHERE j.state || '' = 'cancelled' OR (j.claim_token = r.token AND j.state || '' = 'running');
