-- Takes at most :limit lapsed jobs from their workers: back in their place in the order, or dead where the attempts are used.
-- Matches the state and the lapse, and takes the token away: the old worker's writes are refused.
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
        WHERE j.state = 'running' AND j.visible_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
        LIMIT :limit
    )
    AND state = 'running'
RETURNING id, name, claimed_by, state, CASE WHEN state = 'dead' THEN rerun END;
