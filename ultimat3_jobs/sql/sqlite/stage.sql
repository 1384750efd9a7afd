-- Stages work in the caller's transaction. Nothing here waits on a key or can conflict.
INSERT INTO x_outbox (
    id, kind, name, queue, input, fingerprint, idempotency_key, tenant_id, max_attempts, priority, run_at,
    dedupe_for, while_running, on_key_reuse, enqueued_by, traceparent, staged_at
)
SELECT
    json_extract(r.value, '$.id'), 'job', json_extract(r.value, '$.name'), json_extract(r.value, '$.queue'),
    json_extract(r.value, '$.input'), json_extract(r.value, '$.fingerprint'),
    json_extract(r.value, '$.idempotency_key'), json_extract(r.value, '$.tenant_id'),
    json_extract(r.value, '$.max_attempts'), json_extract(r.value, '$.priority'),
    coalesce(
        json_extract(r.value, '$.run_at'),
        strftime('%Y-%m-%d %H:%M:%f', 'now', json_extract(r.value, '$.delay') || ' seconds') || '000'
    ),
    json_extract(r.value, '$.dedupe_for'), json_extract(r.value, '$.while_running'),
    json_extract(r.value, '$.on_key_reuse'), json_extract(r.value, '$.enqueued_by'),
    json_extract(r.value, '$.traceparent'), strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
FROM json_each(:rows) AS r;
