-- Tells how far the replicas are behind in applying what they were sent: how many there are, of how many that is hidden
-- from this role, the longest in seconds, and the role. A row whose state is null is one that the role may not read;
-- a replica that has caught up and idles has no lag.
SELECT count(*),
       count(*) FILTER (WHERE r.state IS NULL),
       EXTRACT(epoch FROM max(r.replay_lag))::float8,
       quote_ident(current_user)
  FROM pg_stat_replication AS r;
