//! What the model says.

use super::script::Gate;
use serde::Serialize;
use serde_json::{Map, Value, json};
use toolhold_protocol::completion::Delta;
use toolhold_protocol::contract::Contract;

/// Characters of one delta: calls begin and end inside of them.
const PIECE: usize = 5;

/// A solution that makes calls.
pub fn calls(calls: impl Serialize) -> Value {
    json!({"calls": calls, "output": null})
}

/// A solution that ends the run.
pub fn output(output: impl Into<Value>) -> Value {
    json!({"calls": [], "output": output.into()})
}

/// One reply of the model.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub(super) beats: Vec<Beat>,
    pub(super) tokens: Option<(u64, u64)>,
    /// The member of the message that the reasoning is in.
    pub(super) member: Option<&'static str>,
}

impl Reply {
    /// What a contract makes of a solution, in pieces of a few characters. A text is said as it is.
    pub fn of(contract: Contract, solution: &Value) -> Self {
        let Value::Object(members) = solution else {
            return Self::text(solution.as_str().unwrap_or_default());
        };
        Self::saying(match contract {
            Contract::Schema => said(&solution.to_string()),
            Contract::Tools => functions(members),
            Contract::Simple => said(&turn(members).to_string()),
        })
    }

    /// A solution under the `schema` contract.
    pub fn solution(solution: &Value) -> Self {
        Self::of(Contract::Schema, solution)
    }

    pub fn calls(made: &[Value]) -> Self {
        Self::solution(&calls(made))
    }

    pub fn output(given: impl Into<Value>) -> Self {
        Self::solution(&output(given))
    }

    pub fn text(text: &str) -> Self {
        Self::saying(said(text))
    }

    /// A native call of a function with this text as its arguments.
    pub fn function(name: &str, arguments: &str) -> Self {
        Self::saying(vec![Delta::ToolCall {
            index: 0,
            id: Some("native".into()),
            name: Some(name.into()),
            arguments: arguments.into(),
        }])
    }

    fn saying(deltas: Vec<Delta>) -> Self {
        Self {
            beats: deltas.into_iter().map(Beat::Says).collect(),
            tokens: None,
            member: None,
        }
    }

    /// Holds the last piece back until the gate opens.
    pub fn ending_after(mut self, gate: &Gate) -> Self {
        let last = self.beats.len().saturating_sub(1);
        self.beats.insert(last, Beat::Waits(gate.clone()));
        self
    }

    /// With this as what the endpoint kept apart as reasoning, before all else.
    pub fn after_reasoning(mut self, text: &str) -> Self {
        let reasoning = Delta::Reasoning(text.to_owned());
        self.beats.insert(0, Beat::Says(reasoning));
        self
    }

    /// Names the member of the message that the reasoning is in, as an endpoint does that wants it back.
    pub fn in_member(mut self, name: &'static str) -> Self {
        self.member = Some(name);
        self
    }

    /// With this text before all else.
    pub fn after(mut self, text: &str) -> Self {
        let before = said(text).into_iter().map(Beat::Says);
        self.beats.splice(0..0, before);
        self
    }

    pub fn then(mut self, text: &str) -> Self {
        self.beats.extend(said(text).into_iter().map(Beat::Says));
        self
    }

    /// The number of its pieces.
    pub fn pieces(&self) -> usize {
        self.beats.len()
    }

    /// Breaks off in the middle, after so many of its pieces.
    pub fn breaking_after(mut self, pieces: usize) -> Self {
        self.beats.truncate(pieces);
        self.beats.push(Beat::Breaks);
        self
    }

    /// Refused: the prompt has so many tokens, and so many fit.
    pub fn overflowing(prompt: u64, window: u64) -> Self {
        Self::refused(Some((prompt, window)))
    }

    /// Refused for its length, without any number.
    pub fn too_long() -> Self {
        Self::refused(None)
    }

    fn refused(numbers: Option<(u64, u64)>) -> Self {
        Self {
            beats: vec![Beat::Overflows(numbers)],
            tokens: None,
            member: None,
        }
    }

    pub fn never_ending(mut self) -> Self {
        self.beats.push(Beat::Forever);
        self
    }

    pub fn counted(mut self, prompt: u64, completion: u64) -> Self {
        self.tokens = Some((prompt, completion));
        self
    }

    pub fn len(&self) -> usize {
        self.beats.len()
    }
}

#[derive(Debug, Clone)]
pub(super) enum Beat {
    Says(Delta),
    Waits(Gate),
    Breaks,
    /// The Request is too long: by the endpoint's count, for its window, if it says them.
    Overflows(Option<(u64, u64)>),
    /// Until the run drops it.
    Forever,
}

fn said(text: &str) -> Vec<Delta> {
    let characters: Vec<char> = text.chars().collect();
    characters
        .chunks(PIECE)
        .map(|piece| Delta::Content(piece.iter().collect()))
        .collect()
}

/// A solution as calls of functions, and text.
fn functions(members: &Map<String, Value>) -> Vec<Delta> {
    let mut deltas = Vec::new();
    let mut count = 0;
    let mut function = |name: &str, arguments: &Value, deltas: &mut Vec<Delta>| {
        deltas.extend(called(count, name, arguments));
        count += 1;
    };
    for (member, value) in members {
        match (member.as_str(), value) {
            ("calls", Value::Array(calls)) => {
                for call in calls {
                    let (tool, arguments) = split(call);
                    let name = tool.as_str().unwrap_or_default().replace('.', "-");
                    function(&name, &arguments, &mut deltas);
                }
            }
            ("output", Value::String(text)) => deltas.extend(said(text)),
            ("output", Value::Null) => {}
            ("output", value) => function("finish", &json!({"output": value}), &mut deltas),
            (name, value) => function(name, &json!({name: value}), &mut deltas),
        }
    }
    deltas
}

/// A solution as the call, or the answer, that the `simple` contract has room for: of several calls the
/// last.
fn turn(members: &Map<String, Value>) -> Value {
    let calls = members.get("calls").and_then(Value::as_array);
    let calls = calls.map_or(&[][..], Vec::as_slice);
    let mut object = Map::new();
    for (member, value) in members {
        match (member.as_str(), value) {
            ("calls", _) => {
                for call in calls {
                    let (tool, arguments) = split(call);
                    object.insert("tool_name".into(), tool);
                    object.insert("arguments".into(), arguments);
                }
            }
            ("output", Value::Null) if !calls.is_empty() => {}
            ("output", value) => {
                object.insert("final_answer".into(), value.clone());
            }
            (name, value) => {
                object.insert(name.into(), value.clone());
            }
        }
    }
    object.into()
}

fn split(call: &Value) -> (Value, Value) {
    let mut arguments = call.clone();
    let tool = arguments
        .as_object_mut()
        .and_then(|call| call.shift_remove("_tool"));
    (tool.unwrap_or_default(), arguments)
}

fn called(index: usize, name: &str, arguments: &Value) -> Vec<Delta> {
    let begin = Delta::ToolCall {
        index,
        id: Some(format!("native_{index}")),
        name: Some(name.to_owned()),
        arguments: String::new(),
    };
    let pieces = said(&arguments.to_string()).into_iter().map(|piece| {
        let Delta::Content(arguments) = piece else {
            unreachable!("content is what was said");
        };
        Delta::ToolCall {
            index,
            id: None,
            name: None,
            arguments,
        }
    });
    std::iter::once(begin).chain(pieces).collect()
}
