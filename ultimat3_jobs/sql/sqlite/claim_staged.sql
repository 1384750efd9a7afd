-- Claims the first :limit rows that wait for a relay which publishes to another database, in order and under a lease.
-- Claims nothing where another relay's claim on one of them holds: nothing is overtaken. A relay that comes again has
-- ended its earlier claim.
WITH first AS MATERIALIZED (
    SELECT
        o.id,
        o.claim_token IS NOT NULL
            AND o.claimed_by <> :relay
            AND o.claimed_at > strftime('%Y-%m-%d %H:%M:%f', 'now', (-:lease) || ' seconds') || '000' AS held
    FROM x_outbox AS o
    WHERE o.outcome IS NULL
    ORDER BY o.staged_at, o.id
    LIMIT :limit
)
UPDATE x_outbox
SET claimed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000',
    claimed_by = :relay,
    claim_token = lower(hex(randomblob(16)))
WHERE id IN (SELECT id FROM first) AND NOT EXISTS (SELECT 1 FROM first WHERE held)
RETURNING
    id, claim_token, kind, name, queue, input, fingerprint, idempotency_key, tenant_id, max_attempts, priority, run_at,
    dedupe_for, while_running, on_key_reuse, enqueued_by, traceparent, staged_at, match,
    (julianday(expires_at) - julianday(staged_at)) * 86400;
