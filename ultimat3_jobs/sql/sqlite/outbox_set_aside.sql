-- Lists the :limit newest outbox rows that could not be published, with ids before :before, for people.
SELECT o.id
FROM x_outbox AS o
WHERE o.outcome = 'set_aside' AND o.name > '' AND o.id < :before
ORDER BY o.id DESC
LIMIT :limit;
