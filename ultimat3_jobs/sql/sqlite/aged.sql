-- Looks at :limit outbox rows in the order of their ids behind :after. For each: whether it was published or joined a
-- job more than :keep seconds ago, and whether it was staged since then: those behind it were too.
SELECT
    o.id,
    coalesce(o.outcome IN ('published', 'deduped'), false)
        AND coalesce(o.published_at <= strftime('%Y-%m-%d %H:%M:%f', 'now', (-:keep) || ' seconds') || '000', false),
    o.staged_at > strftime('%Y-%m-%d %H:%M:%f', 'now', (-:keep) || ' seconds') || '000'
FROM x_outbox AS o
WHERE o.id > :after
ORDER BY o.id
LIMIT :limit;
