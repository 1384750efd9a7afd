-- Writes a record of a run anew: how far a sweep is. Its fence is count_anew, last in the same transaction.
INSERT INTO x_job_steps AS s (run_id, name, seq, kind, state, attempt, output, started_at, finished_at)
VALUES (
    CAST(:run_id AS uuid), :name, CAST(:seq AS integer), :kind, CAST(:state AS text), CAST(:attempt AS integer),
    CAST(:output AS jsonb), clock_timestamp(), CASE WHEN CAST(:state AS text) = 'done' THEN clock_timestamp() END
)
ON CONFLICT (run_id, name) DO UPDATE
SET state = excluded.state, attempt = excluded.attempt, output = excluded.output, finished_at = excluded.finished_at;
