-- Records a step, fenced on the claim's token. What is recorded already stays as it is.
INSERT INTO x_job_steps (run_id, name, seq, kind, state, attempt, output, until, started_at, finished_at)
SELECT
    :run_id, :name, :seq, :kind, :state, :attempt, :output,
    strftime('%Y-%m-%d %H:%M:%f', 'now', :delay || ' seconds') || '000',
    strftime('%Y-%m-%d %H:%M:%f', 'now', (-:took) || ' seconds') || '000',
    CASE WHEN :state = 'done' THEN strftime('%Y-%m-%d %H:%M:%f', 'now') || '000' END
FROM x_jobs AS j
WHERE j.id = :id AND j.claim_token = :token AND j.state = 'running'
ON CONFLICT (run_id, name) DO UPDATE SET seq = x_job_steps.seq
RETURNING
    name, seq, kind, state, output, 0, until, coalesce(until <= strftime('%Y-%m-%d %H:%M:%f', 'now') || '000', 0);
