//! Section 4: the composed schema.

use serde_json::{Value, json};
use toolhold_protocol::compose::{Composition, Shape, compose};
use toolhold_protocol::tool::{Execution, Scopes, Tool};
use toolhold_schema::Validator;

const HOW: Composition<'_> = Composition {
    shape: Shape::Exclusive,
    reasons: true,
    max_calls: 8,
    max_string: None,
    wiring: false,
    lazy: false,
    answers: false,
    instances: &[],
    meta: None,
    advisors: None,
    forced: false,
    demanded: &[],
    forcing: toolhold_protocol::compose::Forcing::Named,
    authored: false,
    reading: toolhold_json::rules::ReadingRules::Current,
    names: None,
};

/// Whether a solution satisfies a schema, by the validator that the host itself uses.
fn accepts(schema: &Value, solution: &Value) -> bool {
    Validator::new(schema).unwrap().check(solution).is_ok()
}

fn with(parameter: &Value) -> Tool {
    Tool {
        parameters: json!({"type": "object", "properties": {"p": parameter}}),
        execution: Execution::Module("echo.say".into()),
        ..Tool::new("echo.say")
    }
}

/// Whether the schema that a model is given for this tool accepts a solution.
fn composed(tool: &Tool, shape: Shape, wiring: bool) -> Value {
    let how = Composition {
        shape,
        wiring,
        ..HOW
    };
    compose(std::slice::from_ref(tool), None, how)
}

#[test]
fn exclusive_is_calls_or_an_output_and_both_is_any_of_it() {
    let call = json!({"_tool": "echo.say", "_reasoningForCall": "r", "p": 1});
    let offered = with(&json!({"type": "integer"}));
    for (rule, solution, exclusive, both) in [
        ("4.8", json!({"calls": [call], "output": null}), true, true),
        ("4.8", json!({"calls": [], "output": "x"}), true, true),
        ("4.8", json!({"calls": [call], "output": "x"}), false, true),
        ("4.8", json!({"calls": [call]}), false, false),
        ("4.8", json!({"calls": [], "output": 7}), false, false),
        (
            "4.8",
            json!({"calls": [{"_tool": "other"}], "output": null}),
            false,
            false,
        ),
        (
            "4.8",
            json!({"calls": [call], "output": null, "more": 1}),
            false,
            false,
        ),
        (
            "4.8",
            json!({"calls": vec![call.clone(); 9], "output": null}),
            false,
            false,
        ),
    ] {
        for (shape, meant) in [(Shape::Exclusive, exclusive), (Shape::Both, both)] {
            let schema = composed(&offered, shape, false);
            assert_eq!(
                accepts(&schema, &solution),
                meant,
                "{rule}: {shape:?} {solution}"
            );
        }
    }
}

