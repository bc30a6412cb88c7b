-- One batch of the writer as one statement, which is one round trip and a transaction of its own. It divides by zero, and
-- so changes nothing, where it may not be written as it is: the writer then runs the statements of the batch one by one.
-- All parts see the database as it was before the statement, so no row is changed by two of them. Holders are compared by
-- an expression, so that the server looks runs up by their ids: its index of holders is long until it is vacuumed.
WITH sessions_held AS MATERIALIZED (
    -- A session of a turn that begins cannot be deleted until the end of the transaction.
    SELECT id FROM sessions
    WHERE id IN (SELECT session FROM json_to_recordset($1::json) AS new (session TEXT)) FOR SHARE
), runs_held AS MATERIALIZED (
    -- The runs whose lease the process has, and to which the events are the next ones. A process that takes such a run
    -- over, or cancels it, waits for the end of the transaction.
    SELECT held.id FROM json_to_recordset($2::json) AS append
        (run TEXT, seq BIGINT, holder TEXT, fence BIGINT, is_new BOOLEAN, begin_calls BOOLEAN)
    CROSS JOIN LATERAL (SELECT id FROM runs WHERE id = append.run AND COALESCE(holder, '') = append.holder
        AND fence = append.fence AND (NOT append.begin_calls OR cancel_ms IS NULL) FOR SHARE) AS held
    WHERE NOT append.is_new
    AND append.seq - 1 = (SELECT events.seq FROM events WHERE events.run = append.run AND events.seq = append.seq - 1)
), runs_begun AS (
    INSERT INTO runs (id, owner, agent, origin, session, turn, task, model, began_ms, holder, trace, fence)
    SELECT id, owner, agent, origin, session, turn, task, model, began_ms, holder, trace, fence
    FROM json_to_recordset($1::json) AS new (id TEXT, owner TEXT, agent TEXT, origin TEXT, session TEXT, turn BIGINT,
        task TEXT, model TEXT, began_ms BIGINT, holder TEXT, trace TEXT, fence BIGINT)
    RETURNING id
), asked AS (
    INSERT INTO responses (run, asked)
    SELECT id, asked FROM json_to_recordset($1::json) AS new (id TEXT, asked TEXT) WHERE asked IS NOT NULL
    RETURNING run
), kept AS (
    UPDATE idempotency SET holder = NULL
    FROM json_to_recordset($1::json) AS new (id TEXT, holder TEXT, is_promised BOOLEAN)
    WHERE new.is_promised AND idempotency.run = new.id AND idempotency.holder = new.holder
    RETURNING run
), appended AS (
    INSERT INTO events (run, seq, line)
    SELECT append.run, append.seq + place - 1, line
    FROM json_to_recordset($2::json) AS append (run TEXT, seq BIGINT, lines JSON)
    CROSS JOIN json_array_elements_text(append.lines) WITH ORDINALITY AS listed (line, place)
    RETURNING seq
), named AS (
    -- A text that was deleted meanwhile is not found, and comes with the statements one by one.
    INSERT INTO event_texts (run, seq, text, added)
    SELECT event.run, event.seq, kept.id, event.added
    FROM json_to_recordset($21::json) AS event (run TEXT, seq BIGINT, digest TEXT, added BIGINT)
    CROSS JOIN LATERAL (SELECT id FROM shared_texts WHERE digest = event.digest FOR SHARE) AS kept
    RETURNING seq
), ended AS (
    UPDATE runs SET holder = NULL, ended_ms = done.at_ms, reason = done.reason, steps = done.steps, calls = done.calls,
        tokens = done.tokens
    FROM json_to_recordset($3::json) AS done
        (run TEXT, at_ms BIGINT, reason TEXT, steps BIGINT, calls BIGINT, tokens BIGINT)
    WHERE runs.id = done.run
    RETURNING runs.id
), released AS (
    UPDATE runs SET holder = NULL FROM json_to_recordset($4::json) AS given (run TEXT, holder TEXT)
    WHERE runs.id = given.run AND COALESCE(runs.holder, '') = given.holder
    RETURNING runs.id
), waiting AS (
    INSERT INTO approvals (run, within, call, digest, pending, asked_ms)
    SELECT run, within, call, digest, pending, asked_ms FROM json_to_recordset($5::json) AS asked
        (run TEXT, within TEXT, call TEXT, digest TEXT, pending TEXT, asked_ms BIGINT)
    ON CONFLICT (run, within, call) DO UPDATE SET pending = excluded.pending, asked_ms = excluded.asked_ms,
        digest = excluded.digest,
        decision = CASE WHEN approvals.digest = excluded.digest THEN approvals.decision END
    RETURNING call
), settled AS (
    -- All waiting calls of a run that has ended have no name.
    DELETE FROM approvals USING json_to_recordset($6::json) AS over (run TEXT, within TEXT, call TEXT)
    WHERE approvals.run = over.run
    AND (over.call IS NULL OR (approvals.within = over.within AND approvals.call = over.call))
    RETURNING approvals.call
), shown AS MATERIALIZED (
    SELECT reply.run, reply.part FROM json_to_recordset($7::json) AS reply
        (run TEXT, part TEXT, holder TEXT, fence BIGINT)
    CROSS JOIN LATERAL (SELECT id FROM runs WHERE id = reply.run AND COALESCE(holder, '') = reply.holder
        AND fence = reply.fence AND ended_ms IS NULL FOR SHARE) AS held
), parts_set AS (
    INSERT INTO reply_parts (run, part) SELECT run, part FROM shown
    ON CONFLICT (run) DO UPDATE SET part = excluded.part
    RETURNING run
), parts_removed AS (
    DELETE FROM reply_parts WHERE run IN (SELECT json_array_elements_text($8::json)) RETURNING run
), calls_begun AS (
    INSERT INTO open_calls (call, holder, draft)
    SELECT call, holder, draft FROM json_to_recordset($9::json) AS begun (call TEXT, holder TEXT, draft TEXT)
    RETURNING call
), calls_ended AS (
    DELETE FROM open_calls WHERE call IN (SELECT json_array_elements_text($10::json)) RETURNING call
), ready AS MATERIALIZED (
    -- The sums only order the work: the audit log is locked last, as in all other transactions.
    SELECT 1 WHERE (SELECT count(*) FROM sessions_held) = $18
    AND (SELECT count(*) FROM runs_held) = $19
    AND (SELECT count(*) FROM kept) = $20
    AND (SELECT count(*) FROM named) = $22
    AND (SELECT count(*) FROM runs_begun) + (SELECT count(*) FROM asked) + (SELECT count(*) FROM appended)
        + (SELECT count(*) FROM ended) + (SELECT count(*) FROM released) + (SELECT count(*) FROM waiting)
        + (SELECT count(*) FROM settled) + (SELECT count(*) FROM parts_set) + (SELECT count(*) FROM parts_removed)
        + (SELECT count(*) FROM calls_begun) + (SELECT count(*) FROM calls_ended) >= 0
    AND NOT EXISTS (SELECT 1 FROM json_to_recordset($11::json) AS source (run TEXT, seq BIGINT)
        JOIN audit ON audit.run = source.run AND audit.seq = source.seq)
), moved AS (
    UPDATE audit_head SET number = $13, hash = $14 WHERE number = $15 AND hash = $16 AND $13 > $15
    AND EXISTS (SELECT 1 FROM ready)
    RETURNING number
), audited AS (
    INSERT INTO audit (number, at_ms, owner, action, run, seq, tool, entry, hash)
    SELECT number, at_ms, owner, action, run, seq, tool, entry, hash FROM json_to_recordset($11::json) AS added
        (number BIGINT, at_ms BIGINT, owner TEXT, action TEXT, run TEXT, seq BIGINT, tool TEXT, entry TEXT, hash TEXT)
    WHERE EXISTS (SELECT 1 FROM moved)
), salted AS (
    INSERT INTO audit_salts (number, run, salt)
    SELECT salts.number, recorded.id, salts.salt
    FROM json_to_recordset($12::json) AS salts (number BIGINT, run TEXT, salt TEXT)
    CROSS JOIN LATERAL (SELECT id FROM runs WHERE id = salts.run
        UNION ALL SELECT id FROM runs_begun WHERE id = salts.run) AS recorded
    WHERE EXISTS (SELECT 1 FROM moved)
)
SELECT 1 / (SELECT count(*) FROM ready WHERE $13 = $15 OR EXISTS (SELECT 1 FROM moved)),
    -- For this transaction alone.
    set_config('synchronous_commit', CASE WHEN $17 = 1 THEN current_setting('synchronous_commit') ELSE 'off' END, true)
