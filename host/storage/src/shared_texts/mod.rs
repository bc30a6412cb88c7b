//! Lines of events as the database has them, and the long texts of many lines, each once for all records that have it.
//!
//! The first event of a run has its settings and its tools with their schemas, and so has that of each sub-agent. The first
//! Request has the schema of replies, the instructions and the tools once more. Of some hundred tools they are some hundred
//! thousand bytes, and the same in most runs. So the line of such an event has the digest of the text in its place, and the
//! text is kept in a table of its own. A stored line also lacks the run and the number of its event, which are the key of
//! its row. Who reads a line gets it whole, as it was sealed; so a text that was changed or lost is found by the seal of
//! each event that has it.
//!
//! Runs that write such an event find the text by its digest and lock it until their transaction ends; a text that no event
//! names is deleted when records are. Short texts, and those in records of older versions, are in the lines themselves.

mod line_part;

use crate::column::signed;
use crate::statements::{OpenTransaction, SqlValue};
use line_part::{LinePart, begin_of_body, key, settings_and_tools, with_key, without_key};
use std::fmt::{self, Debug, Formatter};
use std::sync::LazyLock;
use toolhold_policy::Digest;
use toolhold_protocol::bound::BoundTools;
use toolhold_protocol::event::{Event, EventKind};
use toolhold_protocol::knowledge::Retrieval;
use uuid::Uuid;

/// Bytes of the shortest list of tools that is kept apart from the settings: they may differ from run to run, and a long
/// list must not be kept with each of them.
const MIN_TOOLS_BYTES: usize = 4 << 10;
/// Bytes of the shortest other text that is kept beside the lines. A shorter one costs less in each line than a row that
/// names it.
const MIN_TEXT_BYTES: usize = 512;

/// Events with the texts that their lines name: `line`, `digest` and `content` make the whole line ([`whole`]).
pub const EVENTS: &str = "events LEFT JOIN event_texts ON event_texts.run = events.run \
     AND event_texts.seq = events.seq LEFT JOIN shared_texts ON shared_texts.id = event_texts.text";

/// Bytes of an event's whole line, of the tables `events` and `event_texts`. Of a line of an older version, which has its
/// key itself, it is up to 71 bytes more.
pub const BYTES: &str =
    "(OCTET_LENGTH(line) + COALESCE(added, 0) + 52 + LENGTH(CAST(events.seq AS TEXT)))";

/// An event's line as it is stored, and the digest and the text that it names.
pub type StoredLine = (String, Option<String>, Option<String>);

/// The [`StoredLine`] of the run $1 with number $2.
pub static LINE: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT line, digest, content FROM {EVENTS} WHERE events.run = $1 AND events.seq = $2")
});

/// A text that is kept once for all events that have it.
#[derive(Clone)]
pub enum SharedText {
    /// Tools of a run, which have their text and its digest already.
    Tools(BoundTools),
    /// Another part of a line.
    Part(SharedPart),
}

/// A part of a line, with its digest.
#[derive(Clone)]
pub struct SharedPart {
    part: LinePart,
    digest: String,
    text: String,
}

impl SharedText {
    /// A part of a line; `None` if it is short.
    fn of(part: LinePart, text: &str) -> Option<Self> {
        (text.len() >= MIN_TEXT_BYTES).then(|| {
            Self::Part(SharedPart {
                part,
                digest: Digest::of(text.as_bytes()).to_string(),
                text: text.to_owned(),
            })
        })
    }

    /// The SHA-256 of the text, in hex; `None` of tools that cannot be written.
    pub fn digest(&self) -> Option<&str> {
        match self {
            Self::Tools(tools) => tools.digest(),
            Self::Part(part) => Some(&part.digest),
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Tools(tools) => tools.json(),
            Self::Part(part) => Some(&part.text),
        }
    }

    fn part(&self) -> LinePart {
        match self {
            Self::Tools(_) => LinePart::Tools,
            Self::Part(part) => part.part,
        }
    }

    /// True if `short`, a line that names the text, is read as `line`. A schema of a client or of a tool can look like a
    /// name.
    fn makes(&self, short: &str, line: &str) -> bool {
        let (Some(digest), Some(text)) = (self.digest(), self.text()) else {
            return false;
        };
        joined(short, digest, text).as_deref() == Some(line)
    }

