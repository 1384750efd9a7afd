-- Writes down in the ledger what a pass is about to sweep, and by which code.
UPDATE x_backfills AS b
SET bound = CAST(:bound AS jsonb),
    total = CAST(:total AS bigint),
    processed = 0,
    began_with = 0,
    estimated = CAST(:estimated AS boolean),
    checksum = :checksum,
    release = :release,
    updated_at = statement_timestamp()
WHERE b.run_id = CAST(:run_id AS uuid);
