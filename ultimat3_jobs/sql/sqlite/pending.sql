-- Takes the write lock and the first :limit rows that wait for the relay. Another relay waits for the lock and then sees
-- what is left: it overtakes nothing. A write comes first because a read that becomes a write fails at once.
UPDATE x_outbox
SET attempts = attempts
WHERE id IN (
    SELECT o.id FROM x_outbox AS o WHERE o.outcome IS NULL ORDER BY o.staged_at, o.id LIMIT :limit
)
RETURNING
    id, kind, name, queue, input, fingerprint, idempotency_key, tenant_id, max_attempts, priority, run_at,
    dedupe_for, while_running, on_key_reuse, enqueued_by, traceparent, staged_at, match,
    (julianday(expires_at) - julianday(staged_at)) * 86400;
