-- Ends jobs whose bodies ended well. Fenced on the claim's token, even past the lease, and answered row by row.
-- The token stays on the row: a commit whose answer was lost is recognised as ours.
-- A row that was asked again ends only where :with_rerun says that its successor is queued in the same transaction.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
WITH settled AS MATERIALIZED (
    SELECT j.id, r.result, r.progress
    FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, token uuid, result text, progress text)
    JOIN x_jobs AS j ON j.id = r.id
    WHERE j.claim_token = r.token
        AND j.state || '' = 'running'
        AND (j.rerun IS NULL OR :with_rerun)
    ORDER BY j.id
    FOR UPDATE OF j
)
UPDATE x_jobs AS j
SET state = 'done',
    result = settled.result::jsonb,
    progress = coalesce(settled.progress::jsonb, j.progress),
    last_error = '',
    parks = 0,
    park_reason = '',
    visible_at = NULL,
    finished_at = statement_timestamp(),
    updated_at = statement_timestamp()
FROM settled
WHERE j.id = settled.id
RETURNING j.id, j.claim_token, j.rerun;
