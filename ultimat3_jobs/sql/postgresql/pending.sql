-- Locks the first :limit rows that wait for the relay, in order. Another relay waits here and then sees what is left:
-- it does not skip, so that it overtakes nothing.
SELECT
    id, name, queue, input, fingerprint, idempotency_key, tenant_id, max_attempts, priority,
    to_char(run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), dedupe_for, while_running, on_key_reuse,
    enqueued_by, traceparent, to_char(staged_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')
FROM x_outbox
WHERE outcome IS NULL AND kind = 'job'
ORDER BY staged_at, id
LIMIT :limit
FOR UPDATE;
