//! The lists of tools with which runs begin, each once for all records that have it.
//!
//! The first event of a run has its tools with their schemas, and so has that of each sub-agent: of some hundred tools they
//! are a hundred thousand bytes, and the same in most runs. So the line of such an event has the digest of the list in its
//! place, and the list is kept in a table of its own. Who reads a line gets it whole, as it was sealed; so a list that was
//! changed or lost is found by the seal of each event that has it.
//!
//! Runs that begin find the list by its digest and lock it until their transaction ends; a list that no event names is
//! deleted when records are. Short lists, and those in records of older versions, are in the lines themselves.

use crate::column::signed;
use crate::statements::{OpenTransaction, SqlValue};
use std::sync::LazyLock;
use toolhold_protocol::bound::BoundTools;
use toolhold_protocol::event::{Event, EventKind};
use uuid::Uuid;

/// Bytes of the shortest list that is kept beside the lines. A shorter one costs less in each line than a row that names it.
const MIN_BYTES: usize = 4 << 10;

/// The text before the tools in an event's line.
const BEFORE: &str = r#""tools":"#;
/// The text behind the tools in an event's line. In a string its quotes would be escaped, so the last one in a line is
/// that of the event.
const BEHIND: &str = r#","host":""#;

/// Events with the lists that their lines name: `line`, `digest` and `tools` make the whole line ([`whole`]).
pub const EVENTS: &str = "events LEFT JOIN event_catalogues ON event_catalogues.run = events.run \
     AND event_catalogues.seq = events.seq \
     LEFT JOIN tool_catalogues ON tool_catalogues.digest = event_catalogues.digest";

/// An event's line as it is stored, and the digest and the text of the list that it names.
pub type StoredLine = (String, Option<String>, Option<String>);

/// The [`StoredLine`] of the run $1 with number $2.
pub static LINE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT line, event_catalogues.digest, tools FROM {EVENTS} WHERE events.run = $1 AND events.seq = $2"
    )
});

/// Returns the line of an event as it is stored, and the tools that it names by their digest.
///
/// # Errors
/// The event cannot be written as JSON.
pub fn stored(event: &Event) -> Result<(String, Option<BoundTools>), serde_json::Error> {
    let line = serde_json::to_string(event)?;
    let short = begun_with(&event.kind).and_then(|tools| {
        let list = tools.json().filter(|list| list.len() >= MIN_BYTES)?;
        let short = exchanged(&line, list, &name_of(tools.digest()?))?;
        Some((short, tools.clone()))
    });
    Ok(match short {
        Some((short, tools)) => (short, Some(tools)),
        None => (line, None),
    })
}

/// Returns the line of an event as it was sealed.
pub fn whole((line, digest, list): StoredLine) -> String {
    let named = digest.as_deref().zip(list.as_deref());
    let whole = named.and_then(|(digest, list)| exchanged(&line, &name_of(digest), list));
    // A line that names another list than its row says was edited: its seal does not match.
    whole.unwrap_or(line)
}

/// The tools that a run, or one inside of it, begins with.
fn begun_with(event: &EventKind) -> Option<&BoundTools> {
    match event {
        EventKind::Run { tools, .. } => Some(tools),
        EventKind::Sub { what, .. } => begun_with(what),
        _ => None,
    }
}

