-- Says whether the planner may sort: there is no such switch here.
SELECT :sort, :sort;
