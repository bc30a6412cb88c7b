//! docs/protocol.md, 5.5 and 3.1: where results may go, and who chooses.

use super::support::play::{Play, task, tool};
use super::support::told::{request, run};
use super::support::{calls, output};
use serde_json::{Value, json};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::StopReason;

/// A scenario of our own with the shape of the protocol's branch: the model answers the latent tool and
/// chooses its place.
fn fixture() -> Value {
    serde_json::from_str(include_str!(
        "../../../../tests/fixtures/protocol/branches.json"
    ))
    .unwrap()
}

#[test]
fn the_model_chooses_the_branch_of_a_latent_tool() {
    let fixture = fixture();
    for contract in Contract::ALL {
        for branch in fixture["branches"].as_array().unwrap() {
            let (chosen, text) = (&branch["chosen"], &branch["output"]);
            let replies = [
                calls(
                    json!([{"_tool": "route", "parcel": "†parcel", "_outputPath": chosen, "_output": text}]),
                ),
                calls(json!([{"_tool": "echo", "v": chosen}])),
                output("told"),
            ];
            let play = Play::new(&fixture["context"], replies)
                .settings(|settings| settings.contract = contract);
            let done = play.run().unwrap();
            assert_eq!(
                done.data("†state", None),
                branch["state"],
                "{contract:?} {chosen}"
            );
            assert_eq!(
                done.outcomes()[1].1,
                Ok(json!({"v": text})),
                "{contract:?} {chosen}"
            );
            assert!(
                done.requests[0]
                    .to_string()
                    .contains("†state.courier, †state.depot: choose"),
                "{contract:?}"
            );
        }
    }
}

#[test]
fn the_schema_demands_a_choice_of_a_latent_tool() {
    let replies = [output("none")];
    let done = Play::new(&fixture()["context"], replies)
        .settings(|settings| settings.contract = Contract::Schema)
        .run()
        .unwrap();
    let schema = &done.requests[0]["response_format"]["json_schema"]["schema"];
    let call = &schema["anyOf"][0]["properties"]["calls"]["items"]["anyOf"][0];
    assert_eq!(
        call["properties"]["_outputPath"]["enum"],
        json!(["†state.courier", "†state.depot"]),
        "{call}"
    );
    let required = call["required"].to_string();
    assert!(required.contains("_outputPath"), "{required}");
}

#[test]
fn a_branch_that_is_not_chosen_or_is_another_is_refused_and_writes_nothing() {
    for (place, says) in [
        (Value::Null, "\"_outputPath\" is missing"),
        (json!("†state.lake"), "\"_outputPath\" is †state.lake"),
        (
            json!("†state.courier || †state.depot"),
            "is †state.courier || †state.depot",
        ),
        (
            json!("†state.courier && †state.depot"),
            "is †state.courier && †state.depot",
        ),
    ] {
        let replies = [
            calls(json!([{"_tool": "route", "_outputPath": place, "_output": "here"}])),
            output("none"),
        ];
        let done = Play::new(&fixture()["context"], replies).run().unwrap();
        let failure = done.outcomes().remove(0).1.unwrap_err();
        assert_eq!(failure.kind, "output_path", "{place}");
        assert!(
            failure.message.contains(says)
                && failure.message.ends_with(": †state.courier, †state.depot"),
            "{}",
            failure.message
        );
        assert_eq!(done.data("†state", None), Value::Null, "{place}");
    }
    // A wrong answer is of no branch.
    let replies = [
        calls(json!([{"_tool": "route", "_outputPath": "†state.courier", "_output": 7}])),
        output("none"),
    ];
    let done = Play::new(&fixture()["context"], replies).run().unwrap();
    assert_eq!(
        done.outcomes()[0].1.as_ref().unwrap_err().kind,
        "output_schema"
    );
    assert_eq!(done.data("†state", None), Value::Null);
}

