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
use toolhold_schema::Validator;

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
            let function = Validator::new(function).unwrap();
            assert_eq!(function.check(&arguments), Ok(()));
        }
    }
}

#[test]
fn only_mandatory_properties_are_required() {
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
            let play = Play::new(&context, [output("x")]).offering([echo()]);
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