#[test]
fn every_parameter_accepts_a_reference_where_data_is_wired() {
    for (rule, parameter, own) in [
        ("4.6", json!({"type": "integer"}), json!(7)),
        ("4.6", json!({"type": "number"}), json!(0.5)),
        ("4.6", json!({"type": "boolean"}), json!(true)),
        ("4.6", json!({"type": "null"}), Value::Null),
        (
            "4.6",
            json!({"type": "array", "items": {"type": "integer"}}),
            json!([1]),
        ),
        (
            "4.6",
            json!({"type": "object", "properties": {"x": {"type": "integer"}}}),
            json!({"x": 1}),
        ),
        ("4.6", json!({"type": ["integer", "null"]}), Value::Null),
        ("4.6", json!({"enum": ["a", "b"]}), json!("a")),
        ("4.6", json!({"const": 7}), json!(7)),
        (
            "4.6",
            json!({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}),
            json!(7),
        ),
        (
            "4.6",
            json!({"oneOf": [{"type": "integer"}, {"type": "boolean"}]}),
            json!(false),
        ),
        (
            "4.6",
            json!({"type": "string", "pattern": "^[a-z]$"}),
            json!("a"),
        ),
        (
            "4.6",
            json!({"type": "string", "maxLength": 3}),
            json!("abc"),
        ),
        (
            "4.6",
            json!({"type": "string", "minLength": 200}),
            json!("x".repeat(200)),
        ),
    ] {
        let call = |value: &Value| json!({"calls": [{"_tool": "echo.say", "_reasoningForCall": "r", "p": value}], "output": null});
        for wiring in [true, false] {
            let schema = composed(&with(&parameter), Shape::Exclusive, wiring);
            assert!(
                accepts(&schema, &call(&own)),
                "{rule}: {parameter} {schema}"
            );
            let reference = json!("†state.user.profile.name");
            assert_eq!(
                accepts(&schema, &call(&reference)),
                wiring,
                "{rule}: {parameter} {wiring} {schema}"
            );
        }
    }
    for free in [
        json!({"type": "string"}),
        json!({}),
        json!(true),
        json!({"type": "string", "maxLength": 500}),
    ] {
        let schema = composed(&with(&free), Shape::Exclusive, true);
        assert!(
            !schema.to_string().contains(r#""p":{"anyOf""#),
            "text that can be anything needs no branch: {schema}"
        );
    }
}

/// Inside of a parameter too, so that a record is not copied for one of its fields.
#[test]
fn parts_of_parameters_accept_references_where_data_is_wired() {
    let number = || json!({"type": "number"});
    let point = || json!({"type": "object", "properties": {"x": number()}, "required": ["x"]});
    let reference = json!("†state.user.profile.name");
    for (rule, parameter, wired, own) in [
        ("4.6", point(), json!({"x": reference}), json!({"x": 1})),
        (
            "4.6",
            json!({"type": "array", "items": number()}),
            json!([1, reference]),
            json!([1]),
        ),
        (
            "4.6",
            json!({"type": "array", "prefixItems": [number()]}),
            json!([reference]),
            json!([1]),
        ),
        (
            "4.6",
            json!({"type": "array", "items": point()}),
            json!([{"x": reference}, reference]),
            json!([{"x": 1}]),
        ),
        (
            "4.6",
            json!({"type": "object", "additionalProperties": number()}),
            json!({"any": reference}),
            json!({"any": 1}),
        ),
        (
            "4.6",
            json!({"anyOf": [point(), {"type": "null"}]}),
            json!({"x": reference}),
            Value::Null,
        ),
        (
            "4.6",
            json!({"oneOf": [
                {"type": "object", "properties": {"kind": {"const": "p"}, "at": point()}},
                {"type": "object", "properties": {"kind": {"const": "n"}, "n": {"enum": [1, 2]}}},
            ]}),
            json!({"kind": "n", "n": reference}),
            json!({"kind": "p", "at": {"x": 1}}),
        ),
        (
            "4.6",
            json!({"type": "object", "properties": {"list": {"type": "array", "items": point()}}}),
            json!({"list": [{"x": reference}]}),
            json!({"list": [{"x": 1}]}),
        ),
        (
            "4.6",
            json!({"$ref": "#/$defs/Tree"}),
            json!({"n": 1, "below": [{"n": reference, "below": reference}]}),
            json!({"n": 1, "below": [{"n": 2}]}),
        ),
    ] {
        let mut offered = with(&parameter);
        offered.parameters["$defs"] = json!({"Tree": {"type": "object", "properties": {
            "n": {"type": "integer"}, "below": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
        }, "required": ["n"]}});
        let call = |value: &Value| json!({"calls": [{"_tool": "echo.say", "_reasoningForCall": "r", "p": value}], "output": null});
        for wiring in [true, false] {
            let schema = composed(&offered, Shape::Exclusive, wiring);
            assert!(accepts(&schema, &call(&own)), "{rule}: {own} {schema}");
            assert_eq!(
                accepts(&schema, &call(&wired)),
                wiring,
                "{rule}: {wired} {wiring} {schema}"
            );
            assert!(
                !accepts(&schema, &call(&json!({"x": "x", "n": "x"}))),
                "no other text: {schema}"
            );
        }
    }
}

/// What a tool or an output may be described by, and what no grammar has to know.
#[test]
fn a_composed_schema_has_only_what_grammars_support_and_refuses_nothing_that_fits() {
    const SAFE: [&str; 20] = [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "anyOf",
        "enum",
        "const",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "$ref",
        "$defs",
    ];
    fn check(schema: &Value) {
        let Value::Object(keywords) = schema else {
            return;
        };
        for (keyword, value) in keywords {
            assert!(SAFE.contains(&keyword.as_str()), "{keyword} in {schema}");
            match (keyword.as_str(), value) {
                ("properties" | "$defs", Value::Object(each)) => each.values().for_each(check),
                ("anyOf", Value::Array(each)) => each.iter().for_each(check),
                ("items" | "additionalProperties", one) => check(one),
                // llama.cpp answers 400 to more, and some of its versions to exactly as many.
                ("minItems" | "maxItems" | "minLength" | "maxLength", bound) => {
                    assert!(bound.as_u64().unwrap() < 2_000, "{keyword} in {schema}");
                }
                _ => {}
            }
        }
    }
    let point =
        json!({"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]});
    for (rule, parameters, fits) in [
        ("4.7", json!({"type": "object"}), json!({})),
        (
            "4.7",
            json!({"type": "object", "additionalProperties": true}),
            json!({"any": [1]}),
        ),
        (
            "4.7",
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"any": 1}),
        ),
        (
            "4.7",
            json!({"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 2}}}),
            json!({"a": 4}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"type": "array", "uniqueItems": true, "prefixItems": [{"type": "string"}]}}}),
            json!({"a": ["x"]}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"allOf": [point, {"required": ["y"]}]}}}),
            json!({"a": {"x": 1, "y": 2}}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"not": {"type": "null"}}}}),
            json!({"a": 1}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"if": {"const": 1}, "then": {}, "else": {}}}}),
            json!({"a": 1}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"type": "string", "pattern": "(?i)\\w+"}}}),
            json!({"a": "x"}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"type": "string", "format": "email"}}}),
            json!({"a": "x@y"}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"$ref": "#/$defs/P"}}, "$defs": {"P": point}}),
            json!({"a": {"x": 1}}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"], "properties": {"b": {}}}]}),
            json!({"b": 1}),
        ),
        (
            "4.7",
            json!({"oneOf": [{"properties": {"k": {"const": "p"}, "p": point}}, {"properties": {"k": {"const": "n"}, "n": {"type": "integer"}}}]}),
            json!({"k": "n", "n": 1}),
        ),
        (
            "4.7",
            json!({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {}}}]}),
            json!({"a": 1, "b": 2}),
        ),
        (
            "4.7",
            json!({"if": {"properties": {"a": {"const": 1}}}, "then": {"properties": {"b": {}}}, "properties": {"a": {}}}),
            json!({"a": 1, "b": 2}),
        ),
        (
            "4.7",
            json!({"$ref": "#/$defs/P", "$defs": {"P": point}}),
            json!({"x": 1}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {}}, "patternProperties": {"^x-": {}}}),
            json!({"a": 1, "x-y": 2}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {}}, "required": ["a", "b"]}),
            json!({"a": 1, "b": 2}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"type": "object", "patternProperties": {"^x-": {"type": "integer"}},
                "additionalProperties": false}}}),
            json!({"a": {"x-y": 2}}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}}}),
            json!({"a": ["x", 1, 2]}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"type": "object", "properties": {"k": {}}, "oneOf": [point, {"required": ["y"]}]}}}),
            json!({"a": {"k": 1, "y": 2}}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"$ref": "#/$defs/P", "properties": {"y": {}}, "required": ["y"]}}, "$defs": {"P": point}}),
            json!({"a": {"x": 1, "y": 2}}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"properties": {"k": {}}, "dependentSchemas": {"k": {"properties": {"y": {}}}}}}}),
            json!({"a": {"k": 1, "y": 2}}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"properties": {"k": {}}, "unevaluatedProperties": {"type": "integer"}}}}),
            json!({"a": {"k": "x", "y": 2}}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "integer"}}}),
            json!({"a": 1, "b": 2}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"type": "string", "maxLength": 65_536}}}),
            json!({"a": "x".repeat(3_000)}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"type": "string", "minLength": 2_000, "maxLength": 2_000}}}),
            json!({"a": "x".repeat(2_000)}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"type": "array", "items": {"type": "integer"}, "minItems": 5_000}}}),
            json!({"a": vec![1; 5_000]}),
        ),
        (
            "4.7",
            json!({"properties": {"a": {"type": "array", "items": {}, "maxItems": 100_000}}}),
            json!({"a": [1]}),
        ),
    ] {
        let offered = Tool {
            parameters: parameters.clone(),
            ..with(&Value::Null)
        };
        assert!(
            accepts(&parameters, &fits),
            "{rule}: the row is wrong: {parameters} {fits}"
        );
        for wiring in [false, true] {
            let schema = compose(
                std::slice::from_ref(&offered),
                Some(&parameters),
                Composition { wiring, ..HOW },
            );
            check(&schema);
            let mut call = json!({"_tool": "echo.say", "_reasoningForCall": "r"});
            call.as_object_mut()
                .unwrap()
                .extend(fits.as_object().unwrap().clone());
            assert!(
                accepts(&schema, &json!({"calls": [call], "output": null})),
                "{rule}: {fits} is refused by {schema}"
            );
        }
    }
}

