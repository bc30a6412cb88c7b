//! One call of a plan, with what it reads and writes.

use super::place::PlanPlace;
use super::text::printable;
use crate::data::Method;
use crate::reference::{Path, Source, Target, references};
use serde::Deserialize as _;
use serde_json::{Map, Value};
use thiserror::Error;

/// A node of the graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// `_tool`.
    pub tool: String,
    /// `_instance`: the data that it works on. Absent: everybody's.
    pub instance: Option<String>,
    /// The references in its parameters, in their order.
    pub reads: Vec<Read>,
    /// `_outputPath`.
    pub writes: Option<Target>,
    /// `_outputMethod`.
    pub method: Method,
    /// The call as it was written.
    pub call: Value,
}

/// A parameter, or a part of one, that is a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// JSON pointer into the call.
    pub pointer: String,
    pub source: Source,
}

/// Why a value is no step.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}{reason}")]
pub struct StepError {
    pub place: PlanPlace,
    /// What is wrong and what to write instead; it continues the place.
    reason: String,
}

impl Step {
    /// Reads the call at `index` of a plan.
    ///
    /// # Errors
    /// The first thing that is wrong with it, with its place.
    pub fn new(index: usize, call: &Value) -> Result<Self, StepError> {
        let fault = |pointer: &str, reason: String| StepError {
            place: PlanPlace::new(index, pointer),
            reason,
        };
        let Value::Object(fields) = call else {
            let found = super::shown(Some(call));
            return Err(fault(
                "",
                format!(
                    " is no call: it is {found}; write {{\"_tool\": \"the tool's name\", …its arguments}}"
                ),
            ));
        };
        let text = |key: &str| match fields.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(other) => {
                let found = super::shown(Some(other));
                Err(fault(
                    &format!("/{key}"),
                    format!(": expected a text, found {found}"),
                ))
            }
        };
        let Some(tool) = text("_tool")?.filter(|tool| !tool.is_empty()) else {
            return Err(fault(
                "",
                " lacks \"_tool\", the name of the tool to call".into(),
            ));
        };
        let writes: Option<Target> = text("_outputPath")?
            .map(str::parse)
            .transpose()
            .map_err(|error| fault("/_outputPath", format!(": {error}")))?;
        let method = match fields.get("_outputMethod") {
            None | Some(Value::Null) => Method::default(),
            Some(name) => Method::deserialize(name).map_err(|_| {
                let found = super::shown(Some(name));
                fault(
                    "/_outputMethod",
                    format!(": there is no {found}; write set, merge, assign, push or concat"),
                )
            })?,
        };
        let reads = references(&parameters(fields).into())
            .map_err(|(pointer, error)| fault(&pointer, format!(": {error}")))?
            .into_iter()
            .map(|(pointer, source)| Read { pointer, source })
            .collect();
        Ok(Self {
            tool: tool.to_owned(),
            instance: text("_instance")?.map(str::to_owned),
            reads,
            writes,
            method,
            call: call.clone(),
        })
    }

    /// The parameters alone, without reserved properties.
    pub fn arguments(&self) -> Value {
        self.call
            .as_object()
            .map(parameters)
            .unwrap_or_default()
            .into()
    }

    /// All places that it may write.
    pub(super) fn written(&self) -> &[Path] {
        self.writes.as_ref().map_or(&[], Target::paths)
    }

    /// Tool and instance as they are shown.
    pub(super) fn title(&self) -> String {
        let tool = printable(&self.tool, 64);
        match &self.instance {
            Some(instance) => format!("{tool} @{}", printable(instance, 64)),
            None => tool,
        }
    }
}

fn parameters(call: &Map<String, Value>) -> Map<String, Value> {
    call.iter()
        .filter(|(key, _)| !key.starts_with('_'))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_is_read_with_its_places() {
        let call = json!({
            "_tool": "mail.send", "_instance": "alice", "_reasoningForCall": "†", "_scopes": ["†"],
            "to": "†user.mail || †input.mail", "lines": ["††5", {"a/b": "†state.x"}],
            "_outputPath": "†state.sent && †state.log[0]", "_outputMethod": "push",
        });
        let step = Step::new(3, &call).unwrap();
        assert_eq!(
            (step.tool.as_str(), step.instance.as_deref()),
            ("mail.send", Some("alice"))
        );
        let reads: Vec<_> = step
            .reads
            .iter()
            .map(|read| (read.pointer.as_str(), read.source.to_string()))
            .collect();
        assert_eq!(
            reads,
            [
                ("/to", "†user.mail || †input.mail".to_owned()),
                ("/lines/1/a~1b", "†state.x".to_owned())
            ]
        );
        assert_eq!(step.written().len(), 2);
        assert_eq!(step.method, Method::Push);
        assert_eq!(
            step.arguments(),
            json!({"to": call["to"], "lines": call["lines"]})
        );
        assert_eq!(step.call, call);
    }

    #[test]
    fn null_is_as_good_as_absent() {
        let call =
            json!({"_tool": "a", "_instance": null, "_outputPath": null, "_outputMethod": null});
        let step = Step::new(0, &call).unwrap();
        assert_eq!(
            (step.instance, step.writes, step.method),
            (None, None, Method::Set)
        );
    }

    #[test]
    fn faults_name_the_place_and_the_remedy() {
        for (call, expect) in [
            (
                json!([]),
                "plan[3] is no call: it is a list; write {\"_tool\"",
            ),
            (json!({}), "plan[3] lacks \"_tool\""),
            (json!({"_tool": ""}), "plan[3] lacks \"_tool\""),
            (
                json!({"_tool": 1}),
                "plan[3]/_tool: expected a text, found 1",
            ),
            (
                json!({"_tool": "a", "_instance": {}}),
                "plan[3]/_instance: expected a text, found an object",
            ),
            (
                json!({"_tool": "a", "_outputPath": "state.x"}),
                "plan[3]/_outputPath: \"state.x\" is no reference: at character 1 a dagger †",
            ),
            (
                json!({"_tool": "a", "_outputMethod": "append"}),
                "plan[3]/_outputMethod: there is no \"append\"; write set, merge, assign, push or concat",
            ),
            (
                json!({"_tool": "a", "to": ["†a & †b"]}),
                "plan[3]/to/0: \"†a & †b\" is no reference",
            ),
        ] {
            let error = Step::new(3, &call).unwrap_err().to_string();
            assert!(error.starts_with(expect), "{error}");
        }
    }

    #[test]
    fn methods_print_as_they_are_written() {
        for method in [
            Method::Set,
            Method::Merge,
            Method::Assign,
            Method::Push,
            Method::Concat,
        ] {
            assert_eq!(json!(method), json!(method.to_string()));
        }
    }
}
