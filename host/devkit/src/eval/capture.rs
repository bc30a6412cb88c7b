//! Tasks from runs that were recorded: what was asked and offered, redacted, and what came of it as the expectation.

use crate::eval::expect::{Check, Expectations, ExpectedCall};
use crate::eval::seen::RunSummary;
use crate::eval::set::{MAX_BYTES, MAX_TASKS, Set, Task};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;
use toolhold_policy::redaction::Redaction;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::context::Message;
use toolhold_protocol::event::{Event, EventKind, StopReason};
use toolhold_protocol::settings::{DEFAULT_INSTRUCTIONS, RunRequest};
use toolhold_protocol::turn::Role;

/// Why a run makes no task.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoTask {
    #[error("it has no output")]
    NoOutput,
    #[error("it has no task of a user")]
    NothingAsked,
    #[error("it made the calls of a plan, and asked no model for them")]
    Planned,
    #[error("its record has no beginning")]
    NotBegun,
    #[error("the task cannot be used: {0}")]
    Unfit(String),
}

/// Tasks of runs, in the order in which they were added, each once.
#[derive(Debug, Default)]
pub struct CapturedTasks {
    tasks: Vec<Task>,
    /// What was asked, to leave out what is asked again.
    asked: BTreeSet<String>,
    bytes: u64,
}

impl CapturedTasks {
    /// Adds a task, unless one of the same words and offers is there. Says whether there is room for more.
    pub fn add(&mut self, task: Task) -> bool {
        let asked = json!([
            task.text,
            task.context,
            task.instructions,
            task.output_schema
        ]);
        if !self.asked.insert(asked.to_string()) {
            return true;
        }
        // As it is written: the file is read within the same bounds.
        let text = serde_json::to_string_pretty(&task).unwrap_or_default();
        let bytes = text.len() as u64 * 2;
        if self.tasks.len() >= MAX_TASKS || self.bytes + bytes > MAX_BYTES {
            return false;
        }
        self.bytes += bytes;
        self.tasks.push(task);
        true
    }

    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub fn into_set(self, description: String) -> Set {
        Set {
            description,
            tasks: self.tasks,
        }
    }
}

/// The task of a recorded run.
///
/// # Errors
/// Why the run makes none.
pub fn task(events: &[Event], redaction: &Redaction) -> Result<Task, NoTask> {
    let (request, offered) = events
        .iter()
        .find_map(|event| match &event.kind {
            EventKind::Run { request, tools, .. } => Some((request, tools)),
            _ => None,
        })
        .ok_or(NoTask::NotBegun)?;
    if request.plan.is_some() {
        return Err(NoTask::Planned);
    }
    let mut seen = RunSummary::default();
    for event in events {
        seen.take(&event.kind);
    }
    if seen.reason != Some(StopReason::Output) {
        return Err(NoTask::NoOutput);
    }
    let (text, context) = asked(request).ok_or(NoTask::NothingAsked)?;
    let masked = |text: &str| match redaction.value(&text.into()) {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let called: BTreeSet<&str> = seen
        .calls
        .iter()
        .filter(|call| call.succeeded == Some(true))
        .map(|call| call.tool.as_str())
        .collect();
    let offered: BTreeSet<String> = offered.iter().filter_map(of_module).collect();
    let task = Task {
        id: format!("run-{}", request.id.simple()),
        level: match seen.calls.len() {
            0 | 1 => 1,
            2 | 3 => 2,
            _ => 3,
        },
        text: masked(&text),
        tools: offered.iter().cloned().collect(),
        may_read: Vec::new(),
        may_write: Vec::new(),
        files: BTreeMap::new(),
        setup: Vec::new(),
        context: context
            .iter()
            .map(|message| redaction.value(message))
            .collect(),
        instructions: (request.instructions != DEFAULT_INSTRUCTIONS)
            .then(|| masked(&request.instructions)),
        output_schema: request
            .output_schema
            .as_ref()
            .map(|schema| redaction.value(schema)),
        max_steps: None,
        timeout_s: None,
        expect: Expectations {
            answer: answer(
                &redaction.value(&seen.output),
                request.output_schema.as_ref(),
            ),
            calls: called
                .iter()
                .filter(|tool| offered.contains(**tool))
                .map(|tool| ExpectedCall {
                    tool: (*tool).to_owned(),
                    with: Map::new(),
                    matching: BTreeMap::new(),
                    at_least: 1,
                    may_fail: false,
                })
                .collect(),
            no_calls: if seen.calls.is_empty() {
                vec!["*".into()]
            } else {
                Vec::new()
            },
            ..Expectations::default()
        },
        solution: Vec::new(),
        wrong: None,
    };
    task.check().map_err(NoTask::Unfit)?;
    Ok(task)
}

/// The last text of the user, and the messages before it.
fn asked(request: &RunRequest) -> Option<(String, Vec<Value>)> {
    let is_users =
        |message: &Message| matches!(message, Message::Text(text) if text.role == Role::User);
    let at = request.context.iter().rposition(is_users)?;
    let Message::Text(asked) = request.context.get(at)? else {
        return None;
    };
    let others = request
        .context
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != at);
    let others = others.map(|(_, message)| serde_json::to_value(message));
    Some((asked.text.clone(), others.collect::<Result<_, _>>().ok()?))
}

/// The name of a module's tool: other tools cannot be offered to an attempt by their names.
fn of_module(bound: &Bound) -> Option<String> {
    match &bound.runner {
        Runner::Module(own) if own.contains('.') && !own.contains(['/', '@', ':', '#']) => {
            (bound.tool.name == *own).then(|| own.clone())
        }
        _ => None,
    }
}

/// What another answer must have in common with `output`: wording differs from run to run, so of a text it is that it is
/// one, and of JSON its schema, or the value itself where it is a number or says yes or no.
fn answer(output: &Value, schema: Option<&Value>) -> Check {
    match output {
        Value::Bool(_) | Value::Number(_) => Check {
            json: Some(output.clone()),
            ..Check::default()
        },
        Value::String(_) if schema.is_none() => Check {
            matches: Some("\\S".into()),
            ..Check::default()
        },
        _ => Check {
            schema: schema.cloned(),
            ..Check::default()
        },
    }
}
