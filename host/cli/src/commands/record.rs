//! `toolhold show`, `runs replay`, `runs diff`: records of runs (docs/protocol.md, 11).

use crate::exit::Exit;
use crate::terminal::output::NoteMark;
use crate::terminal::view::EventPrinter;
use crate::terminal::{output, style};
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use toolhold_agent::run::replay::replay;
use toolhold_protocol::event::Bodies;
use toolhold_protocol::event::{Event, EventKind, ShownText};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;

/// Least lines of a milestone for which a line-by-line difference is shown.
const MIN_COMPARED_LINES: usize = 12;
/// Most lines of a difference, and most characters of a line, that are printed.
const MAX_SHOWN_LINES: usize = 60;
const MAX_LINE_CHARS: usize = 300;

/// The remark for a write-ahead log of SQLite that could not be emptied after texts were deleted.
pub const STILL_IN_LOG: &str = "another process reads the database: until it is done, the write-ahead log (toolhold.db-wal) may still hold the \
     texts; the next `toolhold memory forget` overwrites it";

/// Says out of how many records of runs texts were taken, after what else was deleted.
pub fn taken_out_of(records: u64) -> String {
    match records {
        0 => String::new(),
        records => format!("; taken out of {}", style::plural(records, "run record")),
    }
}

/// The steps of a run, as the run showed them.
pub async fn show(config: &Configuration, run: &str, json: bool) -> Result<Exit> {
    let store = host::store(config).await?;
    let source = store.find(run).await?;
    let record = store.record(&source).await?;
    let (mut view, mut bodies) = (EventPrinter::of_record(), Bodies::default());
    let mut shown = ShownText::default();
    for event in &record.events {
        if json {
            // An event that cannot be completed is shown as recorded.
            let whole = bodies.whole(event).unwrap_or_else(|_| event.clone());
            output::json_line(&whole)?;
        } else {
            for piece in shown.before(event) {
                view.show(&piece);
            }
            view.show(event);
        }
    }
    if !json {
        tell_removed(&record.events);
    }
    // A damaged record is shown, because its reader may look for the damage.
    match record.unchanged(&source) {
        Ok(_) => Ok(Exit::Ok),
        Err(error) => {
            output::note(NoteMark::Warn("not genuine:"), &error.to_string());
            Ok(Exit::Failed)
        }
    }
}

/// Says what texts of a record are gone, if any are.
fn tell_removed(events: &[Event]) {
    let removed = events.iter().filter_map(|event| event.removed.as_ref());
    let (mut of, mut lacking) = (BTreeSet::new(), 0_u64);
    for removed in removed {
        lacking += 1;
        of.extend(removed.of.iter().map(ToString::to_string));
    }
    if lacking > 0 {
        let of: Vec<String> = of.into_iter().collect();
        output::note(
            NoteMark::Warn("texts were taken out:"),
            &format!(
                "{} of this record lack texts of {}, which were deleted or forgotten after the run",
                style::plural(lacking, "event"),
                of.join(", ")
            ),
        );
    }
}

/// Replays the record without endpoint and tools, and compares.
pub async fn replayed(config: &Configuration, run: &str) -> Result<Exit> {
    let store = host::store(config).await?;
    let events = store.read(&store.find(run).await?).await?;
    let replayed = replay(&events)?;
    let state = if replayed.is_done {
        ""
    } else {
        ", which is not over"
    };
    let until = replayed.lacks.and_then(|lacks| lacks.until);
    let compared = until.unwrap_or(events.len() as u64);
    println!(
        "{} the run{state} comes to the same {compared} events again",
        style::good("identical:")
    );
    if let Some(lacks) = replayed.lacks {
        println!(
            "from event {} on the record lacks texts that were deleted or forgotten: requests were not compared",
            lacks.from
        );
        if let Some(until) = until {
            println!(
                "event {until} and those after it were not compared: they depend on these texts"
            );
        }
        tell_removed(&events);
    }
    if replayed.has_other_prompts {
        println!(
            "its requests were not compared: another version of Toolhold asked the model in other words"
        );
    }
    Ok(Exit::Ok)
}

