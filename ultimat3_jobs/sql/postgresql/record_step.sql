-- Records a step, fenced on the claim's token: the lock on the job's row waits for whoever takes the job away, and keeps
-- it from being taken before this transaction ends. What is recorded already stays as it is.
-- The row is reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
WITH mine AS MATERIALIZED (
    SELECT j.id
    FROM x_jobs AS j
    WHERE j.id = CAST(:id AS uuid) AND j.claim_token = CAST(:token AS uuid) AND j.state || '' = 'running'
    FOR SHARE
)
INSERT INTO x_job_steps AS s (run_id, name, seq, kind, state, attempt, output, until, started_at, finished_at)
SELECT
    CAST(:run_id AS uuid), :name, CAST(:seq AS integer), :kind, CAST(:state AS text), CAST(:attempt AS integer),
    CAST(:output AS jsonb),
    clock_timestamp() + make_interval(secs => CAST(:delay AS double precision)),
    clock_timestamp() - make_interval(secs => CAST(:took AS double precision)),
    CASE WHEN CAST(:state AS text) = 'done' THEN clock_timestamp() END
FROM mine
ON CONFLICT (run_id, name) DO UPDATE SET seq = s.seq
RETURNING
    s.name, s.seq, s.kind, s.state, s.output, false,
    to_char(s.until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'),
    coalesce(s.until <= statement_timestamp(), false);
