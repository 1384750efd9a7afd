-- Makes live rows that have begun remember that they were asked again; the rows that had ended by now stay out.
UPDATE x_jobs
SET rerun = asked.request, updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
FROM (
    SELECT json_extract(r.value, '$.id') AS id, json_extract(r.value, '$.request') AS request
    FROM json_each(:rows) AS r
) AS asked
WHERE x_jobs.id = asked.id AND x_jobs.state IN ('ready', 'delayed', 'running', 'suspended')
RETURNING id;
