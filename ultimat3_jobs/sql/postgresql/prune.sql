-- Deletes outbox rows that were published or joined a job more than :keep seconds ago. One that another prunes just now
-- is left to it.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH old AS MATERIALIZED (
    SELECT p.id
    FROM x_outbox AS p
    WHERE p.id = ANY (ARRAY(SELECT r.id FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)))
        AND p.outcome IN ('published', 'deduped')
        AND p.published_at <= statement_timestamp() - make_interval(secs => :keep)
    ORDER BY p.id
    FOR UPDATE OF p SKIP LOCKED
)
DELETE FROM x_outbox AS o
WHERE o.id = ANY (ARRAY(SELECT id FROM old))
RETURNING o.id;
