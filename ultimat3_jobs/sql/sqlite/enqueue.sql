-- Queues jobs. A row whose key is held in its namespace is left out, and out of what comes back.
INSERT INTO x_jobs (
    id, run_id, name, queue, input, fingerprint, idempotency_key, key_until, tenant_id, priority,
    enqueued_by, traceparent, state, max_attempts, run_at, created_at, updated_at
)
SELECT
    t.id, t.id, t.name, t.queue, t.input, t.fingerprint, t.idempotency_key,
    strftime('%Y-%m-%d %H:%M:%f', t.requested_at, t.dedupe_for || ' seconds') || '000',
    t.tenant_id, t.priority, t.enqueued_by, t.traceparent,
    CASE WHEN t.due_at <= t.now THEN 'ready' ELSE 'delayed' END,
    t.max_attempts, t.due_at, t.requested_at, t.now
FROM (
    SELECT
        json_extract(r.value, '$.id') AS id,
        json_extract(r.value, '$.name') AS name,
        json_extract(r.value, '$.queue') AS queue,
        json_extract(r.value, '$.input') AS input,
        json_extract(r.value, '$.fingerprint') AS fingerprint,
        json_extract(r.value, '$.idempotency_key') AS idempotency_key,
        json_extract(r.value, '$.tenant_id') AS tenant_id,
        json_extract(r.value, '$.priority') AS priority,
        json_extract(r.value, '$.enqueued_by') AS enqueued_by,
        json_extract(r.value, '$.traceparent') AS traceparent,
        json_extract(r.value, '$.max_attempts') AS max_attempts,
        json_extract(r.value, '$.dedupe_for') AS dedupe_for,
        strftime('%Y-%m-%d %H:%M:%f', 'now') || '000' AS now,
        coalesce(
            json_extract(r.value, '$.requested_at'), strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
        ) AS requested_at,
        coalesce(
            json_extract(r.value, '$.run_at'),
            strftime('%Y-%m-%d %H:%M:%f', 'now', json_extract(r.value, '$.delay') || ' seconds') || '000'
        ) AS due_at
    FROM json_each(:rows) AS r
) AS t
WHERE true
ON CONFLICT (name, COALESCE(tenant_id, ''), idempotency_key)
    WHERE state IN ('ready', 'delayed', 'running', 'suspended') OR key_until IS NOT NULL
    DO NOTHING
RETURNING id;
