-- Lists the first :limit outbox rows that wait for the relay, in its order, for people.
SELECT o.id
FROM x_outbox AS o
WHERE o.outcome IS NULL
ORDER BY o.staged_at, o.id
LIMIT :limit;
