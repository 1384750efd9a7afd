-- Locks the first :limit rows that wait for the relay, in order. Another relay waits here and then sees what is left:
-- it does not skip, so that it overtakes nothing. Those that wait get their turn even where this one falls silent on its
-- way (stopped, or cut off with its host): the server then ends its session, and with it a move that never was.
SELECT
    id, kind, name, queue, input, fingerprint, idempotency_key, tenant_id, max_attempts, priority,
    to_char(run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), dedupe_for, while_running, on_key_reuse,
    enqueued_by, traceparent, to_char(staged_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), match,
    CAST(extract(epoch FROM expires_at - staged_at) AS double precision)
FROM x_outbox
WHERE outcome IS NULL
    AND (SELECT set_config('idle_in_transaction_session_timeout', '30s', true)) IS NOT NULL
ORDER BY staged_at, id
LIMIT :limit
FOR UPDATE;
