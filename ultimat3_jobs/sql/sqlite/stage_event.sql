-- Stages events in the publisher's transaction. Nothing here waits or can conflict.
INSERT INTO x_outbox (id, kind, name, input, match, run_at, staged_at, expires_at)
SELECT
    json_extract(r.value, '$.id'), 'event', json_extract(r.value, '$.name'), json_extract(r.value, '$.payload'),
    json_extract(r.value, '$.match'), strftime('%Y-%m-%d %H:%M:%f', 'now') || '000',
    strftime('%Y-%m-%d %H:%M:%f', 'now') || '000',
    strftime('%Y-%m-%d %H:%M:%f', 'now', json_extract(r.value, '$.ttl') || ' seconds') || '000'
FROM json_each(:rows) AS r;
