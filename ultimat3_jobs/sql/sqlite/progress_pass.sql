-- Writes down in the ledger how far a pass is.
UPDATE x_backfills
SET processed = :processed,
    total = :total,
    batch = :batch,
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE run_id = :run_id;
