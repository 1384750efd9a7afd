-- Lets a paused pass go on. One that is not paused, or has completed, stays as it is.
UPDATE x_backfills
SET paused_at = NULL, paused_by = '', pause_reason = ''
WHERE run_id = :run_id AND outcome = '' AND paused_at IS NOT NULL
RETURNING run_id;
