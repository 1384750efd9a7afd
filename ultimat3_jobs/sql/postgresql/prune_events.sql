-- Deletes at most :limit events that have expired. One that another deletes just now is left to it.
-- Materialised: the planner may run a subquery with a LIMIT twice, and more rows would go than were asked for.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH old AS MATERIALIZED (
    SELECT p.id
    FROM x_job_events AS p
    WHERE p.expires_at <= statement_timestamp()
    ORDER BY p.expires_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
DELETE FROM x_job_events AS e
WHERE e.id = ANY (ARRAY(SELECT id FROM old))
RETURNING e.id;
