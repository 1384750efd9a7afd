-- Writes down in the ledger that a pass has completed: all rows in its bound are handled, and none is left.
UPDATE x_backfills AS b
SET processed = CAST(:processed AS bigint),
    total = CAST(:processed AS bigint),
    estimated = false,
    outcome = 'completed',
    finished_at = statement_timestamp(),
    updated_at = statement_timestamp()
WHERE b.run_id = CAST(:run_id AS uuid);
