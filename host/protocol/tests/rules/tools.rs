//! Section 3: tools.

use serde_json::{Value, json};
use std::sync::Arc;
use toolhold_protocol::function_names::ToolNames;
use toolhold_protocol::tool::{Execution, OutputPath, Scopes, Tool, ToolError};

/// A tool named `weather`, where one Activity is registered, `known`.
fn parse(schema: &Value) -> Result<(Tool, Vec<String>), ToolError> {
    Tool::parse("weather", schema, |name| name == "known")
}

fn one_of(places: &[&str]) -> OutputPath {
    let places = places.iter().map(|place| place.parse().unwrap());
    OutputPath::OneOf(places.collect())
}

#[test]
fn reserved_properties_are_read_and_not_parameters() {
    let rule = "3.1";
    let schema = json!({
        "type": "object",
        "description": "The weather of a city.",
        "properties": {
            "_tool": {"const": "weather"},
            "_module": {"const": "meteo@1.2"},
            "city": {"type": "string"},
            "_outputPath": {"const": "†state.weather"},
            "_scopes": {"const": ["user", "†state.home"]},
            "_output": {"type": "object"},
        },
        "required": ["_tool", "city"],
        "annotations": {"readOnly": true},
    });
    let (tool, warnings) = parse(&schema).unwrap();
    assert_eq!(
        tool.parameters,
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),
        "{rule}"
    );
    assert_eq!(tool.description, "The weather of a city.");
    assert_eq!(tool.execution, Execution::Module("meteo@1.2".into()));
    assert_eq!(
        tool.fixed_output_path().unwrap().to_string(),
        "†state.weather"
    );
    assert_eq!(tool.output, Some(json!({"type": "object"})));
    assert_eq!(
        tool.scopes,
        Scopes::Provisioned(vec![
            "†user".parse().unwrap(),
            "†state.home".parse().unwrap()
        ])
    );
    assert!(tool.annotations.read_only);
    assert!(warnings.is_empty());
}

#[test]
fn a_title_stands_beside_the_description() {
    for (rule, title, description, meant) in [
        (
            "3.1",
            Some("Weather"),
            Some("Of a city."),
            "Weather\nOf a city.",
        ),
        ("3.1", Some("Weather"), None, "Weather"),
        ("3.1", None, Some("Of a city."), "Of a city."),
    ] {
        let schema = json!({"type": "object", "title": title, "description": description});
        let (tool, _) = parse(&schema).unwrap();
        assert_eq!(tool.description, meant, "{rule}");
    }
}

#[test]
fn a_call_is_run_by_the_first_that_is_named() {
    let activity = |name: &str| Execution::Activity(name.into());
    let module = |name: &str| Execution::Module(name.into());
    for (rule, name, properties, expect) in [
        (
            "3.2",
            "t",
            json!({"_module": {"const": "m"}, "_activity": {"const": "a"}}),
            module("m"),
        ),
        (
            "3.2",
            "t",
            json!({"_delegate": {"const": "m"}}),
            module("m"),
        ),
        (
            "3.2",
            "t",
            json!({"_module": {"const": "anonymous"}, "_activity": {"const": "a"}}),
            activity("a"),
        ),
        (
            "3.2",
            "t",
            json!({"_delegate": {"const": "anonymous"}, "_activity": {"const": ""}}),
            module("anonymous"),
        ),
        (
            "3.2",
            "t",
            json!({"_activity": {"const": "a"}}),
            activity("a"),
        ),
        ("3.2", "t", json!({"_activity": "a"}), activity("a")),
        ("3.2", "known", json!({"_activity": ""}), activity("known")),
        ("3.2", "known", json!({}), activity("known")),
        ("3.2", "t", json!({"_activity": ""}), Execution::Latent),
        ("3.2", "t", json!({}), Execution::Latent),
    ] {
        let schema = json!({"type": "object", "properties": properties});
        let (tool, _) = Tool::parse(name, &schema, |name| name == "known").unwrap();
        assert_eq!(tool.execution, expect, "{rule}: {schema}");
    }
}

