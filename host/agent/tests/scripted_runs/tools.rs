//! Section 3: tools.

use super::support::play::{Play, echo, task, tool};
use super::support::{calls, output};
use serde_json::{Value, json};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::decision::DecisionMode;
use toolhold_protocol::error::RunError;
use toolhold_protocol::event::{EventKind, StopReason};
use toolhold_protocol::tool::Annotations;
use toolhold_protocol::tool::Tool;

/// Plays one call of the tool `t` with these reserved properties, and gives its outcome.
fn outcome(properties: &Value, call: &Value) -> Result<Value, String> {
    let context = json!([{"type": "data", "kind": "user", "data": {"name": "Ada"}}, tool("t", properties), task()]);
    let mut call = call.clone();
    call["_tool"] = json!("t");
    let done = Play::new(&context, [calls(json!([call])), output("x")])
        .run()
        .unwrap();
    assert_eq!(
        done.stop(),
        (StopReason::Output, json!("x")),
        "a call never ends the run"
    );
    let (_, outcome) = done.outcomes().remove(0);
    outcome.map_err(|failure| format!("{}: {}", failure.kind, failure.message))
}

fn refused(context: &Value) -> String {
    let error = Play::new(context, []).run().unwrap_err();
    assert!(
        matches!(error, RunError::Binding { .. } | RunError::Context(_)),
        "{error}"
    );
    error.to_string()
}

#[test]
fn a_call_is_run_by_module_then_activity_then_the_activity_of_its_name_then_the_model() {
    let run_by = |name: &str, properties: Value| {
        let call = json!([{"_tool": name, "text": "a", "_output": "latent"}]);
        let done = Play::new(
            &json!([tool(name, &properties), task()]),
            [calls(&call), output("x")],
        )
        .run()
        .unwrap();
        let EventKind::Run { tools, .. } = &done.events[0].kind else {
            unreachable!()
        };
        (json!(tools[0].runner), done.outcomes().remove(0).1.is_ok())
    };
    let module = (json!({"module": "echo.say"}), true);
    for (name, properties, by) in [
        (
            "fail",
            json!({"_module": {"const": "echo"}, "_activity": {"const": "fail"}}),
            module.clone(),
        ),
        ("fail", json!({"_module": "echo"}), module.clone()),
        ("fail", json!({"_delegate": {"const": "echo"}}), module),
        (
            "fail",
            json!({"_activity": {"const": "echo"}}),
            (json!({"activity": "echo"}), true),
        ),
        (
            "echo",
            json!({"_activity": {"const": ""}}),
            (json!({"activity": "echo"}), true),
        ),
        ("echo", json!({}), (json!({"activity": "echo"}), true)),
        ("fail", json!({}), (json!({"activity": "fail"}), false)),
        ("other", json!({"_activity": ""}), (json!("model"), true)),
        ("other", json!({}), (json!("model"), true)),
    ] {
        assert_eq!(run_by(name, properties.clone()), by, "{name} {properties}");
    }
}

#[test]
fn a_saved_request_is_named_by_module_or_delegate() {
    for key in ["_module", "_delegate"] {
        let context = json!([
            tool(
                "t",
                &json!({key: {"const": "ask"}, "q": {"type": "string"}})
            ),
            task()
        ]);
        // The sub-agent asks the same script.
        let replies = [
            calls(json!([{"_tool": "t", "q": "why"}])),
            output("because"),
            output("x"),
        ];
        let done = Play::new(&context, replies).run().unwrap();
        assert_eq!(done.outcomes()[0].1, Ok(json!("because")), "{key}");
        assert!(done.told(1).contains("{\"q\":\"why\"}"), "{}", done.told(1));
    }
}

