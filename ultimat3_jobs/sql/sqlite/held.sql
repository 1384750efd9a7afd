-- Tells which claims still own their row.
SELECT j.id, j.claim_token
FROM json_each(:rows) AS r
CROSS JOIN x_jobs AS j
WHERE j.id = json_extract(r.value, '$.id')
    AND j.claim_token = json_extract(r.value, '$.token')
    AND j.state = 'running';
