-- Reads the controls of a pass, and the time by which its window is judged.
SELECT
    rate, window_start, window_end, paused_at IS NOT NULL, paused_by, strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
FROM x_backfills
WHERE run_id = :run_id;
