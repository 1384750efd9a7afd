-- Tells which of some tables are there, where this connection looks for them, with their columns. Asks the catalog alone:
-- who works on a table, and whoever may not read it, is no matter.
SELECT c.relname, a.attname
FROM pg_class AS c
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relname = ANY (ARRAY(SELECT r.name FROM json_to_recordset(CAST(:rows AS json)) AS r (name text)))
    AND pg_table_is_visible(c.oid);