#[test]
fn patterns_and_an_enum_of_the_output_path_are_enforced() {
    let listed = json!({"enum": ["†state.a", "†state.a && †log"]});
    let pattern = json!({"type": "string", "pattern": "^†state[.]"});
    for (property, place, says) in [
        (&listed, json!("†state.a"), None),
        (&listed, json!("†state.a && †log"), None),
        (
            &listed,
            json!("†state.b"),
            Some("\"_outputPath\" is †state.b; write the one of these"),
        ),
        (&listed, Value::Null, Some("\"_outputPath\" is missing")),
        (&pattern, json!("†state.x"), None),
        (&pattern, json!("†state.x && †state.y"), None),
        (&pattern, Value::Null, None),
        (&pattern, json!("†user.x"), Some("†user.x is not allowed")),
        // Each of the places, and not only the first.
        (
            &pattern,
            json!("†state.x && †user.x"),
            Some("†user.x is not allowed"),
        ),
    ] {
        for name in ["echo", "note"] {
            let own = json!({"_outputPath": property, "_output": {}, "v": {}});
            let context = json!([{"type": "state"}, tool(name, &own), task()]);
            let mut call = json!({"_tool": name, "_outputPath": place});
            if name == "note" {
                call["_output"] = json!(1);
            }
            let replies = [calls(json!([call])), output("x")];
            let done = Play::new(&context, replies).run().unwrap();
            let (_, outcome) = done.outcomes().remove(0);
            match says {
                None => assert!(outcome.is_ok(), "{name} {property} {place}: {outcome:?}"),
                Some(says) => {
                    let failure = outcome.unwrap_err();
                    assert_eq!(failure.kind, "output_path");
                    assert!(failure.message.contains(says), "{}", failure.message);
                    assert_eq!(done.context.data.log().len(), 0, "{name} {place}");
                }
            }
        }
    }
}

/// Both branches are planned for, and the answer chooses one.
#[tokio::test]
async fn in_a_lazy_plan_the_choice_is_made_with_the_answer() {
    let route = json!({"type": "tool", "tool": {"route": {"type": "object", "properties": {
        "_outputPath": {"const": "†state.left || †state.right"}, "_output": {"type": "integer"}}}}});
    let messages = json!([{"type": "plan", "mode": "lazy"}, {"type": "state"}, route]);
    let add =
        |from: &str| json!({"_tool": "math.add", "a": from, "b": 1, "_outputPath": "†state.sum"});
    let answered = json!({"_tool": "route", "_outputPath": "†state.right", "_output": 4});
    let told = run(
        request(Contract::Schema, messages),
        [
            calls(json!([{"_tool": "route"}, add("†state.left || †state.right")])),
            calls(json!([answered, add("†state.right")])),
            output("done"),
        ],
    )
    .await;
    assert_eq!(told.done(), (StopReason::Output, json!("done")));
    assert_eq!(told.arguments(), [json!({"a": 4, "b": 1})]);
    assert!(!told.asked(1).contains("\"left\":{"), "{}", told.asked(1));
    assert!(
        told.asked(2).contains("{\"right\":4,\"sum\":5}"),
        "{}",
        told.asked(2)
    );
}

#[tokio::test]
async fn a_lazy_plan_forbids_latent_outputs() {
    let think = |output: Option<u32>| {
        let mut call = json!({"_tool": "think", "about": "it", "_outputPath": "†state.n"});
        if let Some(output) = output {
            call["_output"] = output.into();
        }
        call
    };
    let messages = json!([{"type": "plan", "mode": "lazy"}, {"type": "state"}]);
    for contract in Contract::ALL {
        let told = run(
            request(contract, messages.clone()),
            [
                calls(json!([think(Some(1))])),
                calls(json!([think(None)])),
                calls(json!([think(Some(2))])),
                output("done"),
            ],
        )
        .await;
        assert_eq!(
            told.done(),
            (StopReason::Output, json!("done")),
            "{contract:?}"
        );
        let asked = told.asked(1);
        assert!(
            asked.contains("plan it without")
                && asked.contains("is answered when the plan was accepted"),
            "{contract:?}: {asked}"
        );
        assert!(
            told.asked(3).contains("{\"n\":2}"),
            "{contract:?}: {}",
            told.asked(3)
        );
        if contract == Contract::Schema {
            let offers: Vec<bool> = (0..3)
                .map(|n| told.schema(n).to_string().contains("\"_output\""))
                .collect();
            assert_eq!(offers, [false, false, true]);
        }
    }
    let mut rehearsal = request(Contract::Schema, json!([{"type": "state"}]));
    rehearsal.settings.dry_run = true;
    let told = run(
        rehearsal,
        [calls(json!([think(Some(1))])), calls(json!([think(None)]))],
    )
    .await;
    assert_eq!(told.done().0, StopReason::Planned);
}

