//! Section 4: the composed schema, its shapes, and the three contracts.

use super::support::play::{Play, PlayedRun, echo, task, tool};
use super::support::{Echo, Reply, Script, driver, end, lines, plain_tools, request, results, run};
use super::support::{calls, output};
use serde_json::{Value, json};
use std::fmt::Write as _;
use toolhold_agent::Activities;
use toolhold_protocol::compose::Shape;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::{EventKind, StopReason};
use toolhold_protocol::settings::Wiring;
use toolhold_protocol::tool::Tool;

/// A context with everything that the composed schema can hold.
fn rich() -> Value {
    json!([
        {"type": "meta", "meta": {"domain": "example", "version": "1.2.3"}},
        {"type": "advisor", "id": "critic", "role": "Looks for mistakes.", "on": "start"},
        {"type": "input", "input": {"q": "why"}, "schema": {"type": "object"}, "_instance": "a"},
        {"type": "data", "kind": "user", "data": {"name": "Ada"}},
        {"type": "state", "schema": {"type": "object"}, "_instance": "b"},
        {"type": "tool", "tool": {
            "seen": {
                "type": "object", "description": "Looks at the context.",
                "properties": {
                    "_scopes": {"type": "array", "items": {"enum": ["user", "state"]}},
                    "_outputPath": {"type": "string", "pattern": "^†"},
                    "_output": {"type": "object"},
                    "where": {"type": "string", "description": "Where to look."},
                    "depth": {"type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 2},
                    "how": {"enum": ["near", "far"]},
                    "at": {"$ref": "#/$defs/Place"},
                    "all": {"type": ["boolean", "null"]},
                },
                "required": ["where", "_scopes"],
                "$defs": {"Place": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
            },
            "echo": {
                "type": "object", "description": "Says it again.",
                "properties": {"text": {"type": "string"}, "_outputPath": {"const": "†state.said"}},
            },
            "judge": {
                "type": "object", "description": "Judges a text.",
                "properties": {
                    "text": {"type": "string", "maxLength": 20},
                    "_output": {"type": "object", "properties": {"good": {"type": "boolean"}}, "required": ["good"]},
                },
                "required": ["text"],
            },
        }},
        task(),
    ])
}

const OUTPUT: &str = r#"{"type": "object", "properties": {"verdict": {"type": "string", "description": "In one word."}}, "required": ["verdict"]}"#;

fn rich_call() -> Value {
    json!({
        "_tool": "seen", "_reasoningForCall": "r", "_instance": "b", "_scopes": ["user"], "where": "†user.name",
        "depth": 2, "_outputPath": "†state.seen", "_outputMethod": "push",
    })
}

/// Two Requests over the rich context: a call, and the end.
fn play(contract: Contract, shape: Shape) -> PlayedRun {
    let solution = |version: &str, mut solution: Value| {
        solution["meta"] = json!({"domain": "example", "version": version});
        solution
    };
    let mut first = solution("1.3.0", calls(json!([rich_call()])));
    first["advisors"] =
        json!([{"id": "critic", "opinion": "Look first.", "calls": "{\"seen\": 90}"}]);
    let replies = [first, solution("1.4.0", output(json!({"verdict": "fine"})))];
    let mut play = Play::new(&rich(), replies).settings(|settings| {
        settings.contract = contract;
        settings.shape = shape;
    });
    play.request.output_schema = Some(serde_json::from_str(OUTPUT).unwrap());
    play.run().unwrap()
}

fn composed(request: &Value) -> &Value {
    &request["response_format"]["json_schema"]["schema"]
}

/// The composed schema for these tools, and for an output with this schema, which the second satisfies.
fn compose(
    offered: &[Tool],
    shape: Shape,
    wiring: Wiring,
    required: Option<(&Value, &Value)>,
) -> Value {
    let answer = required.map_or(json!("x"), |(_, answer)| answer.clone());
    let mut play = Play::new(&json!([task()]), [output(answer)])
        .offering(offered.to_vec())
        .settings(|settings| {
            settings.shape = shape;
            settings.wiring = wiring;
        });
    play.request.output_schema = required.map(|(schema, _)| schema.clone());
    composed(&play.run().unwrap().requests[0]).clone()
}

/// Whether a solution satisfies a schema, by the validator that the host itself uses.
fn accepts(schema: &Value, solution: &Value) -> bool {
    toolhold_json::validate::Validator::new(schema)
        .unwrap()
        .check(solution)
        .is_ok()
}

fn with(parameter: &Value) -> Tool {
    Tool {
        parameters: json!({"type": "object", "properties": {"p": parameter}}),
        output: None,
        ..echo()
    }
}

/// What a model is asked, in full: changes of it are seen in review.
#[test]
fn a_rich_request_in_each_contract() {
    for contract in Contract::ALL {
        let done = play(contract, Shape::Exclusive);
        let mut request = done.requests[0].clone();
        let members = request.as_object_mut().unwrap();
        members.retain(|name, _| ["messages", "tools", "response_format"].contains(&name.as_str()));
        let mut text = String::new();
        for message in request["messages"].as_array().unwrap() {
            let (role, content) = (
                message["role"].as_str().unwrap(),
                message["content"].as_str().unwrap(),
            );
            writeln!(text, "--- {role}\n{content}").unwrap();
        }
        request.as_object_mut().unwrap().shift_remove("messages");
        if request.as_object().is_some_and(|rest| !rest.is_empty()) {
            writeln!(text, "--- form\n{request:#}").unwrap();
        }
        insta::assert_snapshot!(format!("rich_{}", contract.name()), text);
    }
}

#[test]
fn everything_is_written_in_the_order_in_which_it_is_needed() {
    for shape in [Shape::Exclusive, Shape::Both] {
        let done = play(Contract::Schema, shape);
        let schema = composed(&done.requests[0]).to_string();
        let mut from = 0;
        for name in [
            "meta",
            "advisors",
            "calls",
            "_tool",
            "_reasoningForCall",
            "_instance",
            "_scopes",
            "where",
            "depth",
            "_outputPath",
            "_outputMethod",
            "_tool",
            "_output",
            "output",
        ] {
            let key = format!("\"{name}\":{{");
            from += schema[from..]
                .find(&key)
                .unwrap_or_else(|| panic!("{name} after {from} in {schema}"))
                + key.len();
        }
        // Advisors speak in the first iteration only.
        assert!(
            !composed(&done.requests[1])
                .to_string()
                .contains("\"advisors\"")
        );
    }
}

#[test]
fn the_same_solution_is_had_through_each_contract() {
    let mut seen = Vec::new();
    for contract in Contract::ALL {
        let done = play(contract, Shape::Exclusive);
        assert_eq!(
            done.stop(),
            (StopReason::Output, json!({"verdict": "fine"})),
            "{contract:?}"
        );
        let call = done.events.iter().find_map(|event| match &event.kind {
            EventKind::Plan { calls, .. } => Some(calls[0].object(true)),
            _ => None,
        });
        assert_eq!(call.map(Value::from), Some(rich_call()), "{contract:?}");
        let council = done.events.iter().find_map(|event| match &event.kind {
            EventKind::Council { council, .. } => Some(json!(council)),
            _ => None,
        });
        let state = done.data("†state.seen", Some("b"));
        assert_eq!(state, json!([{"†user": {"name": "Ada"}}]), "{contract:?}");
        assert_eq!(done.data("†state", None), Value::Null);
        // The version that holds is the last that was accepted.
        let asked = done.requests[1].to_string();
        assert!(
            asked.contains("1.4.0") && !asked.contains("1.2.3.branch"),
            "{contract:?}: {asked}"
        );
        seen.push(council.expect("the advisor was heard"));
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
}

/// Faulty JSON with one possible meaning is repaired in each contract, and the repair is recorded.
#[tokio::test]
async fn a_reply_with_faults_of_form_is_mended_in_each_contract() {
    for (contract, reply, repairs) in [
        (
            Contract::Schema,
            Reply::text("{'calls': [{'_tool': 'echo', 'of': 7,}], 'output': None}"),
            "single quotes, a trailing comma, Python's literals",
        ),
        (
            Contract::Tools,
            Reply::function("echo", "```json\n{'of': 7,}\n```"),
            "a code fence, single quotes, a trailing comma",
        ),
        (
            Contract::Tools,
            Reply::function("echo", r#"{"of": 7, "and": []"#),
            "brackets that were not closed",
        ),
        (
            Contract::Simple,
            Reply::text("Sure: {'tool_name': 'echo', 'arguments': {'of': 7,}}"),
            "text before it, single quotes, a trailing comma",
        ),
        (
            Contract::Simple,
            Reply::text(r#"{"tool_name": "echo" "arguments": {"of": 7}"#),
            "a missing comma, brackets that were not closed",
        ),
    ] {
        let script = Script::new([reply, Reply::of(contract, &output("done"))]);
        let activities = Activities::default().with("echo", Echo::default().activity());
        let mut request = request([plain_tools(&["echo"])]);
        request.settings.contract = contract;
        let events = run(&driver(&script, activities), request).await;
        assert_eq!(end(&events), ("output".into(), json!("done")));
        assert_eq!(results(&events)[0].1["output"], 7, "{}", lines(&events));
        let told = events.iter().any(|event| match &event.kind {
            EventKind::Repaired {
                call: None,
                repairs: told,
                ..
            } => {
                let told: Vec<_> = told.iter().map(ToString::to_string).collect();
                told.join(", ") == repairs
            }
            _ => false,
        });
        assert!(told, "{repairs}: {}", lines(&events));
    }
}

#[test]
fn exclusive_is_calls_or_an_output_and_both_is_any_of_it() {
    let call = json!({"_tool": "echo.say", "_reasoningForCall": "r", "p": 1});
    let offered = [with(&json!({"type": "integer"}))];
    for (solution, exclusive, both) in [
        (json!({"calls": [call], "output": null}), true, true),
        (json!({"calls": [], "output": "x"}), true, true),
        (json!({"calls": [call], "output": "x"}), false, true),
        (json!({"calls": [call]}), false, false),
        (json!({"calls": [], "output": 7}), false, false),
        (
            json!({"calls": [{"_tool": "other"}], "output": null}),
            false,
            false,
        ),
        (
            json!({"calls": [call], "output": null, "more": 1}),
            false,
            false,
        ),
        (
            json!({"calls": vec![call.clone(); 9], "output": null}),
            false,
            false,
        ),
    ] {
        for (shape, meant) in [(Shape::Exclusive, exclusive), (Shape::Both, both)] {
            let schema = compose(&offered, shape, Wiring::Never, None);
            assert_eq!(accepts(&schema, &solution), meant, "{shape:?} {solution}");
        }
    }
}

/// An endpoint need not enforce the schema that it is given.
#[test]
fn an_output_beside_calls_counts_only_where_both_are_allowed() {
    for contract in [Contract::Schema, Contract::Tools] {
        let both =
            json!({"calls": [{"_tool": "echo", "text": "17*23"}], "output": {"verdict": "401"}});
        for (shape, replies, meant) in [
            (
                Shape::Exclusive,
                vec![both.clone(), output(json!({"verdict": "391"}))],
                "391",
            ),
            (Shape::Both, vec![both.clone()], "401"),
        ] {
            let mut play = Play::new(
                &json!([tool("echo", &json!({"text": {}})), task()]),
                replies,
            )
            .settings(|settings| {
                settings.contract = contract;
                settings.shape = shape;
            });
            play.request.output_schema = Some(serde_json::from_str(OUTPUT).unwrap());
            let done = play.run().unwrap();
            assert_eq!(
                done.stop(),
                (StopReason::Output, json!({"verdict": meant})),
                "{contract:?} {shape:?}"
            );
            assert_eq!(done.outcomes()[0].1, Ok(json!({"text": "17*23"})));
            if shape == Shape::Exclusive {
                assert!(
                    done.told(1)
                        .contains("a reply holds calls or an output and not both"),
                    "{}",
                    done.told(1)
                );
            }
        }
    }
}

#[test]
fn every_parameter_accepts_a_reference_where_data_is_wired() {
    for (parameter, own) in [
        (json!({"type": "integer"}), json!(7)),
        (json!({"type": "number"}), json!(0.5)),
        (json!({"type": "boolean"}), json!(true)),
        (json!({"type": "null"}), Value::Null),
        (
            json!({"type": "array", "items": {"type": "integer"}}),
            json!([1]),
        ),
        (
            json!({"type": "object", "properties": {"x": {"type": "integer"}}}),
            json!({"x": 1}),
        ),
        (json!({"type": ["integer", "null"]}), Value::Null),
        (json!({"enum": ["a", "b"]}), json!("a")),
        (json!({"const": 7}), json!(7)),
        (
            json!({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}),
            json!(7),
        ),
        (
            json!({"oneOf": [{"type": "integer"}, {"type": "boolean"}]}),
            json!(false),
        ),
        (json!({"type": "string", "pattern": "^[a-z]$"}), json!("a")),
        (json!({"type": "string", "maxLength": 3}), json!("abc")),
        (
            json!({"type": "string", "minLength": 200}),
            json!("x".repeat(200)),
        ),
    ] {
        let call = |value: &Value| json!({"calls": [{"_tool": "echo.say", "_reasoningForCall": "r", "p": value}], "output": null});
        for (wiring, meant) in [(Wiring::Always, true), (Wiring::Never, false)] {
            let schema = compose(&[with(&parameter)], Shape::Exclusive, wiring, None);
            assert!(accepts(&schema, &call(&own)), "{parameter} {schema}");
            let reference = json!("†state.user.profile.name");
            assert_eq!(
                accepts(&schema, &call(&reference)),
                meant,
                "{parameter} {wiring:?} {schema}"
            );
        }
    }
    for free in [
        json!({"type": "string"}),
        json!({}),
        json!(true),
        json!({"type": "string", "maxLength": 500}),
    ] {
        let schema = compose(&[with(&free)], Shape::Exclusive, Wiring::Always, None);
        assert!(
            !schema.to_string().contains(r#""p":{"anyOf""#),
            "text that can be anything needs no branch: {schema}"
        );
    }
}

/// Section 4: inside of a parameter too, so that a record is not copied for one of its fields.
#[test]
fn parts_of_parameters_accept_references_where_data_is_wired() {
    let number = || json!({"type": "number"});
    let point = || json!({"type": "object", "properties": {"x": number()}, "required": ["x"]});
    let reference = json!("†state.user.profile.name");
    for (parameter, wired, own) in [
        (point(), json!({"x": reference}), json!({"x": 1})),
        (
            json!({"type": "array", "items": number()}),
            json!([1, reference]),
            json!([1]),
        ),
        (
            json!({"type": "array", "prefixItems": [number()]}),
            json!([reference]),
            json!([1]),
        ),
        (
            json!({"type": "array", "items": point()}),
            json!([{"x": reference}, reference]),
            json!([{"x": 1}]),
        ),
        (
            json!({"type": "object", "additionalProperties": number()}),
            json!({"any": reference}),
            json!({"any": 1}),
        ),
        (
            json!({"anyOf": [point(), {"type": "null"}]}),
            json!({"x": reference}),
            Value::Null,
        ),
        (
            json!({"oneOf": [
                {"type": "object", "properties": {"kind": {"const": "p"}, "at": point()}},
                {"type": "object", "properties": {"kind": {"const": "n"}, "n": {"enum": [1, 2]}}},
            ]}),
            json!({"kind": "n", "n": reference}),
            json!({"kind": "p", "at": {"x": 1}}),
        ),
        (
            json!({"type": "object", "properties": {"list": {"type": "array", "items": point()}}}),
            json!({"list": [{"x": reference}]}),
            json!({"list": [{"x": 1}]}),
        ),
        (
            json!({"$ref": "#/$defs/Tree"}),
            json!({"n": 1, "below": [{"n": reference, "below": reference}]}),
            json!({"n": 1, "below": [{"n": 2}]}),
        ),
    ] {
        let mut offered = with(&parameter);
        offered.parameters["$defs"] = json!({"Tree": {"type": "object", "properties": {
            "n": {"type": "integer"}, "below": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
        }, "required": ["n"]}});
        let offered = [offered];
        let call = |value: &Value| json!({"calls": [{"_tool": "echo.say", "_reasoningForCall": "r", "p": value}], "output": null});
        for (wiring, meant) in [(Wiring::Always, true), (Wiring::Never, false)] {
            let schema = compose(&offered, Shape::Exclusive, wiring, None);
            assert!(accepts(&schema, &call(&own)), "{own} {schema}");
            assert_eq!(
                accepts(&schema, &call(&wired)),
                meant,
                "{wired} {wiring:?} {schema}"
            );
            assert!(
                !accepts(&schema, &call(&json!({"x": "x", "n": "x"}))),
                "no other text: {schema}"
            );
        }
    }
}

/// What is offered is what the host does with it, in each contract.
#[test]
fn a_reference_inside_of_a_parameter_is_replaced() {
    let takes = json!({"at": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}});
    for contract in Contract::ALL {
        let context = json!([{"type": "data", "kind": "user", "data": {"x": 7}}, tool("echo", &takes), task()]);
        let call = json!([{"_tool": "echo", "_reasoningForCall": "r", "at": {"x": "†user.x"}}]);
        let done = Play::new(&context, [calls(&call), output("x")])
            .settings(|settings| settings.contract = contract)
            .run()
            .unwrap();
        assert_eq!(done.outcomes()[0].1, Ok(json!({"at": {"x": 7}})));
        if contract == Contract::Tools {
            let function = &done.requests[0]["tools"][0]["function"]["parameters"];
            let arguments = json!({"_reasoningForCall": "r", "at": {"x": "†user.x"}});
            assert!(accepts(function, &arguments), "{function}");
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
    for (parameters, fits) in [
        (json!({"type": "object"}), json!({})),
        (
            json!({"type": "object", "additionalProperties": true}),
            json!({"any": [1]}),
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"any": 1}),
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 2}}}),
            json!({"a": 4}),
        ),
        (
            json!({"properties": {"a": {"type": "array", "uniqueItems": true, "prefixItems": [{"type": "string"}]}}}),
            json!({"a": ["x"]}),
        ),
        (
            json!({"properties": {"a": {"allOf": [point, {"required": ["y"]}]}}}),
            json!({"a": {"x": 1, "y": 2}}),
        ),
        (
            json!({"properties": {"a": {"not": {"type": "null"}}}}),
            json!({"a": 1}),
        ),
        (
            json!({"properties": {"a": {"if": {"const": 1}, "then": {}, "else": {}}}}),
            json!({"a": 1}),
        ),
        (
            json!({"properties": {"a": {"type": "string", "pattern": "(?i)\\w+"}}}),
            json!({"a": "x"}),
        ),
        (
            json!({"properties": {"a": {"type": "string", "format": "email"}}}),
            json!({"a": "x@y"}),
        ),
        (
            json!({"properties": {"a": {"$ref": "#/$defs/P"}}, "$defs": {"P": point}}),
            json!({"a": {"x": 1}}),
        ),
        (
            json!({"properties": {"a": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"], "properties": {"b": {}}}]}),
            json!({"b": 1}),
        ),
        (
            json!({"oneOf": [{"properties": {"k": {"const": "p"}, "p": point}}, {"properties": {"k": {"const": "n"}, "n": {"type": "integer"}}}]}),
            json!({"k": "n", "n": 1}),
        ),
        (
            json!({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {}}}]}),
            json!({"a": 1, "b": 2}),
        ),
        (
            json!({"if": {"properties": {"a": {"const": 1}}}, "then": {"properties": {"b": {}}}, "properties": {"a": {}}}),
            json!({"a": 1, "b": 2}),
        ),
        (
            json!({"$ref": "#/$defs/P", "$defs": {"P": point}}),
            json!({"x": 1}),
        ),
        (
            json!({"properties": {"a": {}}, "patternProperties": {"^x-": {}}}),
            json!({"a": 1, "x-y": 2}),
        ),
        (
            json!({"properties": {"a": {}}, "required": ["a", "b"]}),
            json!({"a": 1, "b": 2}),
        ),
        (
            json!({"properties": {"a": {"type": "string", "maxLength": 65_536}}}),
            json!({"a": "x".repeat(3_000)}),
        ),
        (
            json!({"properties": {"a": {"type": "string", "minLength": 2_000, "maxLength": 2_000}}}),
            json!({"a": "x".repeat(2_000)}),
        ),
        (
            json!({"properties": {"a": {"type": "array", "items": {"type": "integer"}, "minItems": 5_000}}}),
            json!({"a": vec![1; 5_000]}),
        ),
        (
            json!({"properties": {"a": {"type": "array", "items": {}, "maxItems": 100_000}}}),
            json!({"a": [1]}),
        ),
    ] {
        let offered = Tool {
            parameters: parameters.clone(),
            output: None,
            ..echo()
        };
        assert!(
            accepts(&parameters, &fits),
            "the case is wrong: {parameters} {fits}"
        );
        for wiring in [Wiring::Never, Wiring::Always] {
            let schema = compose(
                std::slice::from_ref(&offered),
                Shape::Exclusive,
                wiring,
                Some((&parameters, &fits)),
            );
            check(&schema);
            let mut call = json!({"_tool": "echo.say", "_reasoningForCall": "r"});
            call.as_object_mut()
                .unwrap()
                .extend(fits.as_object().unwrap().clone());
            assert!(
                accepts(&schema, &json!({"calls": [call], "output": null})),
                "{fits} is refused by {schema}"
            );
        }
    }
}

#[test]
fn what_must_be_written_is_required_and_nothing_else_is() {
    let done = play(Contract::Schema, Shape::Both);
    let branches = &composed(&done.requests[0])["properties"]["calls"]["items"]["anyOf"];
    let required: Vec<_> = branches
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["required"].clone())
        .collect();
    assert_eq!(
        required,
        [
            json!([
                "_tool",
                "_reasoningForCall",
                "_instance",
                "_scopes",
                "where"
            ]),
            json!(["_tool", "_reasoningForCall", "_instance", "_outputPath"]),
            json!(["_tool", "_reasoningForCall", "_instance", "text", "_output"]),
        ]
    );
}

