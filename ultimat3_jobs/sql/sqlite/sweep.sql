-- Takes at most :limit lapsed jobs from their workers: back in their place in the order, or dead where the attempts are used.
-- A last attempt whose body had not begun is given back, up to :most_lapses in a row: its worker was ended by another.
-- Matches the state and the lapse, and takes the token away: the old worker's writes are refused.
-- :seen is NULL, or a JSON array of rows that `lapsed` gave: then only those are taken, and not where one was renewed since.
UPDATE x_jobs
SET state = CASE lapsed.kind WHEN 'lost' THEN 'dead' ELSE 'ready' END,
    attempt = CASE lapsed.kind WHEN 'unbegun' THEN attempt - 1 ELSE attempt END,
    stop = CASE lapsed.kind WHEN 'lost' THEN 'worker-lost' ELSE '' END,
    key_until = CASE lapsed.kind WHEN 'lost' THEN NULL ELSE key_until END,
    finished_at = CASE lapsed.kind WHEN 'lost' THEN strftime('%Y-%m-%d %H:%M:%f', 'now') || '000' END,
    last_error = CASE lapsed.kind WHEN 'again' THEN :lapsed_text WHEN 'unbegun' THEN :unbegun_text ELSE :lost_text END,
    error_class = :error_class,
    error_place = '',
    cause = :cause,
    lapses = lapses + 1,
    claim_token = NULL,
    park_reason = '',
    visible_at = NULL,
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
FROM (
    SELECT
        j.id AS lapsed_id,
        CASE
            WHEN j.attempt < j.max_attempts THEN 'again'
            WHEN j.started_at IS NULL AND j.lapses < :most_lapses THEN 'unbegun'
            ELSE 'lost'
        END AS kind
    FROM x_jobs AS j
    WHERE j.state = 'running'
        AND j.visible_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
        AND (
            :seen IS NULL
            OR (j.id, j.visible_at) IN (
                SELECT json_extract(s.value, '$.id'), json_extract(s.value, '$.visible_at')
                FROM json_each(:seen) AS s
            )
        )
    LIMIT :limit
) AS lapsed
WHERE id = lapsed.lapsed_id AND state = 'running'
RETURNING id, name, claimed_by, state, CASE WHEN state = 'dead' THEN rerun END;
