-- Pauses a pass, or says anew who does and why: it is paused since the first of them. One that has completed stays as it is.
UPDATE x_backfills
SET paused_at = coalesce(paused_at, strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'), paused_by = :by, pause_reason = :reason
WHERE run_id = :run_id AND outcome = ''
RETURNING run_id;