/// A function of the `tools` contract is a call of the composed schema without its `_tool`.
#[test]
fn a_function_asks_for_what_a_call_object_asks_for() {
    let names = |object: &Value| -> Vec<String> {
        let names = object.as_object().unwrap().keys();
        names.filter(|name| *name != "_tool").cloned().collect()
    };
    let required = |object: &Value| -> Vec<Value> {
        let names = object["required"].as_array().unwrap().iter();
        names.filter(|name| *name != "_tool").cloned().collect()
    };
    let objects = play(Contract::Schema, Shape::Both);
    let objects = &composed(&objects.requests[0])["properties"]["calls"]["items"]["anyOf"];
    let functions = play(Contract::Tools, Shape::Both);
    let functions = functions.requests[0]["tools"].as_array().unwrap();
    for (object, function) in objects.as_array().unwrap().iter().zip(functions) {
        let parameters = &function["function"]["parameters"];
        assert_eq!(
            names(&parameters["properties"]),
            names(&object["properties"])
        );
        assert_eq!(required(parameters), required(object));
    }
    let all = functions[0]["function"]["parameters"]["properties"].to_string();
    for name in [
        "_reasoningForCall",
        "_instance",
        "_scopes",
        "_outputPath",
        "_outputMethod",
    ] {
        assert!(all.contains(name), "{name} in {all}");
    }
}

