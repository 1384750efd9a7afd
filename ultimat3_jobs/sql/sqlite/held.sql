-- Tells which claims still own their row, and of which the row was cancelled.
SELECT j.id, json_extract(r.value, '$.token'), j.state
FROM json_each(:rows) AS r
CROSS JOIN x_jobs AS j
WHERE j.id = json_extract(r.value, '$.id')
    AND (j.state = 'cancelled' OR (j.claim_token = json_extract(r.value, '$.token') AND j.state = 'running'));
