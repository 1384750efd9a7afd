-- Takes at most :limit lapsed jobs from their workers: back in their place in the order, or dead where the attempts are used.
-- Matches the state and the lapse, and takes the token away: the old worker's writes are refused.
-- :seen is NULL, or a JSON array of rows that `lapsed` gave: then only those are taken, and not where one was renewed since.
UPDATE x_jobs
SET state = CASE WHEN attempt < max_attempts THEN 'ready' ELSE 'dead' END,
    stop = CASE WHEN attempt < max_attempts THEN '' ELSE 'worker-lost' END,
    key_until = CASE WHEN attempt < max_attempts THEN key_until END,
    finished_at = CASE
        WHEN attempt < max_attempts THEN NULL
        ELSE strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
    END,
    last_error = CASE WHEN attempt < max_attempts THEN :lapsed_text ELSE :lost_text END,
    error_class = :error_class,
    error_place = '',
    cause = :cause,
    lapses = lapses + 1,
    claim_token = NULL,
    visible_at = NULL,
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
WHERE id IN (
        SELECT j.id FROM x_jobs AS j
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
    )
    AND state = 'running'
RETURNING id, name, claimed_by, state, CASE WHEN state = 'dead' THEN rerun END;
