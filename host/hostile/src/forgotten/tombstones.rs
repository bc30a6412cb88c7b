//! Row 64: changed events with a false mark, by which they would lack texts of a deleted document.

use super::{KnowledgeHost, PASSAGE, calls, client, holds, search, task};
use crate::attack::{Attack, Company};
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use serde_json::{Value, json};
use std::fs;
use std::future::ready;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 64,
    name: "forged_tombstones",
    attack: "events are emptied and marked as lacking deleted texts, with rows of the log, marks of other events, before and after a deletion",
    must: "each such record is not genuine, for show and replay; one whose texts were really taken out is",
    company: Company::Others,
    tries: |lab| Box::pin(ready(forged_tombstones(lab))),
}];

/// Part of the result that the forger hides.
const INCONVENIENT: &str = "the money went to the wrong account; ";
/// Times of it in the result. The forged event has room for its mark, and the line is in one page of the database.
const REPEATED: usize = 40;
/// The file with a forged record.
const FORGED: &str = "forged.jsonl";

/// The events of a record, as JSON.
fn events(record: &str) -> Vec<Value> {
    let read = record.lines().map(serde_json::from_str::<Value>);
    read.map(Result::unwrap_or_default).collect()
}

fn written(events: &[Value]) -> String {
    let lines: Vec<String> = events.iter().map(|event| format!("{event}\n")).collect();
    lines.concat()
}

/// The place of the first event that is like that.
fn place(events: &[Value], is_it: impl Fn(&Value) -> bool) -> Result<usize, AttackFailure> {
    let found = events.iter().position(is_it);
    found.ok_or_else(|| AttackFailure::Broke("an event is missing: nothing is proved".into()))
}

/// The place of the inconvenient result.
fn inconvenient(events: &[Value]) -> Result<usize, AttackFailure> {
    place(events, |event| {
        event["event"] == "tool_result" && event.to_string().contains(INCONVENIENT)
    })
}

/// The place of a result from which texts were taken.
fn lacking(events: &[Value]) -> Result<usize, AttackFailure> {
    place(events, |event| {
        event["event"] == "tool_result" && event["removed"].is_object()
    })
}

/// An event without its result, with this mark.
fn emptied(event: &Value, mark: &Value) -> Value {
    let mut emptied = event.clone();
    emptied["output"] = json!("");
    emptied["removed"] = mark.clone();
    emptied
}

/// Records with forged marks. `own`: a record that lacks texts; `other`: one that lacks none.
fn forgeries(own: &str, other: &str) -> Result<Vec<(&'static str, String)>, AttackFailure> {
    let (own, other) = (events(own), events(other));
    let (at, said) = (lacking(&own)?, inconvenient(&own)?);
    let told = inconvenient(&other)?;
    let tombstone = own[at].clone();
    let mark = tombstone["removed"].clone();
    let marked = |entry: i64| {
        let mut mark = mark.clone();
        mark["entry"] = json!(entry);
        mark
    };
    let with = |events: &[Value], at: usize, event: Value| {
        let mut events = events.to_vec();
        events[at] = event;
        written(&events)
    };
    let mut other_texts = tombstone.clone();
    other_texts["output"]["passages"][0]["text"] = json!("another text");
    let mut later = tombstone.clone();
    later["removed"]["at_ms"] = json!(1);
    let mut unmarked = tombstone.clone();
    if let Value::Object(members) = &mut unmarked {
        members.remove("removed");
    }
    let mut moved = tombstone.clone();
    moved["seq"] = own[said]["seq"].clone();
    let mut adopted = tombstone.clone();
    adopted["run"] = other[told]["run"].clone();
    adopted["seq"] = other[told]["seq"].clone();
    Ok(vec![
        (
            "a result with the mark of another event",
            with(&own, said, emptied(&own[said], &mark)),
        ),
        (
            "a result with the row after that one",
            with(
                &own,
                said,
                emptied(&own[said], &marked(mark["entry"].as_i64().unwrap_or(0) + 1)),
            ),
        ),
        (
            "a result with the first row",
            with(&own, said, emptied(&own[said], &marked(1))),
        ),
        (
            "a result with a row that is not there",
            with(&own, said, emptied(&own[said], &marked(i64::MAX))),
        ),
        (
            "a result with a row below the first one",
            with(&own, said, emptied(&own[said], &marked(-1))),
        ),
        (
            "a lacking event with another text",
            with(&own, at, other_texts),
        ),
        ("a lacking event with another time", with(&own, at, later)),
        ("a lacking event without its mark", with(&own, at, unmarked)),
        (
            "a lacking event in the place of a result",
            with(&own, said, tombstone.clone()),
        ),
        ("the same with its number", with(&own, said, moved)),
        (
            "a lacking event of another record",
            with(&other, told, tombstone.clone()),
        ),
        (
            "the same as one of this record",
            with(&other, told, adopted),
        ),
        (
            "a result with the mark of another record",
            with(&other, told, emptied(&other[told], &mark)),
        ),
    ])
}

