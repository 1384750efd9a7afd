-- Has the run of a live pass look at its controls at once, and keeps its job as it is until the transaction ends. What is
-- parked falls due; what runs is marked, so that it does not lie down with what it read before.
UPDATE x_jobs
SET run_at = CASE
        -- A job whose name no code knew has been parked for that, and not by its run: it waits for code that knows it.
        WHEN state = 'suspended' AND (parks = 0 OR :known) THEN min(run_at, strftime('%Y-%m-%d %H:%M:%f', 'now') || '000')
        ELSE run_at
    END,
    park_reason = CASE WHEN state = 'running' THEN 'its controls were changed' ELSE park_reason END,
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE id = :id AND state IN ('ready', 'delayed', 'running', 'suspended')
RETURNING id;
