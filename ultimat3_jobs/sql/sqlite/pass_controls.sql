-- Reads the controls of a pass, and the time by which its window is judged.
SELECT
    rate, CAST(window_start AS text), CAST(window_end AS text), paused_at IS NOT NULL, paused_by, strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
FROM x_backfills
WHERE run_id = :run_id;