/// A tool appends its message where the author of the tool message says that it may, and nowhere else.
#[test]
fn a_returned_message_is_appended_where_its_author_opened_a_place() {
    let fixture: Value = serde_json::from_str(include_str!(
        "../../../../tests/fixtures/protocol/appended.json"
    ))
    .unwrap();
    for case in fixture["appended"].as_array().unwrap() {
        let to = &case["to"];
        let replies = [
            calls(json!([{"_tool": "pick", "to": to}, {"_tool": "echo", "v": "†inbox.ada"}])),
            output("filed"),
        ];
        let done = Play::new(&fixture["context"], replies).run().unwrap();
        let picked = done.outcomes()[0].1.clone();
        match &case["error"] {
            Value::String(error) => {
                let failure = picked.unwrap_err();
                assert_eq!(failure.kind, "output_path", "{to}");
                assert!(failure.message.contains(error), "{to}: {failure:?}");
                assert_eq!(done.data("†inbox", None), json!({}), "{to}");
                assert_eq!(
                    done.data("†rules", None),
                    json!({"refunds": "ask first"}),
                    "{to}"
                );
            }
            _ => {
                assert_eq!(picked, Ok(json!(1)), "{to}");
                assert_eq!(done.data("†inbox", None), json!({"ada": 1}), "{to}");
                // What reads the place waits for it.
                assert_eq!(done.outcomes()[1].1, Ok(json!({"v": 1})), "{to}");
            }
        }
    }
    // Where a place is free, or none is spoken of, only the call names one.
    for place in [json!({"type": "string", "pattern": "^†"}), Value::Null] {
        let mut context = fixture["context"].clone();
        context[2]["tool"]["pick"]["properties"]["_outputPath"] = place.clone();
        if place.is_null() {
            let properties = &mut context[2]["tool"]["pick"]["properties"];
            properties.as_object_mut().unwrap().remove("_outputPath");
        }
        let replies = [
            calls(json!([{"_tool": "pick", "to": "inbox.ada"}])),
            output("filed"),
        ];
        let done = Play::new(&context, replies).run().unwrap();
        assert_eq!(done.outcomes()[0].1, Ok(json!(1)), "{place}");
        assert_eq!(done.data("†inbox", None), json!({}), "{place}");
    }
    // A restriction that any place satisfies opens none.
    for restriction in [
        json!({"pattern": "^†."}),
        json!({"pattern": "†"}),
        json!({"pattern": "^†.*"}),
        json!({"pattern": "^†[a-z]+$"}),
        json!({"maxLength": 200}),
        json!({"minLength": 2}),
    ] {
        let mut context = fixture["context"].clone();
        context[2]["tool"]["pick"]["properties"]["_outputPath"] = restriction.clone();
        let replies = [
            calls(json!([{"_tool": "pick", "to": "rules"}])),
            output("filed"),
        ];
        let done = Play::new(&context, replies).run().unwrap();
        assert_eq!(done.outcomes()[0].1, Ok(json!(1)), "{restriction}");
        let rules = json!({"refunds": "ask first"});
        assert_eq!(done.data("†rules", None), rules, "{restriction}");
    }
    // A message that has a name and asks for no place is a result all the same.
    let replies = [
        calls(json!([{"_tool": "pick", "name": "message"}])),
        output("filed"),
    ];
    let mut context = fixture["context"].clone();
    context[2]["tool"]["pick"]["properties"]["name"] = json!({"type": "string"});
    let done = Play::new(&context, replies).run().unwrap();
    assert_eq!(done.outcomes()[0].1, Ok(json!(1)));
}