/// Arguments are checked against the author's schema, which accepts all of these values.
#[test]
fn open_objects_of_an_author_are_closed_in_the_composed_schema_alone() {
    let named = json!({"a": {"type": "string"}});
    let first = json!([{"type": "string"}]);
    let (more, longer) = (json!({"a": "x", "b": 1}), json!(["x", 1]));
    for (rule, parameter, value, can_be_written) in [
        (
            "4.7",
            json!({"type": "object", "properties": named}),
            &more,
            false,
        ),
        (
            "4.7",
            json!({"type": "object", "properties": named, "additionalProperties": true}),
            &more,
            true,
        ),
        (
            "4.7",
            json!({"type": "array", "prefixItems": first}),
            &longer,
            false,
        ),
        (
            "4.7",
            json!({"type": "array", "prefixItems": first, "items": {"type": "integer"}}),
            &longer,
            true,
        ),
        ("4.7", json!({"properties": named}), &json!(7), false),
    ] {
        assert!(accepts(&parameter, value), "{rule}: {parameter} {value}");
        let schema = composed(&with(&parameter), Shape::Exclusive, false);
        let call = json!({"_tool": "echo.say", "_reasoningForCall": "r", "p": value});
        assert_eq!(
            accepts(&schema, &json!({"calls": [call], "output": null})),
            can_be_written,
            "{rule}: {value} in {schema}"
        );
    }
}

