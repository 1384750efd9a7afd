-- Pauses a pass, or says anew who does and why: it is paused since the first of them. One that has completed stays as it is.
UPDATE x_backfills AS b
SET paused_at = coalesce(b.paused_at, statement_timestamp()), paused_by = :by, pause_reason = :reason
WHERE b.run_id = CAST(:run_id AS uuid) AND b.outcome = ''
RETURNING b.run_id;
