-- Finds of every name in the ledger the newest pass and the newest that completed, and the passes of :rows.
WITH RECURSIVE names (name) AS (
    -- From name to name in the index: a name may have many passes.
    SELECT (SELECT b.name FROM x_backfills AS b ORDER BY b.name LIMIT 1)
    UNION ALL
    SELECT (SELECT b.name FROM x_backfills AS b WHERE b.name > n.name ORDER BY b.name LIMIT 1)
    FROM names AS n WHERE n.name IS NOT NULL
),
newest (run_id) AS (
    SELECT (
        SELECT b.run_id FROM x_backfills AS b WHERE b.name = n.name ORDER BY b.created_at DESC, b.run_id DESC LIMIT 1
    )
    FROM names AS n WHERE n.name IS NOT NULL
    UNION
    SELECT (
        SELECT b.run_id FROM x_backfills AS b
        WHERE b.name = n.name AND b.outcome = 'completed'
        ORDER BY b.created_at DESC, b.run_id DESC LIMIT 1
    )
    FROM names AS n WHERE n.name IS NOT NULL
    UNION
    SELECT json_extract(r.value, '$.run_id') FROM json_each(:rows) AS r
)
-- With the states of their jobs, as of one moment: a pass that completes meanwhile has not failed.
SELECT b.run_id, b.name, b.outcome, b.paused_at IS NOT NULL, j.state
FROM newest AS n
CROSS JOIN x_backfills AS b ON b.run_id = n.run_id
LEFT JOIN x_jobs AS j ON j.id = b.run_id
ORDER BY b.created_at DESC, b.run_id DESC;
