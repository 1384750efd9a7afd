-- Lists the :limit newest outbox rows whose ids lie before :before, for people.
SELECT o.id
FROM x_outbox AS o
WHERE o.id < :before
ORDER BY o.id DESC
LIMIT :limit;
