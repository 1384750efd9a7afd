-- Writes down in the ledger how far a pass is.
UPDATE x_backfills AS b
SET processed = CAST(:processed AS bigint),
    total = CAST(:total AS bigint),
    batch = CAST(:batch AS integer),
    updated_at = statement_timestamp()
WHERE b.run_id = CAST(:run_id AS uuid);
