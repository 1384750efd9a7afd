-- Lets a paused pass go on. One that is not paused, or has completed, stays as it is.
UPDATE x_backfills AS b
SET paused_at = NULL, paused_by = '', pause_reason = ''
WHERE b.run_id = CAST(:run_id AS uuid) AND b.outcome = '' AND b.paused_at IS NOT NULL
RETURNING b.run_id;