#[test]
fn unknown_name_fails_composition_and_names_what_exists() {
    for (properties, names) in [
        (
            json!({"_activity": {"const": "sing"}}),
            ["\"sing\"", "echo, fail, pick, seen"],
        ),
        (
            json!({"_module": {"const": "nowhere@1"}}),
            ["\"nowhere@1\"", "echo, ask"],
        ),
        (
            json!({"_delegate": {"const": "nobody"}}),
            ["\"nobody\"", "echo, ask"],
        ),
    ] {
        let error = refused(&json!([tool("t", &properties), task()]));
        for part in ["\"t\"", names[0], names[1]] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }
}

#[test]
fn the_name_by_which_advisors_are_asked_is_the_hosts() {
    let advisor = json!({"type": "advisor", "id": "critic", "role": "Looks for mistakes."});
    let error = refused(&json!([
        advisor,
        tool("ConsultAdvisor", &json!({})),
        task()
    ]));
    assert!(
        error.contains("ConsultAdvisor") && error.contains("rename yours"),
        "{error}"
    );
}

#[test]
fn the_last_definition_of_a_name_wins() {
    let first = tool("echo.say", &json!({"old": {"type": "string"}}));
    let last = tool(
        "echo.say",
        &json!({"new": {"type": "string"}, "_output": {"const": "n"}}),
    );
    for contract in Contract::ALL {
        let context = json!([first, tool("other", &json!({})), last, task()]);
        let replies = [
            calls(json!([{"_tool": "echo.say", "new": "a", "_output": "n"}])),
            output("x"),
        ];
        let play = Play::new(&context, replies).offering([echo()]);
        let done = play
            .settings(|settings| settings.contract = contract)
            .run()
            .unwrap();
        assert_eq!(done.outcomes()[0].1, Ok(json!("n")));
        let sent = done.requests[0].to_string();
        assert!(
            sent.contains("\\\"new\\\"") || sent.contains("\"new\""),
            "{contract:?} {sent}"
        );
        for gone in ["\"old", "Says it again"] {
            assert!(
                !sent.contains(gone) && !sent.contains(&gone.replace('"', "\\\"")),
                "{contract:?}: {gone} in {sent}"
            );
        }
        // In the place of the first definition of its name.
        let EventKind::Run { tools, .. } = &done.events[0].kind else {
            unreachable!()
        };
        let names: Vec<_> = tools.iter().map(|bound| bound.tool.name.as_str()).collect();
        assert_eq!(names, ["echo.say", "other"]);
    }
}

#[test]
fn component_decides_where_a_message_is_silent() {
    let describe = |properties: Value, more: Value| {
        let mut message = tool("t", &properties);
        message["tool"]["t"]
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let done = Play::new(&json!([message, task()]), [output("x")])
            .run()
            .unwrap();
        let EventKind::Run { tools, .. } = &done.events[0].kind else {
            unreachable!()
        };
        tools[0].tool.clone()
    };
    let own = describe(json!({"_module": "echo"}), json!({}));
    assert_eq!(own.parameters, echo().parameters);
    assert_eq!(
        (own.description.clone(), own.output.clone()),
        (echo().description, echo().output)
    );
    let said = describe(
        json!({"_module": "echo", "text": {"enum": ["a"]}, "_output": {"const": 1}}),
        json!({"description": "D.", "annotations": {"readOnly": true, "fireAndForget": true}}),
    );
    assert_eq!(
        said.parameters["properties"],
        json!({"text": {"enum": ["a"]}})
    );
    assert_eq!(
        (said.description.as_str(), said.output.clone()),
        ("D.", Some(json!({"const": 1})))
    );
    // But not that it is harmless: whether a call waits for a decision depends on it.
    let claims = Annotations {
        fire_and_forget: true,
        ..echo().annotations
    };
    assert_eq!(said.annotations, claims);
}

#[test]
fn another_name_does_not_free_a_module_of_decisions() {
    let context = json!([tool("harmless", &json!({"_module": "echo"})), task()]);
    let replies = [
        calls(json!([{"_tool": "harmless", "text": "a"}])),
        output("x"),
    ];
    let play = Play::new(&context, replies).settings(|settings| {
        settings
            .decisions
            .tools
            .insert("echo".into(), DecisionMode::Always);
    });
    // There is no decider.
    let failure = play.run().unwrap().outcomes().remove(0).1.unwrap_err();
    assert_eq!(failure.kind, "refused");
}

