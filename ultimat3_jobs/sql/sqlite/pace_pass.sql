-- Changes the pages a second of a pass where :rate is given, and its hours where :with_window says so: NULL is always.
UPDATE x_backfills
SET rate = coalesce(:rate, rate),
    window_start = CASE WHEN :with_window THEN :window_start ELSE window_start END,
    window_end = CASE WHEN :with_window THEN :window_end ELSE window_end END
WHERE run_id = :run_id AND outcome = ''
RETURNING run_id;
