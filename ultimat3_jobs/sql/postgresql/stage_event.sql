-- Stages events in the publisher's transaction. Nothing here waits or can conflict.
INSERT INTO x_outbox (id, kind, name, input, match, run_at, staged_at, expires_at)
SELECT
    r.id, 'event', r.name, r.payload::jsonb, r.match, t.now, t.now, t.now + make_interval(secs => r.ttl)
FROM json_to_recordset(CAST(:rows AS json)) AS r (id uuid, name text, match text, payload text, ttl double precision)
CROSS JOIN (SELECT clock_timestamp() AS now) AS t;
