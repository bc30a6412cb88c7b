//! Row 64: texts that the host itself puts into a record: ends that no model wrote, and what the next turn begins with.

use super::{KnowledgeHost, PASSAGE, calls, client, holds, search, task};
use crate::attack::{Attack, Company};
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use crate::serving::Served;
use serde_json::{Value, json};
use std::future::ready;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 64,
    name: "texts_that_the_host_composed",
    attack: "a document is deleted whose passages the host put into a run's end, as data or as a client's calls, and into the next turn",
    must: "no byte of them in the database; the records are genuine",
    company: Company::Others,
    tries: |lab| Box::pin(ready(texts_that_the_host_composed(lab))),
}];

/// A reply with a call that comes after the search, and ends the run.
fn last_call() -> String {
    calls("liar.say", &json!({}))
}

/// The task of a run that may ask its model twice: it ends at this limit, with the data that its calls wrote.
fn short_task() -> Value {
    let mut task = task();
    task["max_steps"] = json!(2);
    task
}

/// The task of a run that ends with a call of its client's tool.
fn client_task() -> Value {
    let mut task = task();
    let parameters = json!({"type": "object", "properties": {}});
    task["tools"] = json!([
        "knowledge.search",
        {"type": "function", "name": "weather", "parameters": parameters},
    ]);
    task
}

/// The newest run.
fn newest(served: &Served) -> Result<String, AttackFailure> {
    let runs = client(served).runs()?;
    runs.into_iter()
        .next()
        .ok_or_else(|| AttackFailure::Broke("there is no run: nothing is proved".into()))
}

/// Two turns of a session, of which the first ends as [`short_task`] does. Returns their runs.
fn turns(host: &KnowledgeHost, served: &Served) -> Result<[String; 2], AttackFailure> {
    let ask = |path: &str, body: &Value, status: u16| {
        let answered = client(served).ask("POST", path, body)?;
        ensure(answered.status == status, || {
            format!("POST {path} was answered {answered:?}")
        })?;
        let said: Value = serde_json::from_str(&answered.body).unwrap_or_default();
        Ok::<Value, AttackFailure>(said)
    };
    let session = ask("/v1/sessions", &json!({}), 201)?;
    let session = session["id"].as_str().unwrap_or_default().to_owned();
    let path = format!("/v1/sessions/{session}/turns");
    host.model.say([search(), last_call()]);
    ask(&path, &short_task(), 200)?;
    let first = newest(served)?;
    host.model.say([]);
    ask(&path, &task(), 200)?;
    Ok([first, newest(served)?])
}

/// Runs whose ends, or begins, have the passages, and the kind of the event that has them.
fn runs(
    host: &KnowledgeHost,
    served: &Served,
) -> Result<Vec<(&'static str, &'static str, String)>, AttackFailure> {
    host.model.say([search(), last_call()]);
    served.run_task(&short_task().to_string())?;
    let limited = newest(served)?;
    host.model.say([search(), calls("weather", &json!({}))]);
    served.run_task(&client_task().to_string())?;
    let handed_over = newest(served)?;
    let [first, next] = turns(host, served)?;
    Ok(vec![
        ("a run that reached a limit", "done", limited),
        ("a run that ended with a client's call", "done", handed_over),
        ("a turn that reached a limit", "done", first),
        ("the turn after it", "run", next),
    ])
}

/// True if an event of this kind has the passage.
fn has_in(record: &str, kind: &str) -> bool {
    let events = record
        .lines()
        .filter_map(|line| Some((serde_json::from_str::<Value>(line).ok()?, line)));
    let mut own = events.filter(|(event, _)| event["event"] == kind);
    own.any(|(_, line)| holds(line.as_bytes(), PASSAGE))
}

fn texts_that_the_host_composed(lab: &Lab) -> Result<String, AttackFailure> {
    // No passages are looked for before a run, so that the next turn has none of its own.
    let host = KnowledgeHost::new(lab, "said", "")?;
    let served = host.serve()?;
    let runs = runs(&host, &served)?;
    drop(served);
    for (what, kind, run) in &runs {
        ensure(has_in(&host.exported(run)?, kind), || {
            format!("{what} has no passage in its event {kind}: nothing is proved")
        })?;
    }
    host.remove("notes/fees.md")?;
    let mut has = Vec::new();
    for (what, _, run) in &runs {
        if holds(host.exported(run)?.as_bytes(), PASSAGE) {
            has.push(*what);
        }
        host.must(&["show", run])?;
    }
    ensure(has.is_empty(), || {
        format!("texts of a deleted document are still in the records of {has:?}")
    })?;
    let left = host.files_with(&[PASSAGE])?;
    ensure(left.is_empty(), || {
        format!("texts that were deleted are still there: {left:?}")
    })?;
    host.must(&["audit", "verify"])?;
    Ok(format!("{} records without the texts", runs.len()))
}