    /// Bytes of the text beyond those of its name.
    pub fn added(&self) -> Option<i64> {
        let name = self.part().name(self.digest()?);
        let added = self.text()?.len().saturating_sub(name.len());
        Some(signed(added as u64))
    }
}

/// Without the text, because changes that were not written are logged.
impl Debug for SharedText {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedText")
            .field("part", &self.part())
            .field("digest", &self.digest())
            .finish_non_exhaustive()
    }
}

/// Returns the line of an event as it is stored, and the text that it names by its digest. `line` is the event's JSON text.
pub fn stored(event: &Event, line: String) -> (String, Option<SharedText>) {
    let named = shared(&event.kind, &line).filter(|(short, text)| text.makes(short, &line));
    let (line, text) = match named {
        Some((short, text)) => (short, Some(text)),
        None => (line, None),
    };
    let key = key(event.run, signed(event.seq));
    (without_key(line, &key), text)
}

/// Returns the line of an event as it was sealed.
pub fn whole(run: Uuid, seq: i64, (line, digest, text): StoredLine) -> String {
    let named = digest.as_deref().zip(text.as_deref());
    let exchanged = named.and_then(|(digest, text)| joined(&line, digest, text));
    // A line that names another text than its row says was edited: its seal does not match.
    with_key(exchanged.unwrap_or(line), &key(run, seq))
}

/// Returns a line with the text in the place of its name; `None` if the line does not name it.
fn joined(line: &str, digest: &str, text: &str) -> Option<String> {
    let mut parts = LinePart::ALL.into_iter();
    parts.find_map(|part| part.exchanged(line, &part.name(digest), text))
}

/// Puts the digest of a text that may be that of other events, too, in its place. `None` of a line without such a text.
fn shared(kind: &EventKind, line: &str) -> Option<(String, SharedText)> {
    let text = match kind {
        EventKind::Sub { what, .. } => return shared(what, line),
        EventKind::Run { request, tools, .. } => {
            let list = tools.json()?;
            let bytes = list.len();
            // These stand between settings and tools, and are of this run alone.
            let attached = |it: &Retrieval| it.attached.is_some();
            let is_special = request.plan.is_some()
                || request.carried.is_some()
                || request.retrieval.as_ref().is_some_and(attached);
            if bytes >= MIN_TOOLS_BYTES || (is_special && bytes >= MIN_TEXT_BYTES) {
                SharedText::Tools(tools.clone())
            } else if is_special {
                return None;
            } else {
                let text = settings_and_tools(line, &request.settings, list)?;
                SharedText::of(LinePart::Settings, text)?
            }
        }
        EventKind::Request { .. } => SharedText::of(LinePart::Request, begin_of_body(line)?)?,
        _ => return None,
    };
    let part = text.part();
    let short = part.exchanged(line, text.text()?, &part.name(text.digest()?))?;
    Some((short, text))
}

/// Names a text that is kept, and locks it until the transaction ends. PostgreSQL, SQLite.
const NAME: [&str; 2] = [
    "INSERT INTO event_texts (run, seq, text, added) \
     SELECT CAST($1 AS TEXT), CAST($2 AS BIGINT), kept.id, CAST($4 AS BIGINT) \
     FROM (SELECT id FROM shared_texts WHERE digest = $3 FOR SHARE) AS kept WHERE true \
     ON CONFLICT (run, seq) DO NOTHING",
    "INSERT INTO event_texts (run, seq, text, added) SELECT $1, $2, id, $4 \
     FROM shared_texts WHERE digest = $3 ON CONFLICT (run, seq) DO NOTHING",
];

/// Keeps a text. One that another transaction has added meanwhile is updated, which locks it.
const KEEP: &str = "INSERT INTO shared_texts (digest, content) VALUES ($1, $2) \
     ON CONFLICT (digest) DO UPDATE SET content = excluded.content";

