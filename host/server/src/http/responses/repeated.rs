//! Members of a request as its response repeats them: in the forms of the Open Responses specification, which has one
//! form for each where requests have several.

use crate::http::tool_choice::ChosenTools;
use serde_json::{Map, Value, json};

/// Values of `text.verbosity`.
const VERBOSITIES: [&str; 3] = ["low", "medium", "high"];
/// Name of a format for which the client has none.
const UNNAMED_FORMAT: &str = "answer";

/// The tool choice, with the names of functions beside `type`.
pub fn tool_choice(choice: &Value) -> Value {
    let function = |name: &String| json!({"type": "function", "name": name});
    match ChosenTools::read("tool_choice", choice) {
        // A choice that cannot be read is refused before a response is made.
        Ok(ChosenTools::Auto) | Err(_) => "auto".into(),
        Ok(ChosenTools::None) => "none".into(),
        Ok(ChosenTools::Required) => "required".into(),
        Ok(ChosenTools::Named(name)) => function(&name),
        Ok(ChosenTools::Allowed { names, is_required }) => {
            let tools: Vec<Value> = names.iter().map(function).collect();
            let mode = if is_required { "required" } else { "auto" };
            json!({"type": "allowed_tools", "mode": mode, "tools": tools})
        }
    }
}

/// The options of the text, with a format in any case.
pub fn text(text: &Value) -> Value {
    let mut repeated = Map::from_iter([("format".to_owned(), format(&text["format"]))]);
    let verbosity = text["verbosity"].as_str();
    if let Some(verbosity) = verbosity.filter(|it| VERBOSITIES.contains(it)) {
        repeated.insert("verbosity".into(), verbosity.into());
    }
    repeated.into()
}

fn format(format: &Value) -> Value {
    match format["type"].as_str() {
        Some(kind @ ("text" | "json_object")) => json!({"type": kind}),
        _ if format["schema"].is_object() => json!({
            "type": "json_schema",
            "name": format["name"].as_str().unwrap_or(UNNAMED_FORMAT),
            "description": format["description"].as_str(),
            "schema": format["schema"],
            "strict": format["strict"].as_bool().unwrap_or(false),
        }),
        _ => json!({"type": "text"}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_choice_is_repeated_in_one_form() {
        let nested = json!({"type": "function", "function": {"name": "weather"}});
        let flat = json!({"type": "function", "name": "weather"});
        for (choice, repeated) in [
            (Value::Null, json!("auto")),
            (json!("any"), json!("required")),
            (nested.clone(), flat.clone()),
            (
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [nested]}}),
                json!({"type": "allowed_tools", "mode": "required", "tools": [flat]}),
            ),
            (
                json!({"type": "allowed_tools", "tools": [flat]}),
                json!({"type": "allowed_tools", "mode": "auto", "tools": [flat]}),
            ),
        ] {
            assert_eq!(tool_choice(&choice), repeated, "{choice}");
        }
    }

    #[test]
    fn a_format_is_repeated_with_all_of_its_members() {
        let schema = json!({"type": "object"});
        for (given, repeated) in [
            (Value::Null, json!({"format": {"type": "text"}})),
            (
                json!({"verbosity": "low"}),
                json!({"format": {"type": "text"}, "verbosity": "low"}),
            ),
            (
                json!({"format": {"type": "json_object", "of": 1}, "verbosity": 7}),
                json!({"format": {"type": "json_object"}}),
            ),
            (
                json!({"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": true}}),
                json!({"format": {"type": "json_schema", "name": "n", "description": null, "schema": schema, "strict": true}}),
            ),
            (
                json!({"format": {"type": "json_schema", "schema": schema}}),
                json!({"format": {"type": "json_schema", "name": "answer", "description": null, "schema": schema, "strict": false}}),
            ),
        ] {
            assert_eq!(text(&given), repeated, "{given}");
        }
    }
}
