-- Tells how far the replicas are behind: there are none here.
SELECT 0, 0, NULL, '';
