-- Opens the row of a pass in the ledger, with its controls as they are declared. One that is there stays as it is, but
-- that one which a control opened before the pass began is told its table.
INSERT INTO x_backfills (
    run_id, name, "table", batch, rate, window_start, window_end, environment, requested_by, forced, checksum, release,
    created_at, updated_at
)
VALUES (
    :run_id, :name, :table_name, :batch, :rate, :window_start, :window_end, :environment, :requested_by, :forced,
    :checksum, :release, strftime('%Y-%m-%d %H:%M:%f', 'now') || '000', strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
)
ON CONFLICT (run_id) DO UPDATE SET "table" = excluded."table" WHERE x_backfills."table" = '';
