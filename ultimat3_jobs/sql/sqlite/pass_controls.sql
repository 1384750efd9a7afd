-- Reads the controls of a pass, the time by which its window is judged, and when it last told of a page.
SELECT
    rate, CAST(window_start AS text), CAST(window_end AS text), paused_at IS NOT NULL, paused_by,
    strftime('%Y-%m-%d %H:%M:%f', 'now') || '000', updated_at
FROM x_backfills
WHERE run_id = :run_id;
