-- Takes at most :limit lapsed jobs from their workers: back in their place in the order, or dead where the attempts are used.
-- A last attempt whose body had not begun is given back, up to :most_lapses in a row: its worker was ended by another.
-- Matches the state and the lapse again under the lock, and takes the token away: the old worker's writes are refused.
-- :seen is NULL, or a JSON array of rows that `lapsed` gave: then only those are taken, and not where one was renewed since.
WITH lapsed AS MATERIALIZED (
    SELECT
        j.id,
        CASE
            WHEN j.attempt < j.max_attempts THEN 'again'
            WHEN j.started_at IS NULL AND j.lapses < :most_lapses THEN 'unbegun'
            ELSE 'lost'
        END AS kind
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
    FOR UPDATE OF j SKIP LOCKED
)
UPDATE x_jobs AS j
SET state = CASE lapsed.kind WHEN 'lost' THEN 'dead' ELSE 'ready' END,
    attempt = CASE lapsed.kind WHEN 'unbegun' THEN j.attempt - 1 ELSE j.attempt END,
    stop = CASE lapsed.kind WHEN 'lost' THEN 'worker-lost' ELSE '' END,
    key_until = CASE lapsed.kind WHEN 'lost' THEN NULL ELSE j.key_until END,
    finished_at = CASE lapsed.kind WHEN 'lost' THEN statement_timestamp() END,
    last_error = CASE lapsed.kind WHEN 'again' THEN :lapsed_text WHEN 'unbegun' THEN :unbegun_text ELSE :lost_text END,
    error_class = :error_class,
    error_place = '',
    cause = :cause,
    lapses = j.lapses + 1,
    claim_token = NULL,
    park_reason = '',
    visible_at = NULL,
    updated_at = statement_timestamp()
FROM lapsed
WHERE j.id = lapsed.id
RETURNING j.id, j.name, j.claimed_by, j.state, CASE WHEN j.state = 'dead' THEN j.rerun END;
