-- Changes the pages a second of a pass where :rate is given, and its hours where :with_window says so: NULL is always.
UPDATE x_backfills AS b
SET rate = coalesce(CAST(:rate AS double precision), b.rate),
    window_start = CASE WHEN CAST(:with_window AS boolean) THEN CAST(:window_start AS time) ELSE b.window_start END,
    window_end = CASE WHEN CAST(:with_window AS boolean) THEN CAST(:window_end AS time) ELSE b.window_end END
WHERE b.run_id = CAST(:run_id AS uuid) AND b.outcome = ''
RETURNING b.run_id;