#[test]
fn scopes_and_places_are_fixed_by_the_author_or_left_to_the_call() {
    let user = || vec!["†user".parse().unwrap()];
    let free = (Scopes::None, None);
    for (rule, properties, meant) in [
        (
            "3.1",
            json!({"_scopes": {"const": ["user"]}}),
            (Scopes::Provisioned(user()), None),
        ),
        (
            "3.1",
            json!({"_scopes": {"type": "array", "items": {"enum": ["user"]}}}),
            (Scopes::Requested(user()), None),
        ),
        // The older name.
        (
            "3.1",
            json!({"_imports": {"type": "array", "items": {"enum": ["user"]}}}),
            (Scopes::Requested(user()), None),
        ),
        (
            "3.1",
            json!({"_outputPath": {"const": "†state.x"}}),
            (
                Scopes::None,
                Some(OutputPath::Fixed("†state.x".parse().unwrap())),
            ),
        ),
        // The model chooses where what it writes itself goes.
        (
            "5.5",
            json!({"_outputPath": {"const": "†state.x || †state.y"}}),
            (Scopes::None, Some(one_of(&["†state.x", "†state.y"]))),
        ),
        (
            "5.5",
            json!({"_module": {"const": "m"}, "_outputPath": {"const": "†state.x || †state.y"}}),
            (
                Scopes::None,
                Some(OutputPath::Fixed("†state.x || †state.y".parse().unwrap())),
            ),
        ),
        (
            "3.1",
            json!({"_module": {"const": "m"}, "_outputPath": {"enum": ["†state.x", "†state.y && †z"], "pattern": "^†"}}),
            (Scopes::None, Some(one_of(&["†state.x", "†state.y && †z"]))),
        ),
        (
            "3.1",
            json!({"_outputPath": {"enum": ["†state.x"]}}),
            (
                Scopes::None,
                Some(OutputPath::Fixed("†state.x".parse().unwrap())),
            ),
        ),
        (
            "3.1",
            json!({"_outputPath": {"type": "string", "pattern": "^†"}}),
            free.clone(),
        ),
        ("3.6", json!({}), free),
    ] {
        let (tool, warnings) = parse(&json!({"properties": properties})).unwrap();
        assert_eq!(
            (tool.scopes, tool.output_path),
            meant,
            "{rule}: {properties}"
        );
        assert!(warnings.is_empty(), "{rule}: {warnings:?}");
    }
}

#[test]
fn faults_name_the_place() {
    for (rule, schema, place, reason) in [
        ("3.1", json!([]), "", "must be a JSON Schema object"),
        ("3.1", json!({"type": "string"}), "/type", "\"object\""),
        (
            "3.1",
            json!({"properties": []}),
            "/properties",
            "must be an object",
        ),
        (
            "3.1",
            json!({"properties": {"_tool": {"const": "x"}}}),
            "/properties/_tool",
            "\"weather\"",
        ),
        (
            "3.1",
            json!({"properties": {"_module": {"const": " "}}}),
            "/properties/_module",
            "names a module",
        ),
        (
            "3.1",
            json!({"properties": {"_activity": {"const": 1}}}),
            "/properties/_activity",
            "names an activity",
        ),
        (
            "3.1",
            json!({"properties": {"_outputPath": {"const": "state"}}}),
            "/properties/_outputPath",
            "a dagger",
        ),
        (
            "3.1",
            json!({"properties": {"_outputPath": {"enum": ["†a", "b"]}}}),
            "/properties/_outputPath/enum/1",
            "a dagger",
        ),
        (
            "3.1",
            json!({"properties": {"_outputPath": {"enum": []}}}),
            "/properties/_outputPath/enum",
            "a list of places",
        ),
        (
            "3.1",
            json!({"properties": {"_outputPath": {"enum": ["†a", "†b"], "pattern": "^†a"}}}),
            "/properties/_outputPath/enum/1",
            "breaks the rest of the schema",
        ),
        (
            "3.1",
            json!({"properties": {"_outputPath": {"enum": (0..17).map(|n| format!("†a.b{n}")).collect::<Vec<_>>()}}}),
            "/properties/_outputPath/enum",
            "more than 16 places",
        ),
        (
            "3.1",
            json!({"properties": {"_outputPath": {"pattern": "("}}}),
            "/properties/_outputPath",
            "cannot be used",
        ),
        (
            "3.1",
            json!({"properties": {"_scopes": {"const": ["a b"]}}}),
            "/properties/_scopes",
            "no context key",
        ),
        (
            "3.1",
            json!({"properties": {"_scopes": {"type": "array"}}}),
            "/properties/_scopes",
            "a const",
        ),
        (
            "3.1",
            json!({"resolve": "later"}),
            "/resolve",
            "\"upfront\"",
        ),
        (
            "3.1",
            json!({"annotations": {"readOnly": 1}}),
            "/annotations",
            "invalid type",
        ),
    ] {
        let error = parse(&schema).unwrap_err();
        assert_eq!(error.place, place, "{rule}: {schema}: {error}");
        assert!(
            error.to_string().contains(reason),
            "{rule}: {schema}: {error}"
        );
    }
}

