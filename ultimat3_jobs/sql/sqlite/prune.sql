-- Deletes outbox rows that were published or joined a job more than :keep seconds ago.
DELETE FROM x_outbox
WHERE id IN (SELECT json_extract(r.value, '$.id') FROM json_each(:rows) AS r)
    AND outcome IN ('published', 'deduped')
    AND published_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', (-:keep) || ' seconds') || '000'
RETURNING id;
