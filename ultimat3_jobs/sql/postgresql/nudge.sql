-- Has the run of a live pass look at its controls at once, and keeps its job as it is until the transaction ends. What is
-- parked falls due; what runs is marked, so that it does not lie down with what it read before.
-- The row is reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
UPDATE x_jobs AS j
SET run_at = CASE
        -- A job whose name no code knew has been parked for that, and not by its run: it waits for code that knows it.
        WHEN j.state || '' = 'suspended' AND (j.parks = 0 OR CAST(:known AS boolean)) THEN least(j.run_at, statement_timestamp())
        ELSE j.run_at
    END,
    park_reason = CASE WHEN j.state || '' = 'running' THEN 'its controls were changed' ELSE j.park_reason END,
    updated_at = statement_timestamp()
WHERE j.id = CAST(:id AS uuid) AND j.state || '' IN ('ready', 'delayed', 'running', 'suspended')
RETURNING j.id;