/// The first differences of two runs, step by step: requests, calls and results.
pub async fn diff(config: &Configuration, [left, right]: [&str; 2]) -> Result<Exit> {
    let store = host::store(config).await?;
    let left = milestones(&store.read(&store.find(left).await?).await?);
    let right = milestones(&store.read(&store.find(right).await?).await?);
    let same = left.iter().zip(&right).take_while(|(a, b)| a == b).count();
    let (a, b) = (left.get(same), right.get(same));
    if a.or(b).is_none() {
        println!("{} {same} milestones", style::good("the same:"));
        return Ok(Exit::Ok);
    }
    let text = |milestone: Option<&ComparedEvent>| {
        let text = milestone.map(|milestone| style::line(&milestone.to_string()));
        text.unwrap_or_else(|| "(nothing)".into())
    };
    let number = same + 1;
    println!("{same} milestones are the same; number {number} is not:");
    output::tell(&format!("{} {}", style::bad("-"), text(a)));
    output::tell(&format!("{} {}", style::good("+"), text(b)));
    if let (Some(a), Some(b)) = (a, b) {
        parts(a, b);
    }
    Ok(Exit::Failed)
}

/// The differing lines of two long milestones, because a word is hard to find in a long text.
fn parts(left: &ComparedEvent, right: &ComparedEvent) {
    let [left, right] = [left, right].map(|milestone| style::plain(&milestone.lines()));
    if left.lines().count() < MIN_COMPARED_LINES && right.lines().count() < MIN_COMPARED_LINES {
        return;
    }
    println!("where they differ:");
    let diff = output::difference(&left, &right);
    let groups = diff.grouped_ops(1);
    let changes = groups.iter().flatten().flat_map(|op| diff.iter_changes(op));
    for change in changes.take(MAX_SHOWN_LINES) {
        let line: String = change.value().chars().take(MAX_LINE_CHARS).collect();
        output::tell(&format!("  {}", output::changed_line(change.tag(), &line)));
    }
}

/// The compared parts of a run: no ids, times or pieces of text.
#[derive(Debug, PartialEq)]
struct ComparedEvent {
    what: &'static str,
    value: Value,
}

impl ComparedEvent {
    /// As indented JSON; a text of a model that is JSON is parsed.
    fn lines(&self) -> String {
        let read = |value: &Value| match value {
            Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| value.clone()),
            other => other.clone(),
        };
        let value = match &self.value {
            Value::Array(items) => items.iter().map(read).collect(),
            other => read(other),
        };
        serde_json::to_string_pretty(&value).unwrap_or_default()
    }
}

impl std::fmt::Display for ComparedEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text: String = self.value.to_string().chars().take(1_000).collect();
        write!(f, "{} {text}", self.what)
    }
}

/// Step by step: the reply, then the results of its calls in the model's order. The order in which they
/// ended, and whether that was before the reply's end, is random.
fn milestones(events: &[Event]) -> Vec<ComparedEvent> {
    let mut order: HashMap<&str, usize> = HashMap::new();
    for event in events {
        if let EventKind::Plan { calls, .. } = &event.kind {
            order.extend(calls.iter().enumerate().map(|(at, call)| (&*call.id, at)));
        }
    }
    let mut found: Vec<((u32, StepPart), ComparedEvent)> = Vec::new();
    for event in events {
        let (place, what, value) = match &event.kind {
            EventKind::Run { model, request, .. } => (
                (0, StepPart::Reply),
                "run",
                json!([model, request.context, request.output_schema]),
            ),
            EventKind::Reply { step, completion } => {
                let calls: Vec<_> = completion
                    .tool_calls
                    .iter()
                    .map(|call| (&call.name, &call.arguments))
                    .collect();
                (
                    (*step, StepPart::Reply),
                    "reply",
                    json!([completion.content, calls]),
                )
            }
            EventKind::ToolResult {
                step,
                id,
                tool,
                outcome,
                ..
            } => {
                let at = order.get(id.as_str()).copied().unwrap_or(usize::MAX);
                (
                    (*step, StepPart::Call(at)),
                    "result",
                    json!([tool, outcome]),
                )
            }
            EventKind::Done { reason, output, .. } => {
                ((u32::MAX, StepPart::Reply), "done", json!([reason, output]))
            }
            _ => continue,
        };
        found.push((place, ComparedEvent { what, value }));
    }
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, milestone)| milestone).collect()
}

/// Part of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StepPart {
    Reply,
    Call(usize),
}
