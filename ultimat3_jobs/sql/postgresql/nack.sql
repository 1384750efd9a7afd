-- Settles jobs whose bodies did not end well or did not run. Fenced on the claim's token and answered row by row.
-- Rows are reached by id: `|| ''` hides the state from the planner, which would otherwise read the whole of a partial
-- index that its statistics take for empty.
-- The arrays keep the planner, who may believe that there are next to no rows, from reading all for each of the batch.
WITH given AS MATERIALIZED (
    SELECT *
    FROM json_to_recordset(CAST(:rows AS json)) AS r (
        id uuid, token uuid, kind text, delay double precision, stop text, dead_letter boolean, park_reason text,
        text text, cause text, error_class text, error_place text,
        until timestamp, event text, match text, poll double precision, progress text
    )
),
settled AS MATERIALIZED (
    SELECT
        j.id, r.kind, r.delay, r.stop, r.dead_letter, r.park_reason, r.text, r.cause, r.error_class, r.error_place,
        r.until, r.event, r.match, r.poll, r.progress
    FROM given AS r
    JOIN x_jobs AS j ON j.id = r.id AND j.id = ANY (ARRAY(SELECT id FROM given))
    WHERE j.claim_token = r.token
        AND j.state || '' = 'running'
        AND (r.kind <> 'bury' OR j.rerun IS NULL OR :with_rerun)
    ORDER BY j.id
    FOR UPDATE OF j
)
UPDATE x_jobs AS j
SET state = CASE settled.kind
        WHEN 'retry' THEN 'delayed'
        WHEN 'bury' THEN CASE WHEN settled.dead_letter THEN 'dead' ELSE 'failed' END
        WHEN 'park' THEN 'suspended'
        WHEN 'suspend' THEN 'suspended'
        WHEN 'hand-back' THEN 'ready'
    END,
    attempt = CASE WHEN settled.kind IN ('park', 'suspend', 'hand-back') THEN j.attempt - 1 ELSE j.attempt END,
    run_at = CASE
        WHEN settled.kind IN ('retry', 'park') THEN statement_timestamp() + make_interval(secs => settled.delay)
        -- It was nudged since it began: what it lies down for may hold no longer.
        WHEN settled.kind = 'suspend' AND j.park_reason > '' THEN statement_timestamp()
        -- The first of what it waits for in time: its end, or the next look for its event.
        WHEN settled.kind = 'suspend' THEN coalesce(
            least(settled.until AT TIME ZONE 'UTC', statement_timestamp() + make_interval(secs => settled.poll)),
            statement_timestamp() + make_interval(secs => settled.delay)
        )
        ELSE j.run_at
    END,
    parks = CASE WHEN settled.kind = 'park' THEN j.parks + 1 WHEN settled.kind = 'hand-back' THEN j.parks ELSE 0 END,
    -- Whatever ended was not what silenced its worker.
    lapses = CASE WHEN settled.kind = 'hand-back' THEN j.lapses ELSE 0 END,
    park_reason = settled.park_reason,
    wait_event = coalesce(settled.event, ''),
    wait_match = coalesce(settled.match, ''),
    wait_until = CASE WHEN settled.event > '' THEN settled.until AT TIME ZONE 'UTC' END,
    wait_poll = settled.poll,
    stop = coalesce(settled.stop, ''),
    key_until = CASE WHEN settled.kind = 'bury' THEN NULL ELSE j.key_until END,
    claim_token = CASE WHEN settled.kind = 'bury' THEN j.claim_token END,
    visible_at = NULL,
    last_error = coalesce(settled.text, j.last_error),
    cause = coalesce(settled.cause, j.cause),
    error_class = coalesce(settled.error_class, j.error_class),
    error_place = coalesce(settled.error_place, j.error_place),
    progress = coalesce(settled.progress::jsonb, j.progress),
    finished_at = CASE WHEN settled.kind = 'bury' THEN statement_timestamp() END,
    updated_at = statement_timestamp()
FROM settled
WHERE j.id = settled.id
RETURNING j.id, CASE WHEN settled.kind = 'bury' THEN j.rerun END;