/// The names of definitions begin with the names of their tools, of which servers tell fewer apart.
#[test]
fn definitions_of_two_tools_do_not_replace_each_other() {
    let rule = "4.7";
    let offered = |name: &str, definition: &str, ty: &str| Tool {
        parameters: json!({"type": "object", "properties": {"p": {"$ref": format!("#/$defs/{definition}")}},
            "$defs": {(definition): {"type": ty}}}),
        execution: Execution::Module(name.into()),
        ..Tool::new(name)
    };
    let tools = [
        offered("db", "query_Row", "integer"),
        offered("db.query", "Row", "string"),
        offered("db_query", "Row", "boolean"),
    ];
    let schema = compose(&tools, None, HOW);
    let values = [json!(1), json!("a"), json!(true)];
    for (tool, own) in tools.iter().zip(&values) {
        for value in &values {
            let call = json!({"_tool": tool.name, "_reasoningForCall": "r", "p": value});
            let solution = json!({"calls": [call], "output": null});
            assert_eq!(
                accepts(&schema, &solution),
                value == own,
                "{rule}: {solution} {schema}"
            );
        }
    }
}

/// A model that sees the fields of a tool's parts can fill them.
#[test]
fn parameters_of_joined_parts_are_shown() {
    let rule = "4.7";
    for parameters in [
        json!({"type": "object", "allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"$ref": "#/$defs/B"}],
            "$defs": {"B": {"properties": {"b": {}}, "required": ["b"]}}}),
        json!({"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": {}, "b": {}}, "required": ["a", "b"]}}}),
    ] {
        let offered = Tool {
            parameters,
            ..with(&Value::Null)
        };
        let schema = composed(&offered, Shape::Both, false);
        let call = &schema["properties"]["calls"]["items"]["anyOf"][0];
        let required = json!(["_tool", "_reasoningForCall", "a", "b"]);
        assert_eq!(call["required"], required, "{rule}: {schema}");
        assert_eq!(call["additionalProperties"], false, "{rule}: {schema}");
    }
}

