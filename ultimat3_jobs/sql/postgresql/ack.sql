-- Ends jobs whose bodies ended well. Fenced on the claim's token, even past the lease, and answered row by row.
-- The token stays on the row: a commit whose answer was lost is recognised as ours.
-- A row that was asked again ends only where :with_rerun says that its successor is queued in the same transaction.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH given AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, token uuid, result text, progress text)
),
settled AS MATERIALIZED (
    SELECT j.id, r.result, r.progress
    FROM given AS r
    JOIN x_jobs AS j ON j.id = r.id AND j.id = ANY (ARRAY(SELECT id FROM given))
    WHERE j.claim_token = r.token
        AND j.state || '' = 'running'
        AND (j.rerun IS NULL OR :with_rerun)
    ORDER BY j.id
    FOR UPDATE OF j
)
UPDATE x_jobs AS j
SET state = 'done',
    (result, progress) = (
        SELECT settled.result::jsonb, coalesce(settled.progress::jsonb, j.progress) FROM settled WHERE settled.id = j.id
    ),
    last_error = '',
    parks = 0,
    park_reason = '',
    visible_at = NULL,
    finished_at = statement_timestamp(),
    updated_at = statement_timestamp()
WHERE j.id = ANY (ARRAY(SELECT id FROM settled))
RETURNING j.id, j.claim_token, j.rerun;
