-- Finds of every name in the ledger the newest pass and the newest that completed, and the passes of :rows.
WITH RECURSIVE names (name) AS (
    -- From name to name in the index: a name may have many passes.
    SELECT (SELECT b.name FROM x_backfills AS b ORDER BY b.name LIMIT 1)
    UNION ALL
    SELECT (SELECT b.name FROM x_backfills AS b WHERE b.name > n.name ORDER BY b.name LIMIT 1)
    FROM names AS n WHERE n.name IS NOT NULL
),
newest AS (
    SELECT one.*
    FROM names AS n
    CROSS JOIN LATERAL (
        SELECT b.run_id, b.name, b.outcome, b.paused_at, b.created_at
        FROM x_backfills AS b WHERE b.name = n.name
        ORDER BY b.created_at DESC, b.run_id DESC LIMIT 1
    ) AS one
    UNION
    SELECT one.*
    FROM names AS n
    CROSS JOIN LATERAL (
        SELECT b.run_id, b.name, b.outcome, b.paused_at, b.created_at
        -- An outcome is blank or "completed". Were it asked for as such, the planner might believe that there is none.
        FROM x_backfills AS b WHERE b.name = n.name AND b.outcome || '' > ''
        ORDER BY b.created_at DESC, b.run_id DESC LIMIT 1
    ) AS one
    UNION
    SELECT one.*
    FROM json_to_recordset(CAST(:rows AS json)) AS r (run_id uuid)
    CROSS JOIN LATERAL (
        -- The limit keeps each look-up by its id.
        SELECT b.run_id, b.name, b.outcome, b.paused_at, b.created_at
        FROM x_backfills AS b WHERE b.run_id = r.run_id LIMIT 1
    ) AS one
)
-- With the states of their jobs, as of one moment: a pass that completes meanwhile has not failed.
SELECT n.run_id, n.name, n.outcome, n.paused_at IS NOT NULL, j.state
FROM newest AS n
LEFT JOIN LATERAL (SELECT x.state FROM x_jobs AS x WHERE x.id = n.run_id LIMIT 1) AS j ON true
ORDER BY n.created_at DESC, n.run_id DESC;