/// `show` reads the whole record and `replay` reads it, and both say whether it is genuine.
fn ensure_judged(
    host: &KnowledgeHost,
    what: &str,
    record: &str,
    is_genuine: bool,
) -> Result<(), AttackFailure> {
    let shown = host.run(&["show", "--json", record])?;
    let replayed = host.run(&["runs", "replay", record])?;
    ensure(shown.stdout.lines().count() > 3, || {
        format!(
            "{what}: it cannot be read, so nothing is proved: {:.300}",
            shown.stderr
        )
    })?;
    let judged = [shown.code, replayed.code].map(|code| code == Some(0));
    ensure(judged == [is_genuine; 2], || {
        format!(
            "{what}: genuine for show and replay: {judged:?}: {:.300}{:.300}",
            shown.stderr, replayed.stderr
        )
    })
}

/// Exchanges the inconvenient result in the database itself, for one that is emptied and marked. Lines have the same
/// length, so no other byte of the file changes.
fn forge_in_database(host: &KnowledgeHost, run: &str, mark: &Value) -> Result<(), AttackFailure> {
    let record = host.exported(run)?;
    let events = events(&record);
    let at = inconvenient(&events)?;
    // A stored line lacks the run and the number, which are the key of its row.
    let key = format!(r#""run":"{run}","seq":{},"#, events[at]["seq"]);
    let stored = |line: &str| line.replacen(&key, "", 1);
    let line = stored(record.lines().nth(at).unwrap_or_default());
    let line = line.as_bytes();
    let mut forged = stored(&emptied(&events[at], mark).to_string());
    let room = line.len().checked_sub(forged.len());
    let Some(room) = room.filter(|_| forged.pop() == Some('}')) else {
        return Err(AttackFailure::Broke(
            "the forged event has no room: nothing is proved".into(),
        ));
    };
    forged += &" ".repeat(room);
    forged.push('}');
    let path = host.folder.path().join("state/toolhold.db");
    let mut bytes = fs::read(&path)?;
    let found = bytes
        .windows(line.len())
        .position(|part| part == line)
        .ok_or_else(|| {
            AttackFailure::Broke(
                "the event is in no page of the database: nothing is proved".into(),
            )
        })?;
    bytes[found..found + line.len()].copy_from_slice(forged.as_bytes());
    fs::write(&path, bytes)?;
    let read = self::events(&host.exported(run)?);
    ensure(read.get(at) == Some(&emptied(&events[at], mark)), || {
        "the record is another than the one that was forged: nothing is proved".into()
    })
}

fn forged_tombstones(lab: &Lab) -> Result<String, AttackFailure> {
    let host = KnowledgeHost::new(lab, &INCONVENIENT.repeat(REPEATED), "")?;
    let served = host.serve()?;
    let say = || calls("liar.say", &json!({}));
    for replies in [vec![search(), say()], vec![search(), say()], vec![say()]] {
        host.model.say(replies);
        served.run_task(&task().to_string())?;
    }
    let runs = client(&served).runs()?;
    let Ok([other, early, own]) = <[String; 3]>::try_from(runs) else {
        return Err(AttackFailure::Broke(
            "there are not three runs: nothing is proved".into(),
        ));
    };
    drop(served);
    // All events are in the file then, and not in the write-ahead log.
    host.remove("notes/spare.md")?;
    for run in [&other, &early, &own] {
        ensure_judged(&host, "an untouched record", run, true)?;
    }
    // Marked before texts are taken out of the same record, which tells the log of the events that it changes.
    let mark = json!({"entry": 1, "at_ms": 1, "of": []});
    forge_in_database(&host, &early, &mark)?;
    ensure_judged(&host, "a record that is forged", &early, false)?;
    host.remove("notes/fees.md")?;
    ensure_judged(&host, "a record that was forged before", &early, false)?;
    ensure_judged(&host, "a record that lacks texts", &own, true)?;
    let (lacks, whole) = (host.exported(&own)?, host.exported(&other)?);
    ensure(!holds(lacks.as_bytes(), PASSAGE), || {
        "no text was taken out: nothing is proved".into()
    })?;
    let forgeries = forgeries(&lacks, &whole)?;
    for (what, record) in [
        ("a file of a record that lacks texts", lacks.clone()),
        ("a file of a whole record", whole),
    ] {
        host.folder.write(FORGED, record)?;
        ensure_judged(&host, what, FORGED, true)?;
    }
    for (what, record) in &forgeries {
        host.folder.write(FORGED, record)?;
        ensure_judged(&host, what, FORGED, false)?;
    }
    // And in the database, with a row of the log that is there.
    let genuine = events(&lacks);
    let mark = &genuine[lacking(&genuine)?]["removed"];
    forge_in_database(&host, &other, mark)?;
    ensure_judged(&host, "a record that is forged later", &other, false)?;
    host.must(&["audit", "verify"])?;
    Ok(format!(
        "{} forged records and two in the database named",
        forgeries.len()
    ))
}