#[test]
fn in_a_lazy_plan_a_latent_output_may_be_left_out() {
    for contract in Contract::ALL {
        let context = json!([{"type": "plan", "mode": "lazy"}, tool("judge", &json!({"_output": {"type": "integer"}})), task()]);
        let play =
            Play::new(&context, [output("x")]).settings(|settings| settings.contract = contract);
        let done = play.run().unwrap();
        let request = done.requests[0].to_string();
        assert!(
            request.contains("yours to answer, later"),
            "{contract:?}: {request}"
        );
        assert!(
            !request.contains(r#""_output"]"#),
            "{contract:?}: {request}"
        );
    }
}

#[test]
fn a_run_without_data_is_not_wired_and_one_with_some_is() {
    let offered = with(&json!({"type": "integer"}));
    for (context, is_wired) in [
        (json!([task()]), false),
        (json!([{"type": "data", "data": 1}, task()]), true),
        (json!([{"type": "state", "schema": {}}, task()]), true),
        (
            json!([{"type": "input", "input": 1, "schema": {}}, task()]),
            true,
        ),
        (json!([{"type": "plan"}, task()]), true),
        (
            json!([
                tool("t", &json!({"_outputPath": {"const": "†state.x"}})),
                task()
            ]),
            true,
        ),
        (json!([tool("t", &json!({})), task()]), false),
    ] {
        for contract in Contract::ALL {
            let play = Play::new(&context, [output("x")]).offering([offered.clone()]);
            let done = play
                .settings(|settings| settings.contract = contract)
                .run()
                .unwrap();
            let request = done.requests[0].to_string();
            assert_eq!(
                request.contains("Pass a value on without copying it"),
                is_wired,
                "{contract:?} {context}"
            );
            if contract != Contract::Simple {
                assert_eq!(
                    request.contains("_outputMethod"),
                    is_wired,
                    "{contract:?} {context}"
                );
            }
        }
    }
}