#[test]
fn the_output_of_an_explicit_tool_is_hidden_from_the_model_and_enforced() {
    let hidden = json!({"type": "object", "required": ["secret_field"]});
    for contract in Contract::ALL {
        let context = json!([
            tool("echo", &json!({"_output": hidden, "text": {}})),
            task()
        ]);
        let replies = [
            calls(json!([{"_tool": "echo", "text": 1}])),
            calls(json!([{"_tool": "echo", "secret_field": 1}])),
            output("x"),
        ];
        let play = Play::new(&context, replies).settings(|settings| settings.contract = contract);
        let done = play.run().unwrap();
        let first = done.requests[0].to_string();
        assert!(
            !first.contains("secret_field") && !first.contains("\"_output\""),
            "{contract:?}: {first}"
        );
        let outcomes = done.outcomes();
        let failure = outcomes[0].1.as_ref().unwrap_err();
        assert_eq!(failure.kind, "output_schema");
        assert!(
            failure.message.contains("secret_field"),
            "{}",
            failure.message
        );
        assert_eq!(outcomes[1].1, Ok(json!({"secret_field": 1})));
    }
}

#[test]
fn the_output_of_a_latent_tool_is_due_and_checked() {
    let properties = json!({"text": {"type": "string", "maxLength": 3}, "_output": {"type": ["integer", "null"]}});
    for (call, meant) in [
        (
            json!({"text": "long", "_output": 7}),
            Err("arguments: the arguments do not fit the tool's parameters: /text"),
        ),
        (json!({"text": "†user.name", "_output": 7}), Ok(json!(7))),
        (json!({"text": "†later", "_output": 7}), Ok(json!(7))),
        (json!({"_output": 7}), Ok(json!(7))),
        (json!({"_output": null}), Ok(Value::Null)),
        (
            json!({"_output": "7"}),
            Err("output_schema: \"_output\" does not fit its schema: \"7\" is not of type"),
        ),
        (
            json!({"text": "a"}),
            Err("output: this tool is yours to answer: write its result as \"_output\""),
        ),
    ] {
        match (outcome(&properties, &call), meant) {
            (Err(error), Err(meant)) => assert!(error.contains(meant), "{error}"),
            (outcome, meant) => assert_eq!(outcome, meant.map_err(str::to_owned), "{call}"),
        }
    }
}

#[test]
fn a_place_that_the_author_fixed_is_not_the_models_to_choose() {
    let context = json!([
        tool(
            "echo",
            &json!({"_outputPath": {"const": "†state.fixed"}, "text": {}})
        ),
        task()
    ]);
    for contract in Contract::ALL {
        let replies = [
            calls(json!([{"_tool": "echo", "text": 1, "_outputPath": "†state.mine"}])),
            calls(json!([{"_tool": "echo", "text": 2}])),
            output("x"),
        ];
        let play = Play::new(&context, replies).settings(|settings| settings.contract = contract);
        let done = play.run().unwrap();
        assert_eq!(done.data("†state", None), json!({"fixed": {"text": 2}}));
        assert!(
            done.requests[0]
                .to_string()
                .contains("\\\"_outputPath\\\" is always †state.fixed")
        );
    }
}

