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
    let (text, context) = asked(request, offered).ok_or(NoTask::NothingAsked)?;
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
    let output_schema = request.output_schema.as_ref();
    let output_schema = output_schema.map(|schema| redaction.schema(schema));
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
            .map(|message| redacted(message, redaction))
            .collect(),
        instructions: (request.instructions != DEFAULT_INSTRUCTIONS)
            .then(|| masked(&request.instructions)),
        output_schema: output_schema.clone(),
        max_steps: None,
        timeout_s: None,
        expect: Expectations {
            answer: answer(&redaction.value(&seen.output), output_schema.as_ref()),
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

/// A message as the task has it. What is a schema in it stays one.
fn redacted(message: &Value, redaction: &Redaction) -> Value {
    let Value::Object(fields) = message else {
        return redaction.value(message);
    };
    let is_tool = message["type"] == "tool";
    let fields = fields.iter().map(|(name, value)| {
        let value = match name.as_str() {
            "schema" => redaction.schema(value),
            "tool" if is_tool => redaction.schemas(value),
            _ => redaction.value(value),
        };
        (name.clone(), value)
    });
    Value::Object(fields.collect())
}

/// The message without the tools that activities and the run's client made the calls of: an attempt has neither.
/// `None` if nothing is left of it.
fn for_attempts(message: &Message, offered: &[Bound]) -> Option<Message> {
    let Message::Tool(tools) = message else {
        return Some(message.clone());
    };
    let is_elsewhere = |name: &str| {
        let bound = offered.iter().find(|bound| bound.tool.name == *name);
        bound.is_some_and(|it| matches!(it.runner, Runner::Client | Runner::Activity(_)))
    };
    let mut left = tools.clone();
    left.tool.retain(|name, _| !is_elsewhere(name));
    (!left.tool.is_empty()).then_some(Message::Tool(left))
}

/// The last text of the user, and the other messages.
fn asked(request: &RunRequest, offered: &[Bound]) -> Option<(String, Vec<Value>)> {
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
        .filter(|(index, _)| *index != at)
        .filter_map(|(_, message)| for_attempts(message, offered));
    let others = others.map(serde_json::to_value);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use toolhold_protocol::bound::BoundTools;
    use toolhold_protocol::event::{FORMAT, PROMPTS, Seal};
    use toolhold_protocol::tool::{Execution, Tool};
    use uuid::Uuid;

    /// The record of a run over this context that ended with an output.
    fn record(
        context: &Value,
        output_schema: Option<Value>,
        tools: impl Into<BoundTools>,
    ) -> Vec<Event> {
        let request = RunRequest {
            context: Message::parse_all(context).unwrap(),
            output_schema,
            ..RunRequest::new(Uuid::nil(), "")
        };
        let begun = EventKind::Run {
            format: FORMAT,
            prompts: PROMPTS,
            task: String::new(),
            model: "m".into(),
            request: Box::new(request),
            tools: tools.into(),
            host: String::new(),
        };
        let done = EventKind::Done {
            reason: StopReason::Output,
            output: json!({"token": "abc", "ok": true}),
            error: None,
            steps: 1,
            calls: 0,
            tokens: 0,
            cost_nano: None,
            duration_ms: 1,
        };
        let event = |kind| Event {
            run: Uuid::nil(),
            seq: 0,
            at_ms: 0,
            kind,
            removed: None,
            seal: Seal::default(),
        };
        [begun, done].map(event).into()
    }

    fn bound(name: &str, runner: Runner) -> Bound {
        Bound {
            tool: Arc::new(Tool {
                execution: Execution::Activity(name.into()),
                ..Tool::new(name)
            }),
            runner,
        }
    }

    /// An attempt has no client and no activities: a tool message that names them cannot be composed there.
    #[test]
    fn tools_of_the_client_and_of_activities_are_no_part_of_the_task() {
        let tool = |activity: &str| json!({"type": "object", "properties": {"_activity": {"const": activity}}});
        let context = json!([
            {"type": "tool", "tool": {"weather": tool("weather")}},
            {"type": "tool", "tool": {"issues": tool("mcp:tracker/find"), "think": {"type": "object", "properties": {"_output": {}}}}},
            {"role": "user", "content": "What now?"},
        ]);
        let tools = vec![
            bound("weather", Runner::Client),
            bound("issues", Runner::Activity("mcp:tracker/find".into())),
            bound("think", Runner::Model),
        ];
        let task = task(&record(&context, None, tools), &Redaction::default()).unwrap();
        let [left] = task.context.as_slice() else {
            panic!("{:?}", task.context);
        };
        let names: Vec<_> = left["tool"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["think"]);
        assert_eq!(task.text, "What now?");
    }

    #[test]
    fn schemas_with_the_names_of_secrets_stay_schemas() {
        let schema = json!({"type": "object", "properties": {"token": {"type": "string"}, "ok": {"type": "boolean"}}});
        let context = json!([
            {"type": "data", "kind": "login", "data": {"password": "hunter2"}, "schema": {"properties": {"password": {"type": "string"}}}},
            {"type": "tool", "tool": {"sign_in": {"type": "object", "properties": {"password": {"type": "string"}, "_output": {}}}}},
            {"role": "user", "content": "Sign ada@example.org in."},
        ]);
        let events = record(&context, Some(schema.clone()), []);
        let task = task(&events, &Redaction::default()).unwrap();
        assert_eq!(task.output_schema, Some(schema.clone()));
        assert_eq!(task.expect.answer.schema, Some(schema));
        assert_eq!(task.context[0]["data"]["password"], "<secret>");
        assert_eq!(
            task.context[0]["schema"]["properties"]["password"]["type"],
            "string"
        );
        assert_eq!(
            task.context[1]["tool"]["sign_in"]["properties"]["password"]["type"],
            "string"
        );
        assert_eq!(task.text, "Sign <email> in.");
        // It can be read again, as the file of tasks is.
        assert!(Message::parse_all(&task.context.into()).is_ok());
    }
}
