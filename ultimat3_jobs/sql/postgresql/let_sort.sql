-- Says whether the planner may sort, until the transaction ends, and returns what held before.
-- A plan that cannot do without sorts all the same.
SELECT s.before, set_config('enable_sort', :sort, TRUE)
FROM (SELECT current_setting('enable_sort') AS before OFFSET 0) AS s;
