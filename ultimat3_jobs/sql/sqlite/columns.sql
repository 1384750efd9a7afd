-- Tells which of some tables are there, with their columns.
SELECT m.name, c.name
FROM json_each(:rows) AS r
JOIN sqlite_master AS m ON m.name = json_extract(r.value, '$.name')
JOIN pragma_table_info(m.name) AS c;