/// Notes that the line of an event names this text, and keeps it unless it is kept already.
pub async fn write(
    transaction: &mut OpenTransaction<'_>,
    run: Uuid,
    seq: i64,
    text: &SharedText,
) -> Result<(), sqlx::Error> {
    let (Some(content), Some(digest), Some(added)) = (text.text(), text.digest(), text.added())
    else {
        return Ok(());
    };
    let values = [SqlValue::from(run), seq.into(), digest.into(), added.into()];
    let name = transaction.choose(NAME);
    if transaction.execute(name, &values).await? > 0 {
        return Ok(());
    }
    transaction
        .execute(KEEP, &[digest.into(), content.into()])
        .await?;
    // None if the row is there from an earlier commit, whose reply was lost.
    transaction.execute(name, &values).await?;
    Ok(())
}

const EXCHANGE: &str = "UPDATE events SET line = $1 WHERE run = $2 AND seq = $3 AND line = $4";
const UNNAME: &str = "DELETE FROM event_texts WHERE run = $1 AND seq = $2";

/// Exchanges the line of an event, if it is still `old`; `new` is of the same event. A text that the new line does not have
/// is deleted if no other event names it. Returns what [`delete_unnamed`] returns; `None` if the line is another one.
pub async fn exchange_line(
    transaction: &mut OpenTransaction<'_>,
    run: Uuid,
    seq: i64,
    old: &str,
    new: &str,
) -> Result<Option<Vec<String>>, sqlx::Error> {
    let row = [run.into(), seq.into()];
    let found: Option<StoredLine> = transaction.row(LINE.as_str(), &row).await?;
    let Some(found) = found else {
        return Ok(None);
    };
    let (line, digest, text) = found.clone();
    if whole(run, seq, found) != old {
        return Ok(None);
    }
    let named = digest.as_deref().zip(text.as_deref());
    let short = named.and_then(|(digest, text)| {
        let mut parts = LinePart::ALL.into_iter();
        let short = parts.find_map(|part| part.exchanged(new, text, &part.name(digest)));
        short.filter(|short| joined(short, digest, text).as_deref() == Some(new))
    });
    let former = digest.filter(|_| short.is_none());
    if former.is_some() {
        transaction.execute(UNNAME, &row).await?;
    }
    let new = short.unwrap_or_else(|| new.to_owned());
    let values = [
        without_key(new, &key(run, seq)).into(),
        run.into(),
        seq.into(),
        line.into(),
    ];
    let is_exchanged = transaction.execute(EXCHANGE, &values).await? > 0;
    let former: Vec<String> = former.into_iter().collect();
    let locked = delete_unnamed(transaction, &former).await?;
    Ok(is_exchanged.then_some(locked))
}

/// At most $2 texts after $1 that no event names.
pub const UNNAMED: &str = "SELECT digest FROM shared_texts WHERE digest > $1 AND NOT EXISTS \
     (SELECT 1 FROM event_texts WHERE event_texts.text = shared_texts.id) ORDER BY digest LIMIT $2";
const OF_RUN: &str = "SELECT DISTINCT digest FROM event_texts JOIN shared_texts ON shared_texts.id = event_texts.text \
     WHERE event_texts.run = $1";
const OF_SESSION: &str = "SELECT DISTINCT digest FROM event_texts JOIN shared_texts ON shared_texts.id = event_texts.text \
     JOIN runs ON runs.id = event_texts.run WHERE runs.session = $1";

/// The lock of a text on PostgreSQL: a run that names it waits. A text that others have locked is left alone: they name it
/// or delete it, and a transaction that waited for them could be in a deadlock with them. PostgreSQL, SQLite.
const LOCK: [&str; 2] = [
    "SELECT digest FROM shared_texts WHERE digest = $1 FOR UPDATE SKIP LOCKED",
    "SELECT digest FROM shared_texts WHERE digest = $1",
];
/// Waits for the lock of a text, in a transaction that has no other locks.
const WAIT: [&str; 2] = [
    "SELECT digest FROM shared_texts WHERE digest = $1 FOR UPDATE",
    LOCK[1],
];
/// Only a statement after the lock sees a run that began before it.
const DELETE: &str = "DELETE FROM shared_texts WHERE digest = $1 AND NOT EXISTS \
     (SELECT 1 FROM event_texts WHERE event_texts.text = shared_texts.id)";

/// Returns the digests of the texts that a run names, which is about to be deleted.
pub async fn of_run(
    transaction: &mut OpenTransaction<'_>,
    run: Uuid,
) -> Result<Vec<String>, sqlx::Error> {
    let rows: Vec<(String,)> = transaction.rows(OF_RUN, &[run.into()]).await?;
    Ok(rows.into_iter().map(|(digest,)| digest).collect())
}

