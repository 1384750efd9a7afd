-- Tells which claims still own their row.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
SELECT j.id, j.claim_token
FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, token uuid)
JOIN x_jobs AS j ON j.id = r.id
WHERE j.claim_token = r.token AND j.state || '' = 'running';
