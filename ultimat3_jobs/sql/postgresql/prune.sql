-- Deletes outbox rows that were published or joined a job more than :keep seconds ago. One that another prunes just now
-- is left to it.
DELETE FROM x_outbox AS o
USING (
    SELECT p.id
    FROM x_outbox AS p
    WHERE p.id = ANY (ARRAY(SELECT r.id FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid)))
        AND p.outcome IN ('published', 'deduped')
        AND p.published_at <= statement_timestamp() - make_interval(secs => :keep)
    ORDER BY p.id
    FOR UPDATE OF p SKIP LOCKED
) AS old
WHERE o.id = old.id
RETURNING o.id;
