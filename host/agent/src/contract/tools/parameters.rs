//! Functions as a model is shown them: their descriptions, and the schemas of their parameters.

use crate::catalogue::{FunctionForm, ToolCatalogue};
use crate::contract::text;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use toolhold_json::descriptions::{self, DESCRIPTIONS};
use toolhold_json::grammar_subset::{ALSO, GrammarSubset};
use toolhold_policy::prompt::PromptText;
use toolhold_policy::text::is_plain_json;
use toolhold_protocol::compose::{self, CallForm, Properties};
use toolhold_protocol::tool::Tool;

/// Describes the tool and its reserved parameters.
fn description(tool: &Tool, lazy: bool) -> PromptText {
    let mut lines = vec![PromptText::default().quoted(&tool.description).take()];
    lines.extend(text::reserved(tool, lazy));
    PromptText::joined(&lines, "\n")
}

/// The function that stands for a tool.
pub(super) fn function(
    tool: &Arc<Tool>,
    form: CallForm<'_>,
    catalogue: &ToolCatalogue,
) -> Arc<FunctionForm> {
    // Functions stand before the conversation: the same bytes at every step, so that prefix caches hit.
    let form = CallForm {
        answers: true,
        ..form
    };
    let make = || FunctionForm {
        description: description(tool, form.lazy),
        parameters: parameters(tool, form),
    };
    match catalogue.forms(tool).zip(form.shared()) {
        Some((forms, form)) => forms.functions.get_or_make(form, make),
        None => Arc::new(make()),
    }
}

/// The parameters of a call of `tool`, reserved ones included.
fn parameters(tool: &Tool, form: CallForm<'_>) -> Value {
    let mut subset = GrammarSubset::new(None).with_descriptions();
    let Properties {
        properties,
        required,
        additional,
    } = compose::properties(tool, form, &mut subset);
    shown(subset.finish(Value::from_iter([
        ("type", "object".into()),
        ("properties", Value::Object(properties)),
        ("required", required.into()),
        ("additionalProperties", additional),
    ])))
}

/// The parameters of a function that stands for one member of the solution. `authored` leaves its schema as it was written.
pub(super) fn function_of(member: &str, schema: &Value, authored: bool) -> Value {
    let mut subset = GrammarSubset::new(None).with_descriptions();
    let schema = if authored {
        subset.authored(schema)
    } else {
        subset.reduce(schema, "")
    };
    subset.finish(json!({
        "type": "object",
        "required": [member],
        "properties": {member: schema},
        "additionalProperties": false,
    }))
}

/// Values that a call must have, and the words before them where they stand in a description.
const VALUES: [(&str, &str); 3] = [
    ("enum", "One of these values, which are written as JSON: "),
    ("const", "This value, which is written as JSON: "),
    (ALSO, "It must satisfy this JSON Schema, too: "),
];

