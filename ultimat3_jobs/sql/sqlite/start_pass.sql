-- Writes down in the ledger what a pass is about to sweep, and by which code.
UPDATE x_backfills
SET bound = :bound,
    total = :total,
    processed = 0,
    began_with = 0,
    estimated = :estimated,
    checksum = :checksum,
    release = :release,
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE run_id = :run_id;
