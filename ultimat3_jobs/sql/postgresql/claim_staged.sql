-- Claims the first :limit rows that wait for a relay which publishes to another database, in order and under a lease.
-- Claims nothing where another relay's claim on one of them holds: nothing is overtaken. A relay that comes again has
-- ended its earlier claim.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH first AS MATERIALIZED (
    SELECT
        id,
        claim_token IS NOT NULL
            AND claimed_by <> :relay
            AND claimed_at > statement_timestamp() - make_interval(secs => :lease) AS held
    FROM x_outbox
    WHERE outcome IS NULL
    ORDER BY staged_at, id
    LIMIT :limit
    FOR UPDATE
)
UPDATE x_outbox AS o
SET claimed_at = clock_timestamp(), claimed_by = :relay, claim_token = gen_random_uuid()
WHERE o.id = ANY (ARRAY(SELECT id FROM first)) AND NOT EXISTS (SELECT 1 FROM first WHERE held)
RETURNING
    o.id, o.claim_token, o.kind, o.name, o.queue, o.input, o.fingerprint, o.idempotency_key, o.tenant_id,
    o.max_attempts, o.priority, to_char(o.run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), o.dedupe_for,
    o.while_running, o.on_key_reuse, o.enqueued_by, o.traceparent,
    to_char(o.staged_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), o.match,
    CAST(extract(epoch FROM o.expires_at - o.staged_at) AS double precision);
