-- Queues jobs. A row whose key is held in its namespace is left out, and out of what comes back.
INSERT INTO x_jobs (
    id, run_id, name, queue, input, fingerprint, idempotency_key, key_until, tenant_id, priority,
    enqueued_by, traceparent, state, max_attempts, run_at, created_at, updated_at
)
SELECT
    r.id, r.id, r.name, r.queue, r.input::jsonb, r.fingerprint, r.idempotency_key,
    t.requested_at + make_interval(secs => r.dedupe_for),
    r.tenant_id, r.priority, r.enqueued_by, r.traceparent,
    CASE WHEN t.due_at <= statement_timestamp() THEN 'ready' ELSE 'delayed' END,
    r.max_attempts, t.due_at, t.requested_at, statement_timestamp()
FROM json_to_recordset(CAST(:rows AS json)) AS r (
    position integer, id uuid, name text, queue text, input text, fingerprint text, idempotency_key text, tenant_id text,
    priority smallint, enqueued_by text, traceparent text, max_attempts integer, run_at timestamp,
    delay double precision, dedupe_for double precision, requested_at timestamp
)
CROSS JOIN LATERAL (
    SELECT
        coalesce(r.requested_at AT TIME ZONE 'UTC', statement_timestamp()) AS requested_at,
        coalesce(r.run_at AT TIME ZONE 'UTC', statement_timestamp() + make_interval(secs => r.delay)) AS due_at
) AS t
-- In the order of the keys, so that two batches in two transactions never wait for one another in a ring.
ORDER BY r.position
ON CONFLICT (name, COALESCE(tenant_id, ''), idempotency_key)
    WHERE state IN ('ready', 'delayed', 'running', 'suspended') OR key_until IS NOT NULL
    DO NOTHING
RETURNING id;
