-- Stores events in the order of the batch. One that is stored already stays as it is.
-- An event counts for a run that was enqueued before it. Both may carry times of the outbox's clock, which may be ahead.
INSERT INTO x_job_events (staged_id, name, match, payload, published_at, expires_at)
SELECT r.id, r.name, r.match, r.payload::jsonb, t.published_at, t.published_at + make_interval(secs => r.ttl)
FROM json_to_recordset(CAST(:rows AS json)) AS r (
    position integer, id uuid, name text, match text, payload text, ttl double precision, requested_at timestamp
)
CROSS JOIN LATERAL (
    SELECT greatest(statement_timestamp(), r.requested_at AT TIME ZONE 'UTC') AS published_at
) AS t
ORDER BY r.position
ON CONFLICT (staged_id) DO NOTHING;
