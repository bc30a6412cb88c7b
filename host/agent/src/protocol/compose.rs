//! The one schema that goes to the model (PROTOCOL.md, 4).
//!
//! Order matters, because a model writes top to bottom: `calls` before `output`; in a call `_tool`
//! first, then `_reasoningForCall`, then the parameters.

use crate::protocol::Tool;
use crate::protocol::lower::Lowering;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Whether a solution may hold calls and an output at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Calls or an output. Small models, allowed both, call a tool and make up its answer in the
    /// same breath.
    #[default]
    Exclusive,
    /// Calls, an output, or both.
    Both,
}

/// How to compose.
#[derive(Debug, Clone, Copy)]
pub struct Composition {
    pub shape: Shape,
    /// Whether each call says why (`_reasoningForCall`).
    pub reasons: bool,
    /// The most calls in one solution.
    pub max_calls: usize,
    /// Bound for strings that have none: the only unparseable replies of small models were strings
    /// that ran into the token limit.
    pub max_string: Option<u32>,
}

/// Composes the schema for `tools` and the user's output schema (plain text if there is none).
/// The result uses only what every endpoint's grammar supports; the full schemas are validated on
/// our side afterwards.
pub fn compose(tools: &[Tool], output: Option<&Value>, how: Composition) -> Value {
    let mut lowering = Lowering::new(how.max_string);
    let output = match output {
        Some(schema) => lowering.lower(schema, "output"),
        None => lowering.lower(&json!({"type": "string"}), "output"),
    };
    if tools.is_empty() {
        let empty = json!({"type": "array", "items": {}, "maxItems": 0});
        return lowering.finish(solution(empty, output));
    }
    let calls: Vec<Value> = tools
        .iter()
        .map(|tool| call(tool, how.reasons, &mut lowering))
        .collect();
    let list = |least: usize| json!({"type": "array", "items": {"anyOf": calls}, "minItems": least, "maxItems": how.max_calls});
    let schema = match how.shape {
        Shape::Both => solution(list(0), json!({"anyOf": [output, {"type": "null"}]})),
        Shape::Exclusive => json!({"anyOf": [
            solution(list(1), json!({"type": "null"})),
            solution(json!({"type": "array", "items": {}, "maxItems": 0}), output),
        ]}),
    };
    lowering.finish(schema)
}

fn solution(calls: Value, output: Value) -> Value {
    json!({
        "type": "object",
        "properties": {"calls": calls, "output": output},
        "required": ["calls", "output"],
        "additionalProperties": false,
    })
}

fn call(tool: &Tool, reasons: bool, lowering: &mut Lowering) -> Value {
    let parameters = lowering.lower(&tool.parameters, &tool.name);
    let mut properties = Map::new();
    properties.insert("_tool".into(), json!({"const": tool.name}));
    let mut required = vec![json!("_tool")];
    if reasons {
        properties.insert(
            "_reasoningForCall".into(),
            json!({"type": "string", "maxLength": 200}),
        );
        required.push(json!("_reasoningForCall"));
    }
    if let Some(Value::Object(own)) = parameters.get("properties") {
        properties.extend(
            own.iter()
                .filter(|(key, _)| !key.starts_with('_'))
                .map(|(k, v)| (k.clone(), v.clone())),
        );
    }
    if let Some(Value::Array(own)) = parameters.get("required") {
        required.extend(own.iter().cloned());
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Annotations;

    fn tool(name: &str) -> Tool {
        Tool {
            name: name.into(),
            description: String::new(),
            parameters: json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}),
            output: None,
            annotations: Annotations::default(),
            examples: Vec::new(),
        }
    }

    const HOW: Composition = Composition {
        shape: Shape::Exclusive,
        reasons: true,
        max_calls: 4,
        max_string: None,
    };

    #[test]
    fn exclusive_means_calls_or_output() {
        let schema = compose(&[tool("a.b")], None, HOW);
        let validator = jsonschema::validator_for(&schema).unwrap();
        let call = json!({"_tool": "a.b", "_reasoningForCall": "r", "x": 1});
        assert!(validator.is_valid(&json!({"calls": [call], "output": null})));
        assert!(validator.is_valid(&json!({"calls": [], "output": "done"})));
        assert!(!validator.is_valid(&json!({"calls": [call], "output": "401"})));
        assert!(!validator.is_valid(&json!({"calls": [], "output": null})));
    }

    #[test]
    fn the_model_writes_the_tool_first_and_calls_before_output() {
        let text = compose(
            &[tool("a.b")],
            None,
            Composition {
                shape: Shape::Both,
                ..HOW
            },
        )
        .to_string();
        let at = |needle: &str| text.find(needle).unwrap();
        assert!(at("\"calls\"") < at("\"output\""));
        assert!(
            at("\"_tool\"") < at("\"_reasoningForCall\"")
                && at("\"_reasoningForCall\"") < at("\"x\"")
        );
    }

    #[test]
    fn without_tools_only_an_output_is_possible() {
        let validator = jsonschema::validator_for(&compose(&[], None, HOW)).unwrap();
        assert!(validator.is_valid(&json!({"calls": [], "output": "x"})));
        assert!(!validator.is_valid(&json!({"calls": [{}], "output": "x"})));
    }
}
