-- Stores events in the order of the batch. One that is stored already stays as it is.
-- An event counts for a run that was enqueued before it. Both may carry times of the outbox's clock, which may be ahead.
INSERT INTO x_job_events (staged_id, name, match, payload, published_at, expires_at)
SELECT
    t.id, t.name, t.match, t.payload, t.published_at,
    strftime('%Y-%m-%d %H:%M:%f', t.published_at, t.ttl || ' seconds') || '000'
FROM (
    SELECT
        r.key AS position,
        json_extract(r.value, '$.id') AS id,
        json_extract(r.value, '$.name') AS name,
        json_extract(r.value, '$.match') AS match,
        json_extract(r.value, '$.payload') AS payload,
        json_extract(r.value, '$.ttl') AS ttl,
        max(
            strftime('%Y-%m-%d %H:%M:%f', 'now') || '000', coalesce(json_extract(r.value, '$.requested_at'), '')
        ) AS published_at
    FROM json_each(:rows) AS r
) AS t
WHERE true
ORDER BY t.position
ON CONFLICT (staged_id) DO NOTHING;