#[test]
fn a_latent_tool_is_answered_in_its_call_unless_nothing_runs() {
    let latent = Tool {
        output: Some(json!({"enum": ["good", "bad"]})),
        ..Tool::new("sentiment")
    };
    let mut bare = json!({"_tool": "sentiment", "_reasoningForCall": "r"});
    let call = |output: &str| {
        let mut call = bare.clone();
        call["_output"] = json!(output);
        json!({"calls": [call], "output": null})
    };
    let (good, other) = (call("good"), call("so so"));
    bare = json!({"calls": [bare], "output": null});
    let none = json!({"calls": [{}], "output": "x"});
    let output = json!({"calls": [], "output": "x"});
    for (rule, tools, lazy, solution, fits) in [
        ("3.1", vec![latent.clone()], false, &good, true),
        ("3.1", vec![latent.clone()], false, &other, false),
        ("3.1", vec![latent.clone()], false, &bare, false),
        ("3.1", vec![latent], true, &bare, true),
        // Without tools there can only be an output.
        ("4.4", vec![], false, &output, true),
        ("4.4", vec![], false, &none, false),
    ] {
        let schema = compose(&tools, None, Composition { lazy, ..HOW });
        assert_eq!(
            accepts(&schema, solution),
            fits,
            "{rule}: {solution} {schema}"
        );
    }
}

#[test]
fn the_host_asks_for_what_takes_part_and_for_nothing_else() {
    let meta = json!({"type": "object", "properties": {"version": {"type": "string"}}});
    let advisors = json!({"type": "array", "items": {}});
    for (rule, meta, advisors, members) in [
        ("4.4", None, None, vec!["calls", "output"]),
        ("4.4", Some(&meta), None, vec!["meta", "calls", "output"]),
        (
            "4.4",
            None,
            Some(&advisors),
            vec!["advisors", "calls", "output"],
        ),
        (
            "4.5",
            Some(&meta),
            Some(&advisors),
            vec!["meta", "advisors", "calls", "output"],
        ),
    ] {
        let how = Composition {
            shape: Shape::Both,
            meta,
            advisors,
            ..HOW
        };
        let schema = compose(&[with(&json!({}))], None, how);
        let names: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, members, "{rule}");
        assert_eq!(schema["required"], json!(members), "{rule}");
        assert_eq!(schema["additionalProperties"], false, "{rule}");
    }
}

#[test]
fn everything_is_written_in_the_protocols_order() {
    let rule = "4.5";
    let asks = Tool {
        scopes: Scopes::Requested(vec!["†user".parse().unwrap()]),
        execution: Execution::Latent,
        ..with(&json!({"type": "integer"}))
    };
    let how = Composition {
        wiring: true,
        instances: &["one".to_owned()],
        meta: Some(&json!({"type": "object", "properties": {"version": {"type": "string"}}})),
        advisors: Some(
            &json!({"type": "array", "items": {"type": "object", "properties": {"id": {"const": "ceo"}}}}),
        ),
        ..HOW
    };
    let text = compose(&[asks], None, how).to_string();
    let places: Vec<_> = [
        "\"meta\"",
        "\"advisors\"",
        "\"calls\"",
        "\"_tool\"",
        "\"_reasoningForCall\"",
        "\"_instance\"",
        "\"_scopes\"",
        "\"p\"",
        "\"_outputPath\"",
        "\"_outputMethod\"",
        "\"_output\"",
        "\"output\"",
    ]
    .iter()
    .map(|name| {
        text.find(&format!("{name}:{{"))
            .unwrap_or_else(|| panic!("{name} in {text}"))
    })
    .collect();
    assert!(places.is_sorted(), "{rule}: {places:?} in {text}");
}
