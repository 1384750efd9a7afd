-- Settles jobs whose bodies did not end well or did not run. Fenced on the claim's token and answered row by row.
UPDATE x_jobs
SET state = CASE settled.kind
        WHEN 'retry' THEN 'delayed'
        WHEN 'bury' THEN CASE WHEN settled.dead_letter THEN 'dead' ELSE 'failed' END
        WHEN 'park' THEN 'suspended'
        WHEN 'suspend' THEN 'suspended'
        WHEN 'hand-back' THEN 'ready'
    END,
    attempt = CASE WHEN settled.kind IN ('park', 'suspend', 'hand-back') THEN x_jobs.attempt - 1 ELSE x_jobs.attempt END,
    run_at = CASE
        WHEN settled.kind IN ('retry', 'park')
            THEN strftime('%Y-%m-%d %H:%M:%f', 'now', settled.delay || ' seconds') || '000'
        -- It was nudged since it began: what it lies down for may hold no longer.
        WHEN settled.kind = 'suspend' AND x_jobs.park_reason > ''
            THEN strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
        -- The first of what it waits for in time: its end, or the next look for its event.
        WHEN settled.kind = 'suspend' THEN CASE
            WHEN settled.until IS NULL
                THEN strftime('%Y-%m-%d %H:%M:%f', 'now', coalesce(settled.poll, settled.delay) || ' seconds') || '000'
            WHEN settled.poll IS NULL THEN settled.until
            ELSE min(
                settled.until, strftime('%Y-%m-%d %H:%M:%f', 'now', settled.poll || ' seconds') || '000'
            )
        END
        ELSE x_jobs.run_at
    END,
    parks = CASE WHEN settled.kind = 'park' THEN x_jobs.parks + 1 WHEN settled.kind = 'hand-back' THEN x_jobs.parks ELSE 0 END,
    -- Whatever ended was not what silenced its worker.
    lapses = CASE WHEN settled.kind = 'hand-back' THEN x_jobs.lapses ELSE 0 END,
    park_reason = settled.park_reason,
    wait_event = coalesce(settled.event, ''),
    wait_match = coalesce(settled.match, ''),
    wait_until = CASE WHEN settled.event > '' THEN settled.until END,
    wait_poll = settled.poll,
    stop = coalesce(settled.stop, ''),
    key_until = CASE WHEN settled.kind = 'bury' THEN NULL ELSE x_jobs.key_until END,
    claim_token = CASE WHEN settled.kind = 'bury' THEN x_jobs.claim_token END,
    visible_at = NULL,
    last_error = coalesce(settled.text, x_jobs.last_error),
    cause = coalesce(settled.cause, x_jobs.cause),
    error_class = coalesce(settled.error_class, x_jobs.error_class),
    error_place = coalesce(settled.error_place, x_jobs.error_place),
    progress = coalesce(settled.progress, x_jobs.progress),
    finished_at = CASE WHEN settled.kind = 'bury' THEN strftime('%Y-%m-%d %H:%M:%f', 'now') || '000' END,
    updated_at = strftime('%Y-%m-%d %H:%M:%f', 'now') || '000'
FROM (
    SELECT
        json_extract(r.value, '$.id') AS id,
        json_extract(r.value, '$.token') AS token,
        json_extract(r.value, '$.kind') AS kind,
        json_extract(r.value, '$.delay') AS delay,
        json_extract(r.value, '$.stop') AS stop,
        json_extract(r.value, '$.dead_letter') AS dead_letter,
        json_extract(r.value, '$.park_reason') AS park_reason,
        json_extract(r.value, '$.text') AS text,
        json_extract(r.value, '$.cause') AS cause,
        json_extract(r.value, '$.error_class') AS error_class,
        json_extract(r.value, '$.error_place') AS error_place,
        json_extract(r.value, '$.until') AS until,
        json_extract(r.value, '$.event') AS event,
        json_extract(r.value, '$.match') AS match,
        json_extract(r.value, '$.poll') AS poll,
        json_extract(r.value, '$.progress') AS progress
    FROM json_each(:rows) AS r
) AS settled
WHERE x_jobs.id = settled.id
    AND x_jobs.claim_token = settled.token
    AND x_jobs.state = 'running'
    AND (settled.kind <> 'bury' OR x_jobs.rerun IS NULL OR :with_rerun)
RETURNING id, CASE WHEN state IN ('dead', 'failed') THEN rerun END;