/// Returns the digests of the texts that the turns of a session name, which are about to be deleted.
pub async fn of_session(
    transaction: &mut OpenTransaction<'_>,
    session: Uuid,
) -> Result<Vec<String>, sqlx::Error> {
    let rows: Vec<(String,)> = transaction.rows(OF_SESSION, &[session.into()]).await?;
    Ok(rows.into_iter().map(|(digest,)| digest).collect())
}

/// Deletes those of the texts that no event names. Returns the digests of those that other transactions have locked:
/// [`delete_unlocked`] looks at them again, after the commit.
pub async fn delete_unnamed(
    transaction: &mut OpenTransaction<'_>,
    digests: &[String],
) -> Result<Vec<String>, sqlx::Error> {
    let lock = transaction.choose(LOCK);
    let mut locked = Vec::new();
    for digest in digests {
        let held: Option<(String,)> = transaction.row(lock, &[digest.into()]).await?;
        if held.is_some() {
            transaction.execute(DELETE, &[digest.into()]).await?;
        } else if !transaction.is_file() {
            locked.push(digest.clone());
        }
    }
    Ok(locked)
}

/// Deletes a text that no event names, as soon as no other transaction has locked it. The transaction has no other locks.
pub async fn delete_unlocked(
    transaction: &mut OpenTransaction<'_>,
    digest: &str,
) -> Result<(), sqlx::Error> {
    let wait = transaction.choose(WAIT);
    let held: Option<(String,)> = transaction.row(wait, &[digest.into()]).await?;
    if held.is_some() {
        transaction.execute(DELETE, &[digest.into()]).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{EventScript, asks_with, begin_with, offering};
    use serde_json::{Value, json};

    /// Stores the event, alone and of sub-agents, and checks that its line has the digest of a part of `part` and comes back
    /// as it was. Returns the text of the part.
    fn comes_back(kind: &EventKind, part: LinePart) -> String {
        let nested = EventKind::Sub {
            call: "a".into(),
            what: Box::new(EventKind::Sub {
                call: r#"b","body":{"#.into(),
                what: Box::new(kind.clone()),
            }),
        };
        let mut script = EventScript::new();
        let mut texts = Vec::new();
        for kind in [kind.clone(), nested] {
            let event = script.event(kind);
            let (run, seq) = (event.run, signed(event.seq));
            let full = serde_json::to_string(&event).unwrap();
            let (line, named) = stored(&event, full.clone());
            let named = named.unwrap();
            let (digest, text) = (named.digest().unwrap(), named.text().unwrap());
            assert_eq!(named.part(), part);
            assert_eq!(digest, Digest::of(text.as_bytes()).to_string());
            assert!(full.contains(text) && line.contains(digest));
            assert!(line.len() < full.len() - text.len() / 2);
            assert!(serde_json::from_str::<Value>(&line).is_ok(), "{line}");
            let found = |digest: &str| (line.clone(), Some(digest.into()), Some(text.into()));
            assert_eq!(whole(run, seq, found(digest)), full);
            let added = named.added().unwrap().unsigned_abs();
            let lacking = key(run, seq).len() as u64;
            assert_eq!(line.len() as u64 + added + lacking, full.len() as u64);
            // The line names no text, or another one.
            let lost = whole(run, seq, (line.clone(), None, None));
            assert_eq!(lost, with_key(line.clone(), &key(run, seq)));
            assert_eq!(whole(run, seq, found("another")), lost);
            texts.push(text.to_owned());
        }
        assert_eq!(texts[0], texts[1]);
        texts.swap_remove(0)
    }

    #[test]
    fn a_long_list_of_tools_is_named_by_its_digest() {
        let tools = offering("long", 40);
        let list = tools.json().unwrap();
        let mut begin = begin_with(&tools);
        // Texts that look like what stands around the list.
        if let EventKind::Run { task, host, .. } = &mut begin {
            *task = format!("{list},\"host\":\"");
            *host = r#"1","host":""tools":"#.to_owned();
        }
        assert_eq!(comes_back(&begin, LinePart::Tools), list);
    }

    #[test]
    fn settings_are_named_with_a_short_list_of_tools() {
        let tools = offering("short", 2);
        let begin = begin_with(&tools);
        let text = comes_back(&begin, LinePart::Settings);
        assert!(text.ends_with(tools.json().unwrap()), "{text}");
        let EventKind::Run { request, .. } = &begin else {
            unreachable!("it begins a run");
        };
        let settings = serde_json::to_string(&request.settings).unwrap();
        assert!(text.starts_with(&settings), "{text}");
        // Nothing of the task is in it.
        assert!(!text.contains(&request.id.to_string()), "{text}");
    }

    /// A plan of a run would be kept with its settings, for no other run.
    #[test]
    fn a_run_with_a_plan_names_its_tools_alone() {
        let planned = |tools: usize| {
            let mut begin = begin_with(&offering("some", tools));
            if let EventKind::Run { request, .. } = &mut begin {
                request.plan = Some(vec![json!({"_tool": "some.t0"})]);
            }
            begin
        };
        let text = comes_back(&planned(3), LinePart::Tools);
        assert_eq!(Some(text.as_str()), offering("some", 3).json());
        let event = EventScript::new().event(planned(0));
        let (line, named) = stored(&event, serde_json::to_string(&event).unwrap());
        assert!(named.is_none(), "{line}");
    }

    #[test]
    fn a_request_names_its_body_up_to_the_first_message() {
        let system =
            r#"Say "so", \ and {"body":{"messages":[{"role":"system","content":""#.repeat(20);
        let request = asks_with(&system, &["What is it?"]);
        let text = comes_back(&request, LinePart::Request);
        assert!(text.ends_with("\"},") && !text.contains("What is it"));
        // One that the endpoint gets no instructions with, or a short one, is as it was.
        let mut script = EventScript::new();
        for request in [
            asks_with(&system, &[]),
            asks_with("short", &["What is it?"]),
            EventKind::Request {
                step: 1,
                same: toolhold_protocol::event::SharedWithPrevious::default(),
                body: json!({"messages": [{"role": "user", "content": system}]}),
            },
        ] {
            let event = script.event(request);
            let (line, named) = stored(&event, serde_json::to_string(&event).unwrap());
            assert!(named.is_none(), "{line}");
        }
    }

    #[test]
    fn a_request_that_looks_like_one_with_a_name_is_stored_whole() {
        let system = "Say what you find. ".repeat(60);
        let mut request = asks_with(&system, &["What is it?"]);
        let mut script = EventScript::new();
        let event = script.event(request.clone());
        let (_, named) = stored(&event, serde_json::to_string(&event).unwrap());
        let named = named.unwrap();
        // As a client's schema behind the messages may have it, who knows the text from an export.
        if let EventKind::Request { body, .. } = &mut request {
            body["extra"] = json!({"tools": {"catalogue": named.digest()}, "host": "x"});
        }
        let event = script.event(request);
        let full = serde_json::to_string(&event).unwrap();
        let (line, named) = stored(&event, full.clone());
        assert!(named.is_none(), "{line}");
        let read = whole(event.run, signed(event.seq), (line, None, None));
        assert_eq!(read, full);
    }

    /// A client's schema stands before the settings.
    #[test]
    fn a_schema_that_has_the_settings_is_not_kept_with_them() {
        let mut begin = begin_with(&offering("short", 2));
        if let EventKind::Run { request, .. } = &mut begin {
            request.output_schema = Some(json!({"settings": request.settings}));
        }
        let text = comes_back(&begin, LinePart::Settings);
        assert!(!text.contains("\"settings\":"), "{text}");
    }

    #[test]
    fn a_stored_line_lacks_its_key_alone() {
        let mut script = EventScript::new();
        for _ in 0..12 {
            let event = script.notice();
            let (run, seq) = (event.run, signed(event.seq));
            let full = serde_json::to_string(&event).unwrap();
            let (line, named) = stored(&event, full.clone());
            assert!(named.is_none());
            assert!(!line.contains(&run.to_string()), "{line}");
            assert_eq!(line.len() + 52 + seq.to_string().len(), full.len());
            assert_eq!(whole(run, seq, (line, None, None)), full);
            // As older versions stored it.
            assert_eq!(whole(run, seq, (full.clone(), None, None)), full);
        }
    }
}
