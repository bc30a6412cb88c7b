//! Plans: graphs of calls whose edges are the data that they pass on (docs/protocol.md, 8).
//!
//! A [`Plan`] is read from JSON, a [`Step`] is one of its calls, and a [`Graph`] is the plan in
//! order: which steps wait for which, what can run at the same time, and what is missing. A graph
//! that exists has no cycle.

mod diagram;
mod draw;
#[cfg(test)]
mod draw_tests;
mod flow;
mod graph;
#[cfg(test)]
mod graph_tests;
mod hazards;
mod order;
mod outline;
mod place;
mod place_map;
mod step;
mod text;

pub use flow::{MissingReference, missing};
pub use graph::{Cycle, CycleStep, Edge, Graph, GraphError, Warning};
pub use place::PlanPlace;
pub use step::{Read, Step, StepError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write as _;
use thiserror::Error;

/// Maximum steps of a plan: every step costs memory, and a larger plan is most likely a mistake.
pub const MAX_STEPS: usize = 10_000;
/// Maximum faulty steps that an error lists.
const MAX_SHOWN_STEPS: usize = 10;

/// Calls with their data flow, as they are saved and carried from one iteration to the next.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub mode: Mode,
}

/// When the steps of a plan run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Planning is execution.
    #[default]
    Eager,
    /// Nothing runs until the plan was validated and, where wanted, approved.
    Lazy,
}

/// Why a JSON value is no plan.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    #[error(
        "a plan is {{\"type\": \"plan\", \"plan\": [calls]}}, a list of calls, or an object with \"calls\"; this is {found}"
    )]
    Form { found: String },
    #[error("\"mode\" is {found}; write \"eager\" or \"lazy\"")]
    Mode { found: String },
    #[error("the plan has {count} steps; {MAX_STEPS} are the most, so split it")]
    TooManySteps { count: usize },
    /// Every step that cannot be read, in their order.
    #[error("{}", listed(.0))]
    Steps(Vec<StepError>),
}

impl Plan {
    /// Reads a plan message, a list of calls, or a Solution.
    ///
    /// # Errors
    /// What is wrong with it; of its steps all that are wrong.
    pub fn parse(value: &Value) -> Result<Self, PlanError> {
        let (calls, mode) = match value {
            Value::Array(calls) => (calls, None),
            Value::Object(fields) => {
                let kind = fields.get("type");
                if kind.is_some_and(|kind| kind != "plan") {
                    return Err(form(format!("a message of type {}", shown(kind))));
                }
                let calls = match (fields.get("plan"), fields.get("calls")) {
                    (Some(_), Some(_)) => {
                        return Err(form("an object with both \"plan\" and \"calls\""));
                    }
                    (Some(Value::Array(calls)), None) | (None, Some(Value::Array(calls))) => calls,
                    (None, None) => {
                        return Err(form("an object with neither \"plan\" nor \"calls\""));
                    }
                    (plan, calls) => {
                        let found = shown(plan.or(calls));
                        return Err(form(format!("an object whose steps are {found}")));
                    }
                };
                (calls, fields.get("mode"))
            }
            other => return Err(form(shown(Some(other)))),
        };
        let mode = mode.filter(|mode| !mode.is_null());
        let Ok(mode) = mode.map_or(Ok(Mode::default()), Mode::deserialize) else {
            return Err(PlanError::Mode { found: shown(mode) });
        };
        if calls.len() > MAX_STEPS {
            return Err(PlanError::TooManySteps { count: calls.len() });
        }
        let mut steps = Vec::with_capacity(calls.len());
        let mut faults = Vec::new();
        for (index, call) in calls.iter().enumerate() {
            match Step::new(index, call) {
                Ok(step) => steps.push(step),
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() {
            Ok(Self { steps, mode })
        } else {
            Err(PlanError::Steps(faults))
        }
    }
}

fn form(found: impl Into<String>) -> PlanError {
    PlanError::Form {
        found: found.into(),
    }
}

/// The beginning of `value` as JSON, on one line.
fn shown(value: Option<&Value>) -> String {
    match value {
        None => "nothing".into(),
        Some(Value::Array(_)) => "a list".into(),
        Some(Value::Object(_)) => "an object".into(),
        Some(value) => text::printable(&value.to_string(), 60),
    }
}

fn listed(faults: &[StepError]) -> String {
    let mut list = String::new();
    for (index, fault) in faults.iter().take(MAX_SHOWN_STEPS).enumerate() {
        let between = if index == 0 { "" } else { "\n" };
        let _ = write!(list, "{between}{fault}");
    }
    if faults.len() > MAX_SHOWN_STEPS {
        let _ = write!(list, "\nand {} more", faults.len() - MAX_SHOWN_STEPS);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_faulty_step_is_named() {
        let error =
            Plan::parse(&json!([{"_tool": "a"}, 7, {"_tool": "b", "x": "† y"}])).unwrap_err();
        insta::assert_snapshot!(error, @r#"
        plan[1] is no call: it is 7; write {"_tool": "the tool's name", …its arguments}
        plan[2]/x: "† y" is no reference: at character 2 the kind of data, such as state is expected; write †kind.path.to[2].value
        "#);
        let many = Plan::parse(&json!(vec![0; 40])).unwrap_err().to_string();
        assert!(many.ends_with("\nand 30 more"), "{many}");
        assert_eq!(many.lines().count(), MAX_SHOWN_STEPS + 1);
    }
}
