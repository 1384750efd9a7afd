-- Lets the attempts of a running job count anew, since it has got on. Fenced on the claim's token.
-- The row is reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
UPDATE x_jobs AS j
SET attempt = 1,
    updated_at = statement_timestamp()
WHERE j.id = CAST(:id AS uuid) AND j.claim_token = CAST(:token AS uuid) AND j.state || '' = 'running'
RETURNING j.id;
