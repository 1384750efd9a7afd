-- Takes at most :limit lapsed jobs from their workers: back in their place in the order, or dead where the attempts are used.
-- Matches the state and the lapse again under the lock, and takes the token away: the old worker's writes are refused.
-- :seen is NULL, or a JSON array of rows that `lapsed` gave: then only those are taken, and not where one was renewed since.
WITH lapsed AS MATERIALIZED (
    SELECT j.id
    FROM x_jobs AS j
    WHERE j.state = 'running'
        AND j.visible_at <= statement_timestamp()
        AND (
            CAST(:seen AS json) IS NULL
            OR (j.id, j.visible_at) IN (
                SELECT s.id, s.visible_at AT TIME ZONE 'UTC'
                FROM json_to_recordset(CAST(:seen AS json)) AS s (id uuid, visible_at timestamp)
            )
        )
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
UPDATE x_jobs AS j
SET state = CASE WHEN j.attempt < j.max_attempts THEN 'ready' ELSE 'dead' END,
    stop = CASE WHEN j.attempt < j.max_attempts THEN '' ELSE 'worker-lost' END,
    key_until = CASE WHEN j.attempt < j.max_attempts THEN j.key_until END,
    finished_at = CASE WHEN j.attempt < j.max_attempts THEN NULL ELSE statement_timestamp() END,
    last_error = CASE WHEN j.attempt < j.max_attempts THEN :lapsed_text ELSE :lost_text END,
    error_class = :error_class,
    error_place = '',
    cause = :cause,
    lapses = j.lapses + 1,
    claim_token = NULL,
    visible_at = NULL,
    updated_at = statement_timestamp()
FROM lapsed
WHERE j.id = lapsed.id
RETURNING j.id, j.name, j.claimed_by, j.state, CASE WHEN j.state = 'dead' THEN j.rerun END;
