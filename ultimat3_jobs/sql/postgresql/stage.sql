-- Stages work in the caller's transaction. Nothing here waits on a key or can conflict.
INSERT INTO x_outbox (
    id, kind, name, queue, input, fingerprint, idempotency_key, tenant_id, max_attempts, priority, run_at,
    dedupe_for, while_running, on_key_reuse, enqueued_by, traceparent, staged_at
)
SELECT
    r.id, 'job', r.name, r.queue, r.input::jsonb, r.fingerprint, r.idempotency_key, r.tenant_id, r.max_attempts,
    r.priority,
    coalesce(r.run_at AT TIME ZONE 'UTC', clock_timestamp() + make_interval(secs => r.delay)),
    r.dedupe_for, r.while_running, r.on_key_reuse, r.enqueued_by, r.traceparent, clock_timestamp()
FROM json_to_recordset(CAST(:rows AS json)) AS r (
    id uuid, name text, queue text, input text, fingerprint text, idempotency_key text, tenant_id text,
    max_attempts integer, priority smallint, run_at timestamp, delay double precision,
    dedupe_for double precision, while_running text, on_key_reuse text, enqueued_by text, traceparent text
);