#[test]
fn how_a_result_joins_what_is_there_is_said_in_the_call() {
    for (method, first, second, meant) in [
        (
            json!("set"),
            json!({"a": {"x": 1}}),
            json!({"b": 2}),
            json!({"b": 2}),
        ),
        (
            Value::Null,
            json!({"a": 1}),
            json!({"b": 2}),
            json!({"b": 2}),
        ),
        (
            json!("merge"),
            json!({"a": {"x": 1}}),
            json!({"a": {"y": 2}}),
            json!({"a": {"x": 1, "y": 2}}),
        ),
        (
            json!("assign"),
            json!({"a": {"x": 1}, "c": 3}),
            json!({"a": {"y": 2}}),
            json!({"a": {"y": 2}, "c": 3}),
        ),
        (json!("push"), json!([1]), json!(2), json!([1, 2])),
        (json!("concat"), json!([1]), json!([2]), json!([1, 2])),
        (json!("concat"), json!("a"), json!("b"), json!("ab")),
    ] {
        let call = |value: &Value, method: &Value| json!({"_tool": "t", "_output": value, "_outputPath": "†state.x", "_outputMethod": method});
        let context = json!([{"type": "state"}, tool("t", &json!({})), task()]);
        let replies = [
            calls(json!([call(&first, &json!("set"))])),
            calls(json!([call(&second, &method)])),
            output("x"),
        ];
        let done = Play::new(&context, replies).run().unwrap();
        assert_eq!(done.data("†state.x", None), meant, "{method}");
    }
    let error = outcome(
        &json!({}),
        &json!({"_output": 1, "_outputPath": "†state", "_outputMethod": "add"}),
    )
    .unwrap_err();
    assert!(
        error.contains("none of set, merge, assign, push, concat"),
        "{error}"
    );
}

#[test]
fn scopes_are_what_the_author_provides_or_the_model_asks_for() {
    let user = json!({"name": "Ada"});
    let seen = |key: &str, scopes: Value, call: Value| {
        outcome(&json!({"_activity": "seen", key: scopes}), &call)
    };
    let name = json!({"†user.name": "Ada"});
    for key in ["_scopes", "_imports"] {
        let provided = json!({"const": ["user.name"]});
        assert_eq!(seen(key, provided.clone(), json!({})), Ok(name.clone()));
        assert_eq!(
            seen(key, provided, json!({"_scopes": ["user"]})),
            Ok(name.clone()),
            "provided is provided"
        );
        let offered = json!({"type": "array", "items": {"enum": ["user", "†user.name"]}});
        assert_eq!(
            seen(key, offered.clone(), json!({})),
            Ok(json!({})),
            "nothing was asked for"
        );
        assert_eq!(
            seen(key, offered.clone(), json!({key: ["user"]})),
            Ok(json!({"†user": user}))
        );
        assert_eq!(
            seen(key, offered.clone(), json!({key: "user.name"})),
            Ok(name.clone())
        );
        let error = seen(key, offered, json!({key: ["state"]})).unwrap_err();
        assert!(
            error.contains("†state") && error.contains("it may see †user, †user.name"),
            "{error}"
        );
    }
    let error = outcome(&json!({"_activity": "seen"}), &json!({"_scopes": ["user"]})).unwrap_err();
    assert!(
        error.contains("sees nothing of the context; leave _scopes out"),
        "{error}"
    );
}

/// The composed schema has no room for them, and the author's has (docs/protocol.md, 4.7).
#[test]
fn members_that_a_schema_does_not_name_are_accepted() {
    let given = json!({"o": {"a": "x", "b": 1}, "further": true});
    let named = json!({"o": {"type": "object", "properties": {"a": {"type": "string"}}}});
    for contract in Contract::ALL {
        let mut call = given.clone();
        call["_tool"] = json!("echo");
        let replies = [calls(json!([call])), output("x")];
        let play = Play::new(&json!([tool("echo", &named), task()]), replies);
        let done = play
            .settings(|settings| settings.contract = contract)
            .run()
            .unwrap();
        assert_eq!(done.outcomes()[0].1, Ok(given.clone()), "{contract:?}");
    }
}

