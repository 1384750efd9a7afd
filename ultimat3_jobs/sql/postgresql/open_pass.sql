-- Opens the row of a pass in the ledger, with its controls as they are declared. One that is there stays as it is, but
-- that one which a control opened before the pass began is told its table.
INSERT INTO x_backfills (
    run_id, name, "table", batch, rate, window_start, window_end, environment, requested_by, forced, checksum, release,
    created_at, updated_at
)
VALUES (
    CAST(:run_id AS uuid), :name, :table_name, CAST(:batch AS integer), CAST(:rate AS double precision),
    CAST(:window_start AS time), CAST(:window_end AS time), :environment, :requested_by, CAST(:forced AS boolean),
    :checksum, :release, statement_timestamp(), statement_timestamp()
)
ON CONFLICT (run_id) DO UPDATE SET "table" = excluded."table" WHERE x_backfills."table" = '';
