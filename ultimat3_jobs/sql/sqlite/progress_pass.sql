-- Writes down in the ledger how far a pass is; with the first page of a run also how far the pass was when that began.
UPDATE x_backfills
SET began_with = CASE
        WHEN updated_at < (SELECT j.started_at FROM x_jobs AS j WHERE j.id = x_backfills.run_id) THEN processed
        ELSE began_with
    END,
    processed = :processed,
    total = :total,
    batch = :batch,
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE run_id = :run_id;