#[test]
fn why_a_call_is_made_is_asked_and_recorded() {
    for contract in Contract::ALL {
        let replies = [
            calls(json!([{"_tool": "echo", "_reasoningForCall": "It is due.", "text": 1}])),
            output("x"),
        ];
        let play = Play::new(&json!([tool("echo", &json!({})), task()]), replies);
        let done = play
            .settings(|settings| settings.contract = contract)
            .run()
            .unwrap();
        // Asked again, the model finds its own reason in what it said.
        let said = done.requests[1]["messages"].to_string();
        assert!(said.contains("It is due."), "{contract:?}: {said}");
        assert!(done.requests[0].to_string().contains("_reasoningForCall"));
        let reasons: Vec<_> = done
            .events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::Plan { calls, .. } => calls[0].reason.as_deref(),
                EventKind::ToolStart { call, .. } => call.reason.as_deref(),
                _ => None,
            })
            .collect();
        assert_eq!(reasons, ["It is due."; 2]);
        assert_eq!(
            done.outcomes()[0].1,
            Ok(json!({"text": 1})),
            "it is no parameter"
        );
    }
}

#[test]
fn reasons_are_not_requested_without_the_setting_but_recorded() {
    for contract in Contract::ALL {
        let replies = [
            calls(json!([{"_tool": "echo", "_reasoningForCall": "It is due.", "text": 1}])),
            output("x"),
        ];
        let play = Play::new(&json!([tool("echo", &json!({})), task()]), replies);
        let done = play
            .settings(|settings| {
                settings.contract = contract;
                settings.reasons = false;
            })
            .run()
            .unwrap();
        for request in &done.requests {
            let request = request.to_string();
            assert!(
                !request.contains("_reasoningForCall") && !request.contains("It is due."),
                "{contract:?}: {request}"
            );
        }
        let recorded = done.events.iter().find_map(|event| match &event.kind {
            EventKind::Plan { calls, .. } => calls[0].reason.clone(),
            _ => None,
        });
        assert_eq!(recorded.as_deref(), Some("It is due."), "{contract:?}");
    }
}

#[test]
fn reserved_properties_that_mean_nothing_are_ignored_with_a_warning_and_recorded() {
    let context = json!([
        tool(
            "echo",
            &json!({"_colour": {"const": "red"}, "text": {}, "_outputMethod": {"const": "push"}})
        ),
        task(),
    ]);
    let replies = [
        calls(json!([{"_tool": "echo", "text": 1, "_urgent": true, "_module": "other"}])),
        output("x"),
    ];
    let done = Play::new(&context, replies).run().unwrap();
    assert_eq!(done.outcomes()[0].1, Ok(json!({"text": 1})));
    let notices = done.notices();
    assert_eq!(notices.len(), 4, "{notices:?}");
    for (notice, part) in notices.iter().zip([
        "\"_colour\"",
        "\"_outputMethod\"",
        "\"_urgent\"",
        "\"_module\"",
    ]) {
        assert!(notice.contains(part), "{part} in {notice}");
    }
    let record = json!(done.events).to_string();
    assert!(
        record.contains(r#""unknown":{"_urgent":true,"_module":"other"}"#),
        "{record}"
    );
    assert!(!done.requests[0].to_string().contains("_colour"));
}

#[test]
fn a_tool_of_a_module_whose_schema_says_more_than_properties_keeps_them_all() {
    let parameters = json!({
        "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    });
    let offered = Tool {
        parameters,
        ..echo()
    };
    let replies = [
        calls(json!([{"_tool": "echo.say"}])),
        calls(json!([{"_tool": "echo.say", "b": "x"}])),
        output("x"),
    ];
    let done = Play::new(&json!([task()]), replies)
        .offering([Tool {
            output: None,
            ..offered
        }])
        .run()
        .unwrap();
    let schema = done.requests[0]["response_format"]["json_schema"]["schema"].to_string();
    assert!(
        schema.contains(r#""a":{"type":"string"},"b":{"type":"string"}"#),
        "{schema}"
    );
    let outcomes = done.outcomes();
    assert!(
        outcomes[0]
            .1
            .as_ref()
            .unwrap_err()
            .message
            .contains("anyOf"),
        "{outcomes:?}"
    );
    assert_eq!(outcomes[1].1, Ok(json!({"b": "x"})));
}