#[test]
fn names_are_such_that_every_contract_can_carry_them() {
    let long = "a".repeat(64);
    for (rule, name, fits) in [
        ("3.1", "a", true),
        ("3.1", "files.read_all2", true),
        ("3.1", long.as_str(), true),
        ("3.1", &format!("{long}a"), false),
        ("3.1", "", false),
        ("3.1", "a b", false),
        ("3.1", "größe", false),
        ("3.1", ".a", false),
        // As OpenAI's API allows them.
        ("3.1", "2a", true),
        ("3.1", "-_", true),
        ("3.1", "resolve-library-id", true),
        // Members of a solution, and the function that ends a run (4.2).
        ("3.1", "meta", true),
        ("3.1", "advisors", true),
        ("4.2", "finish", true),
    ] {
        let read = Tool::parse(name, &json!({"type": "object"}), |_| false);
        assert_eq!(read.is_ok(), fits, "{rule}: {name:?}");
    }
}

#[test]
fn names_go_out_in_a_form_that_others_take_and_come_in_as_they_are_meant() {
    let tools =
        ["calculator.evaluate", "s.get-Forecast", "finish"].map(|name| Arc::new(Tool::new(name)));
    let names = ToolNames::new(&tools, &[]);
    for (rule, own, form, written) in [
        (
            "4.12",
            "calculator.evaluate",
            "calculator-evaluate",
            "functions.calculator_evaluate",
        ),
        (
            "4.12",
            "s.get-Forecast",
            "s-get-Forecast",
            "s-get-forecast<|channel|>commentary",
        ),
        ("4.12", "finish", "finish", "tools.finish\n"),
    ] {
        assert_eq!(names.map().outward(own), form, "{rule}");
        for written in [own, form, written] {
            assert_eq!(names.map().meant(written), Some(own), "{rule}: {written}");
        }
    }
    assert_eq!(names.map().meant("evaluate"), None);
    assert_eq!(names.member("finish"), "finish_solution");
}

#[test]
fn a_schema_of_parameters_as_it_was_written_is_taken_whole() {
    let rule = "3.7";
    let own = json!({
        "title": "Args", "properties": {"_count": {"type": "integer"}, "code": {"pattern": "^(?!x)", "maxLength": 3}},
        "required": ["_count"],
    });
    let schema = json!({"properties": {"_activity": {"const": "known"}, "_parameters": own}});
    let (tool, warnings) = parse(&schema).unwrap();
    assert_eq!(
        tool.parameters,
        json!({
            "type": "object", "properties": {"_count": {"type": "integer"}, "code": {"maxLength": 3}}, "required": ["_count"],
        }),
        "{rule}"
    );
    assert!(
        warnings.len() == 1 && warnings[0].contains("/properties/code/pattern"),
        "{rule}: {warnings:?}"
    );
    let (again, _) = Tool::parse("weather", &tool.schema(), |_| false).unwrap();
    assert_eq!(again.parameters, tool.parameters, "{rule}");
    let none = parse(&json!({"properties": {"_parameters": 7}})).unwrap_err();
    assert_eq!(none.place, "/properties/_parameters", "{rule}");
}

#[test]
fn meaningless_setting_is_ignored_with_a_warning() {
    for (rule, properties, named) in [
        ("3.4", json!({"_colour": {"const": "red"}}), "\"_colour\""),
        (
            "3.4",
            json!({"_outputMethod": {"const": "push"}}),
            "belongs to calls",
        ),
    ] {
        let (tool, warnings) = parse(&json!({"properties": properties})).unwrap();
        assert!(
            warnings.len() == 1 && warnings[0].contains(named),
            "{rule}: {warnings:?}"
        );
        assert_eq!(tool.parameters["properties"], json!({}), "{rule}");
    }
}
