-- Tells which claims have already ended their row: the answer to their commit was lost, the commit was not.
SELECT j.id, j.claim_token
FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, token uuid)
JOIN x_jobs AS j ON j.id = r.id
WHERE j.claim_token = r.token
    AND j.state NOT IN ('ready', 'delayed', 'running', 'suspended');
