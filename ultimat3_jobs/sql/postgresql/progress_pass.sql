-- Writes down in the ledger how far a pass is; with the first page of a run also how far the pass was when that began.
UPDATE x_backfills AS b
SET began_with = CASE
        WHEN b.updated_at < (SELECT j.started_at FROM x_jobs AS j WHERE j.id = b.run_id) THEN b.processed
        ELSE b.began_with
    END,
    processed = CAST(:processed AS bigint),
    total = CAST(:total AS bigint),
    batch = CAST(:batch AS integer),
    updated_at = statement_timestamp()
WHERE b.run_id = CAST(:run_id AS uuid);