/// The text that stands in a line for a list.
fn name_of(digest: &str) -> String {
    format!(r#"{{"catalogue":"{digest}"}}"#)
}

/// Returns the line of an event that begins a run, with `new` in the place of its tools `old`; `None` if it has others.
fn exchanged(line: &str, old: &str, new: &str) -> Option<String> {
    let (before, behind) = line.split_at_checked(line.rfind(BEHIND)?)?;
    let before = before.strip_suffix(old)?;
    before
        .ends_with(BEFORE)
        .then(|| [before, new, behind].concat())
}

/// Names a list that is kept, and locks it until the transaction ends. PostgreSQL, SQLite.
const NAME: [&str; 2] = [
    "INSERT INTO event_catalogues (run, seq, digest, added) \
     SELECT CAST($1 AS TEXT), CAST($2 AS BIGINT), kept.digest, CAST($4 AS BIGINT) \
     FROM (SELECT digest FROM tool_catalogues WHERE digest = $3 FOR SHARE) AS kept WHERE true \
     ON CONFLICT (run, seq) DO NOTHING",
    "INSERT INTO event_catalogues (run, seq, digest, added) SELECT $1, $2, digest, $4 \
     FROM tool_catalogues WHERE digest = $3 ON CONFLICT (run, seq) DO NOTHING",
];

/// Keeps a list. One that another transaction has added meanwhile is updated, which locks it.
const KEEP: &str = "INSERT INTO tool_catalogues (digest, tools) VALUES ($1, $2) \
     ON CONFLICT (digest) DO UPDATE SET tools = excluded.tools";

/// Returns the digest by which a line names these tools, and the bytes of the tools beyond those of the name; `None` if they
/// cannot be written.
pub fn name(tools: &BoundTools) -> Option<(&str, i64)> {
    let digest = tools.digest()?;
    let added = tools.json()?.len().saturating_sub(name_of(digest).len());
    Some((digest, signed(added as u64)))
}

/// Notes that the line of an event names these tools, and keeps them unless they are kept already.
pub async fn write(
    transaction: &mut OpenTransaction<'_>,
    run: Uuid,
    seq: i64,
    tools: &BoundTools,
) -> Result<(), sqlx::Error> {
    let (Some(list), Some((digest, added))) = (tools.json(), name(tools)) else {
        return Ok(());
    };
    let values = [SqlValue::from(run), seq.into(), digest.into(), added.into()];
    let name = transaction.choose(NAME);
    if transaction.execute(name, &values).await? > 0 {
        return Ok(());
    }
    transaction
        .execute(KEEP, &[digest.into(), list.into()])
        .await?;
    // None if the row is there from an earlier commit, whose reply was lost.
    transaction.execute(name, &values).await?;
    Ok(())
}

const EXCHANGE: &str = "UPDATE events SET line = $1 WHERE run = $2 AND seq = $3 AND line = $4";
const UNNAME: &str = "DELETE FROM event_catalogues WHERE run = $1 AND seq = $2";

/// Exchanges the line of an event, if it is still `old`; `new` is of the same event. Returns whether it was.
pub async fn exchange_line(
    transaction: &mut OpenTransaction<'_>,
    run: Uuid,
    seq: i64,
    old: &str,
    new: &str,
) -> Result<bool, sqlx::Error> {
    let key = [run.into(), seq.into()];
    let found: Option<StoredLine> = transaction.row(LINE.as_str(), &key).await?;
    let Some(found) = found else {
        return Ok(false);
    };
    let (line, digest, list) = found.clone();
    if whole(found) != old {
        return Ok(false);
    }
    let named = digest.as_deref().zip(list.as_deref());
    let short = named.and_then(|(digest, list)| exchanged(new, list, &name_of(digest)));
    if digest.is_some() && short.is_none() {
        transaction.execute(UNNAME, &key).await?;
    }
    let values = [
        short.as_deref().unwrap_or(new).into(),
        run.into(),
        seq.into(),
        line.into(),
    ];
    Ok(transaction.execute(EXCHANGE, &values).await? > 0)
}

/// At most $2 lists after $1 that no event names.
pub const UNNAMED: &str = "SELECT digest FROM tool_catalogues WHERE digest > $1 AND NOT EXISTS \
     (SELECT 1 FROM event_catalogues WHERE event_catalogues.digest = tool_catalogues.digest) ORDER BY digest LIMIT $2";
const OF_RUN: &str = "SELECT DISTINCT digest FROM event_catalogues WHERE run = $1";
const OF_SESSION: &str = "SELECT DISTINCT digest FROM event_catalogues JOIN runs ON runs.id = event_catalogues.run \
     WHERE runs.session = $1";

/// The lock of a list on PostgreSQL: a run that begins with it waits. A list of a run that begins now is locked already, and
/// stays. PostgreSQL, SQLite.
const LOCK: [&str; 2] = [
    "SELECT digest FROM tool_catalogues WHERE digest = $1 FOR UPDATE SKIP LOCKED",
    "SELECT digest FROM tool_catalogues WHERE digest = $1",
];
/// Only a statement after the lock sees a run that began before it.
const DELETE: &str = "DELETE FROM tool_catalogues WHERE digest = $1 AND NOT EXISTS \
     (SELECT 1 FROM event_catalogues WHERE event_catalogues.digest = $1)";

/// Returns the digests of the lists that a run names, which is about to be deleted.
pub async fn of_run(
    transaction: &mut OpenTransaction<'_>,
    run: Uuid,
) -> Result<Vec<String>, sqlx::Error> {
    let rows: Vec<(String,)> = transaction.rows(OF_RUN, &[run.into()]).await?;
    Ok(rows.into_iter().map(|(digest,)| digest).collect())
}

/// Returns the digests of the lists that the turns of a session name, which are about to be deleted.
pub async fn of_session(
    transaction: &mut OpenTransaction<'_>,
    session: Uuid,
) -> Result<Vec<String>, sqlx::Error> {
    let rows: Vec<(String,)> = transaction.rows(OF_SESSION, &[session.into()]).await?;
    Ok(rows.into_iter().map(|(digest,)| digest).collect())
}

/// Deletes those of the lists that no event names.
pub async fn delete_unnamed(
    transaction: &mut OpenTransaction<'_>,
    lists: &[String],
) -> Result<(), sqlx::Error> {
    let lock = transaction.choose(LOCK);
    for digest in lists {
        let held: Option<(String,)> = transaction.row(lock, &[digest.into()]).await?;
        if held.is_some() {
            transaction.execute(DELETE, &[digest.into()]).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{EventScript, begin_with, offering};
    use serde_json::Value;

    #[test]
    fn a_long_list_is_named_by_its_digest_and_comes_back_as_it_was() {
        let tools = offering("long", 40);
        let (list, digest) = (tools.json().unwrap(), tools.digest().unwrap());
        let mut begin = begin_with(&tools);
        // Texts that look like what stands around the list.
        if let EventKind::Run { task, host, .. } = &mut begin {
            *task = format!("{list},\"host\":\"");
            *host = format!(r#"1","host":"{BEFORE}"#);
        }
        let nested = EventKind::Sub {
            call: "a".into(),
            what: Box::new(EventKind::Sub {
                call: "b".into(),
                what: Box::new(begin.clone()),
            }),
        };
        let mut script = EventScript::new();
        for kind in [begin, nested] {
            let event = script.event(kind);
            let full = serde_json::to_string(&event).unwrap();
            let (line, named) = stored(&event).unwrap();
            assert!(named.is_some_and(|named| named.is_same(&tools)));
            assert!(line.contains(digest) && line.len() < full.len() - list.len() / 2);
            assert!(serde_json::from_str::<Value>(&line).is_ok(), "{line}");
            let found = |digest: &str| (line.clone(), Some(digest.into()), Some(list.into()));
            assert_eq!(whole(found(digest)), full);
            // The line names no list, or another one.
            assert_eq!(whole((line.clone(), None, None)), line);
            assert_eq!(whole(found("another")), line);
        }
    }

    #[test]
    fn a_short_list_and_other_events_are_stored_whole() {
        let mut script = EventScript::new();
        let short = script.event(begin_with(&offering("short", 2)));
        for event in [short, script.notice()] {
            let (line, named) = stored(&event).unwrap();
            assert_eq!(line, serde_json::to_string(&event).unwrap());
            assert!(named.is_none());
        }
    }
}
