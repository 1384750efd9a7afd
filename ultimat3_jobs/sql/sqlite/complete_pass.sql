-- Writes down in the ledger that a pass has completed: all rows in its bound are handled, and none is left.
UPDATE x_backfills
SET processed = :processed,
    total = :processed,
    estimated = false,
    outcome = 'completed',
    finished_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000',
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE run_id = :run_id;