/// docs/protocol.md, 5.5: the host does not know where a call appends, or whether it does, before it returns.
#[test]
fn what_a_call_may_append_is_read_after_it_and_never_beside_it() {
    let fixture: Value = serde_json::from_str(include_str!(
        "../../../../tests/fixtures/protocol/appended.json"
    ))
    .unwrap();
    let mut context = fixture["context"].clone();
    context[0]["data"] = json!({"ada": "old", "eve": "old"});
    let echo = |read: &str| json!({"_tool": "echo", "v": read});
    let pick = json!({"_tool": "pick", "to": "inbox.ada"});
    // The third takes one call in a reply.
    for contract in [Contract::Schema, Contract::Tools] {
        let replies = [
            calls(json!([
                echo("†inbox.ada"),
                pick.clone(),
                echo("†inbox.ada"),
                echo("†inbox"),
                echo("†inbox.eve"),
                echo("†rules.refunds"),
            ])),
            output("filed"),
        ];
        let done = Play::new(&context, replies)
            .settings(|settings| settings.contract = contract)
            .run()
            .unwrap();
        let results: Vec<Value> = done
            .outcomes()
            .into_iter()
            .map(|(_, outcome)| outcome.unwrap())
            .collect();
        let said = |value: Value| json!({"v": value});
        let expect = [
            said(json!("old")),
            json!(1),
            said(json!(1)),
            said(json!({"ada": 1, "eve": "old"})),
            said(json!("old")),
            said(json!("ask first")),
        ];
        assert_eq!(results, expect, "{contract:?}");
    }
    // A call that appends nothing after all, or fails, holds up nothing for good.
    for to in ["rules.refunds", "nowhere at all"] {
        let replies = [
            calls(json!([{"_tool": "pick", "to": to}, echo("†inbox.ada")])),
            output("filed"),
        ];
        let done = Play::new(&context, replies).run().unwrap();
        assert!(done.outcomes()[0].1.is_err(), "{to}");
        assert_eq!(done.outcomes()[1].1, Ok(json!({"v": "old"})), "{to}");
    }
}

/// A call that may append and itself waits for a later one does not hold that one up.
#[test]
fn a_call_that_may_append_waits_for_a_later_one_that_reads_the_same_kind() {
    let fixture: Value = serde_json::from_str(include_str!(
        "../../../../tests/fixtures/protocol/appended.json"
    ))
    .unwrap();
    let mut context = fixture["context"].clone();
    context[0]["data"] = json!({"next": "inbox.ada"});
    let replies = [
        calls(json!([
            {"_tool": "pick", "to": "†rules.next.v"},
            {"_tool": "echo", "v": "†inbox.next", "_outputPath": "†rules.next"},
        ])),
        output("filed"),
    ];
    let done = Play::new(&context, replies).run().unwrap();
    let results: Vec<_> = done.outcomes().into_iter().map(|(_, it)| it).collect();
    assert_eq!(results, [Ok(json!(1)), Ok(json!({"v": "inbox.ada"}))]);
    assert_eq!(
        done.data("†inbox", None),
        json!({"next": "inbox.ada", "ada": 1})
    );
}

/// docs/protocol.md, 5.5: of two calls that read what an earlier one may append, only that one goes before it for which it
/// waits itself.
#[test]
fn a_reader_does_not_pass_a_call_that_may_append_because_another_does() {
    let fixture: Value = serde_json::from_str(include_str!(
        "../../../../tests/fixtures/protocol/appended.json"
    ))
    .unwrap();
    let mut context = fixture["context"].clone();
    context[0]["data"] = json!({"next": "inbox.ada", "ada": "old"});
    let read = json!({"_tool": "echo", "v": "†inbox.ada"});
    let replies = [
        calls(json!([
            {"_tool": "pick", "to": "†rules.next.v"},
            read.clone(),
            {"_tool": "echo", "v": "†inbox.next", "_outputPath": "†rules.next"},
        ])),
        output("filed"),
    ];
    let done = Play::new(&context, replies).run().unwrap();
    let results: Vec<_> = done.outcomes().into_iter().map(|(_, it)| it).collect();
    assert_eq!(
        results,
        [
            Ok(json!(1)),
            Ok(json!({"v": 1})),
            Ok(json!({"v": "inbox.ada"}))
        ]
    );
    // Nobody writes what it waits for: it is refused, and what waited for it is made.
    let replies = [
        calls(json!([{"_tool": "pick", "to": "†rules.never"}, read])),
        output("filed"),
    ];
    let done = Play::new(&context, replies).run().unwrap();
    let results = done.outcomes();
    assert_eq!(results[0].1.as_ref().unwrap_err().kind, "blocked");
    assert_eq!(results[1].1, Ok(json!({"v": "old"})));
}
