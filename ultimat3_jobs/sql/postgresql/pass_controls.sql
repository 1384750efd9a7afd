-- Reads the controls of a pass, the time by which its window is judged, and when it last told of a page.
SELECT
    b.rate, b.window_start::text, b.window_end::text, b.paused_at IS NOT NULL, b.paused_by,
    to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'),
    to_char(b.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')
FROM x_backfills AS b
WHERE b.run_id = CAST(:run_id AS uuid);
