-- Counts a failed try of outbox rows, and sets aside those that have used their tries. A row that is relayed under a
-- lease must be under the claim that says so.
-- Rows are reached by id: `coalesce` hides the column from the planner, which would otherwise read the whole of a
-- partial index that its statistics take for empty.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH given AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, token uuid, tries integer, error text)
)
UPDATE x_outbox AS o
SET attempts = o.attempts + 1,
    error = r.error,
    outcome = CASE WHEN o.attempts + 1 >= r.tries THEN 'set_aside' END,
    claimed_at = NULL,
    claimed_by = '',
    claim_token = NULL
FROM given AS r
WHERE o.id = r.id
    AND o.id = ANY (ARRAY(SELECT id FROM given))
    AND coalesce(o.outcome, '') = ''
    AND (
        r.token IS NULL
        OR (o.claim_token = r.token AND o.claimed_at > statement_timestamp() - make_interval(secs => :lease))
    )
RETURNING o.id, o.outcome;
