//! Worked examples against the schemas of their tool: a model copies an example, so one that does not fit would
//! teach it calls that are refused. Modules of every kind, and so of every language, come through here.

use crate::error::LoadError;
use std::time::{Duration, Instant};
use toolhold_policy::ToolSpec;
use toolhold_policy::text;
use toolhold_schema::{SchemaFault, Validator};

/// Maximum worked examples of one tool.
pub const MAX_EXAMPLES: usize = 8;
/// Maximum characters of an example's task in a note.
const MAX_TASK_CHARS: usize = 80;

/// The most time to check all examples of a module. A check is bounded by itself; this bounds how many costly ones there
/// are. A slow machine must not decide which examples are kept, because a pin holds them: so the module is refused.
pub(super) const CHECK_TIME: Duration = Duration::from_secs(10);

/// Takes out the examples that do not fit the schemas of their tool. Returns a note about each. Blocks: a check may take
/// tens of milliseconds.
///
/// # Errors
/// The checks take longer than `time`.
pub(super) fn keep_fitting(
    tools: &mut [ToolSpec],
    time: Duration,
) -> Result<Vec<String>, LoadError> {
    let started = Instant::now();
    let mut notes = Vec::new();
    for tool in tools {
        if tool.examples.is_empty() {
            continue;
        }
        if tool.examples.len() > MAX_EXAMPLES {
            tool.examples.truncate(MAX_EXAMPLES);
            notes.push(format!(
                "{} has more than {MAX_EXAMPLES} examples; only the first {MAX_EXAMPLES} are used",
                tool.name
            ));
        }
        let schemas = Schemas::of(tool);
        for example in std::mem::take(&mut tool.examples) {
            if started.elapsed() > time {
                return Err(LoadError::Tool {
                    tool: tool.name.clone(),
                    reason: format!(
                        "to check the module's examples takes more than {} s; give fewer or smaller ones",
                        time.as_secs()
                    ),
                });
            }
            let checked = match &schemas {
                Err(fault) => Err(format!("it cannot be checked: {fault}")),
                Ok(schemas) => schemas.check(&example.arguments, &example.output),
            };
            let Err(reason) = checked else {
                tool.examples.push(example);
                continue;
            };
            let task = text::visible(&example.task, MAX_TASK_CHARS);
            notes.push(format!(
                "the example {task:?} of {} is left out: {reason}",
                tool.name
            ));
        }
    }
    Ok(notes)
}

/// The schemas of one tool, compiled.
struct Schemas {
    input: Validator,
    output: Option<Validator>,
}

impl Schemas {
    fn of(tool: &ToolSpec) -> Result<Self, SchemaFault> {
        let output = tool.output_schema.as_ref();
        Ok(Self {
            input: Validator::new(&tool.input_schema)?,
            output: output.map(Validator::new).transpose()?,
        })
    }

    fn check(
        &self,
        arguments: &serde_json::Value,
        output: &serde_json::Value,
    ) -> Result<(), String> {
        self.input.check(arguments).map_err(|reason| {
            format!("its arguments do not fit the tool's input schema: {reason}")
        })?;
        let promised = self.output.as_ref();
        promised
            .map_or(Ok(()), |schema| schema.check(output))
            .map_err(|reason| format!("its output does not fit the tool's output schema: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use toolhold_policy::DocsSource;
    use toolhold_policy::tool::{Annotations, Example};

    fn tool(examples: &[(&str, Value, Value)]) -> ToolSpec {
        ToolSpec {
            name: "m.add".into(),
            title: None,
            description: "Adds.".into(),
            input_schema: json!({
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "required": ["a"]
            }),
            output_schema: Some(json!({"type": "integer"})),
            annotations: Annotations::default(),
            examples: examples
                .iter()
                .map(|(task, arguments, output)| Example {
                    task: (*task).into(),
                    arguments: arguments.clone(),
                    output: output.clone(),
                    answer: String::new(),
                })
                .collect(),
            docs_source: DocsSource::Module,
        }
    }

    #[test]
    fn examples_that_do_not_fit_their_schemas_are_left_out_and_named() {
        let mut tools = [tool(&[
            ("good", json!({"a": 1}), json!(2)),
            ("no argument", json!({}), json!(2)),
            ("no number", json!({"a": 1}), json!("two")),
        ])];
        let notes = keep_fitting(&mut tools, CHECK_TIME).unwrap();
        let kept: Vec<_> = tools[0]
            .examples
            .iter()
            .map(|it| it.task.as_str())
            .collect();
        assert_eq!(kept, ["good"]);
        let [arguments, output] = notes.as_slice() else {
            panic!("{notes:?}");
        };
        assert!(
            arguments.contains("\"no argument\" of m.add") && arguments.contains("input schema"),
            "{arguments}"
        );
        assert!(
            output.contains("\"no number\" of m.add") && output.contains("output schema"),
            "{output}"
        );
    }

    #[test]
    fn examples_are_bounded_in_number_and_time() {
        let many = vec![("good", json!({"a": 1}), json!(2)); MAX_EXAMPLES + 1];
        let mut tools = [tool(&many)];
        let notes = keep_fitting(&mut tools, CHECK_TIME).unwrap();
        assert_eq!((tools[0].examples.len(), notes.len()), (MAX_EXAMPLES, 1));
        let late = keep_fitting(&mut tools, Duration::ZERO).unwrap_err();
        assert!(late.to_string().contains("give fewer"), "{late}");
    }
}
