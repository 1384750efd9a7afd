-- Makes live rows that have begun remember that they were asked again; the rows that had ended by now stay out.
-- The follower counts as enqueued now, or when it was staged: an event that comes before it is queued is its as well.
UPDATE x_jobs
SET rerun = json_set(
        asked.request,
        '$.requested_at',
        coalesce(json_extract(asked.request, '$.requested_at'), strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z')
    ),
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
FROM (
    SELECT json_extract(r.value, '$.id') AS id, json_extract(r.value, '$.request') AS request
    FROM json_each(:rows) AS r
) AS asked
WHERE x_jobs.id = asked.id AND x_jobs.state IN ('ready', 'delayed', 'running', 'suspended')
RETURNING id;