/// Keywords whose texts are looked at where they are: descriptions, names and schemas.
const LOOKED_AT: [&str; 21] = [
    "$defs",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "definitions",
    "dependentSchemas",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// A reduced schema for chat templates, which write its texts as they are, some as lines of their own. Each description
/// stands behind a bar. A value with a line break or a hidden character stands in the description, as JSON on one line.
/// Other such texts are left out: calls are checked against the whole schema. Names have no such characters
/// (`text::check_names`).
pub(super) fn shown(mut schema: Value) -> Value {
    descriptions::each(&mut schema, &mut |text| {
        *text = PromptText::default().quoted(text).take().into();
    });
    descriptions::each_schema(&mut schema, &mut tell_values);
    schema
}

/// Moves values that do not stay on their line into the description, which stands behind a bar already.
fn tell_values(schema: &mut Map<String, Value>) {
    let mut told = Vec::new();
    for (keyword, words) in VALUES {
        let own = schema.get(keyword);
        if own.is_none_or(|value| keyword != ALSO && is_plain_json(value)) {
            continue;
        }
        let Some(value) = schema.shift_remove(keyword) else {
            continue;
        };
        told.push(PromptText::from(words).json(&value).take());
        if keyword != ALSO && is_of_texts(&value) {
            schema.insert("type".into(), "string".into());
        }
    }
    schema.retain(|key, value| {
        let key = key.as_str();
        let is_looked_at =
            DESCRIPTIONS.contains(&key) || (LOOKED_AT.contains(&key) && !value.is_string());
        is_looked_at || is_plain_json(value)
    });
    if told.is_empty() {
        return;
    }
    let told = String::from(PromptText::joined(&told, "\n"));
    let description = match schema.get("description").and_then(Value::as_str) {
        None | Some("") => told,
        Some(own) => format!("{own}\n{told}"),
    };
    schema.insert("description".into(), description.into());
}

/// True for a text, or a list of texts.
fn is_of_texts(value: &Value) -> bool {
    let items = value.as_array().map(Vec::as_slice);
    let items = items.unwrap_or(std::slice::from_ref(value));
    items.iter().all(Value::is_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_protocol::compose::Composition;

    #[test]
    fn each_text_that_describes_a_parameter_stands_behind_a_bar() {
        let texts = json!({"title": "# Task", "description": "Looks at: x", "$comment": "- y"});
        let schema = json!({"definitions": {"a": texts}, "dependentSchemas": {"b": texts}});
        let schema = shown(schema);
        let quoted =
            json!({"title": "│ # Task", "description": "│ Looks at: x", "$comment": "│ - y"});
        assert_eq!(
            schema,
            json!({"definitions": {"a": quoted}, "dependentSchemas": {"b": quoted}})
        );
    }

    #[test]
    fn a_value_with_a_line_break_stands_in_the_description() {
        let told = "One of these values, which are written as JSON: [\"\\n\",\"a\"]";
        for (schema, expect) in [
            (
                json!({"description": "Ends lines.", "enum": ["\n", "a"]}),
                json!({"description": format!("│ Ends lines.\n{told}"), "type": "string"}),
            ),
            (
                json!({"items": {"enum": ["\n", "a"]}}),
                json!({"items": {"description": told, "type": "string"}}),
            ),
            (
                json!({"const": {"a\u{200b}": 1}}),
                json!({"description": "This value, which is written as JSON: {\"a\\u200b\":1}"}),
            ),
            (
                json!({"type": "string", "pattern": "^\n$"}),
                json!({"type": "string"}),
            ),
            (json!({"enum": ["a b", 1]}), json!({"enum": ["a b", 1]})),
            (
                json!({"type": "integer", ALSO: {"multipleOf": 5}, "description": "Euros."}),
                json!({"type": "integer", "description":
                    "│ Euros.\nIt must satisfy this JSON Schema, too: {\"multipleOf\":5}"}),
            ),
            (
                json!({"type": "string", "default": ["\n"], "examples": ["a"]}),
                json!({"type": "string", "examples": ["a"]}),
            ),
        ] {
            assert_eq!(shown(schema), expect);
        }
    }

    #[test]
    fn without_a_grammar_the_authors_schema_is_sent() {
        let own = json!({"type": "number", "minimum": 0.5, "multipleOf": 0.5, "default": 1.0});
        let tool = Tool {
            parameters: json!({"type": "object", "properties": {"n": own}, "required": ["n"]}),
            ..Tool::new("a.b")
        };
        let reduced = json!({"type": "number", "minimum": 0.5, "default": 1.0,
            "description": "It must satisfy this JSON Schema, too: {\"multipleOf\":0.5}"});
        for (authored, wiring, expect) in [
            (true, false, Some(&own)),
            (false, false, Some(&reduced)),
            (true, true, None),
        ] {
            let how = Composition {
                authored,
                wiring,
                ..Composition::default()
            };
            let schema = parameters(&tool, how.call_form());
            assert_eq!(schema["required"][0], "n");
            match expect {
                Some(expect) => assert_eq!(schema["properties"]["n"], *expect),
                None => assert!(schema["properties"]["n"]["anyOf"].is_array(), "{schema}"),
            }
        }
        let answer = json!({"$ref": "#/$defs/N", "$defs": {"N": own}});
        for (authored, name) in [(true, "N"), (false, "_N")] {
            let schema = function_of("output", &answer, authored);
            assert_eq!(
                schema["properties"]["output"]["$ref"],
                format!("#/$defs/{name}")
            );
            assert_eq!(schema["$defs"][name]["minimum"], 0.5);
        }
    }
}
