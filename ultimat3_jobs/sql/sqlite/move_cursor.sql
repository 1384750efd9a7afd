-- Writes a record of a run anew: how far a sweep is. Its fence is count_anew, last in the same transaction.
INSERT INTO x_job_steps (run_id, name, seq, kind, state, attempt, output, started_at, finished_at)
VALUES (
    :run_id, :name, :seq, :kind, :state, :attempt, :output,
    strftime('%Y-%m-%d %H:%M:%f', 'now') || '000',
    CASE WHEN :state = 'done' THEN strftime('%Y-%m-%d %H:%M:%f', 'now') || '000' END
)
ON CONFLICT (run_id, name) DO UPDATE
SET state = excluded.state, attempt = excluded.attempt, output = excluded.output, finished_at = excluded.finished_at;
