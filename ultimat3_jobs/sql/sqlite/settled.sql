-- Tells which claims have already ended their row: the answer to their commit was lost, the commit was not.
SELECT j.id, j.claim_token
FROM json_each(:rows) AS r
CROSS JOIN x_jobs AS j
WHERE j.id = json_extract(r.value, '$.id')
    AND j.claim_token = json_extract(r.value, '$.token')
    AND j.state NOT IN ('ready', 'delayed', 'running', 'suspended');
