//! Section 7, the fallback: a call that the run's own model keeps getting wrong is made by another one.

use super::support::{
    Reply, Script, driver, end, holds, json_of, lines, request, rest, run, tools,
};
use serde_json::{Value, json};
use std::sync::Arc;
use toolhold_agent::run::replay::replay;
use toolhold_agent::{Activities, Driver};
use toolhold_protocol::compose::Forcing;
use toolhold_protocol::context::Message;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::cost::{Amount, Price};
use toolhold_protocol::event::NoJournal;
use toolhold_protocol::event::{Event, EventKind, StopReason};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::fallback::Candidate;
use toolhold_protocol::settings::RunRequest;

/// `pick` takes 7 and nothing else.
fn activities() -> Activities {
    Activities::default()
        .with("pick", |arguments: Value| async move {
            match arguments["n"].as_i64() {
                Some(7) => Ok(json!("picked")),
                Some(403) => Err(ToolFailure {
                    kind: "key".into(),
                    class: toolhold_policy::ErrorClass::Fatal,
                    message: "the key is missing".into(),
                }),
                n => Err(ToolFailure::correctable("wrong", format!("{n:?} is not 7"))),
            }
        })
        .with("echo", |arguments: Value| async move { Ok(arguments) })
}

pub(super) fn pick(contract: Contract, n: i64) -> Reply {
    let call = json!({"_tool": "pick", "n": n});
    Reply::of(contract, &json!({"calls": [call], "output": null}))
}

pub(super) fn done(contract: Contract) -> Reply {
    Reply::of(contract, &json!({"calls": [], "output": "done"}))
}

pub(super) fn candidate(name: &str) -> Candidate {
    Candidate {
        name: name.into(),
        model: format!("{name}-model"),
        ..Candidate::default()
    }
}

/// A request whose candidates are asked in this order.
pub(super) fn asking(
    contract: Contract,
    candidates: impl IntoIterator<Item = Candidate>,
) -> RunRequest {
    let mut request = request([tools(&[
        ("pick", json!({"idempotent": true})),
        ("echo", json!({})),
    ])]);
    request.settings.contract = contract;
    request.settings.fallback.candidates = candidates.into_iter().collect();
    request.settings.fallback.attempts = 2;
    // So that a call that any model may make fails or succeeds by its arguments.
    request.settings.fallback.tool_errors = true;
    request
}

pub(super) fn with(own: &Arc<Script>, candidates: &[(&str, &Arc<Script>)]) -> Driver {
    let mut driver = driver(own, activities());
    for (name, script) in candidates {
        driver
            .candidates
            .insert((*name).to_owned(), (*script).clone());
    }
    driver
}

/// What happened in fallbacks: the stage, and who.
pub(super) fn stages(events: &[Event]) -> Vec<String> {
    let of = |event: &Value| {
        let who = event["candidate"].as_str().unwrap_or_default();
        let attempt = event["attempt"].as_u64();
        let attempt = attempt.map_or(String::new(), |n| format!(" {n}"));
        format!("{} {who}{attempt}", event["stage"].as_str().unwrap())
            .trim()
            .to_owned()
    };
    events
        .iter()
        .map(json_of)
        .filter(|event| event["event"] == "fallback")
        .map(|event| of(&event))
        .collect()
}

#[tokio::test]
async fn another_model_makes_the_call_and_the_own_one_goes_on() {
    for contract in Contract::ALL {
        let own = Script::new([
            pick(contract, 1),
            pick(contract, 2),
            pick(contract, 3),
            pick(contract, 4),
            done(contract),
        ]);
        // The candidates' endpoints may be asked in other ways.
        for theirs in Contract::ALL {
            let own = if theirs == Contract::Schema {
                own.clone()
            } else {
                Script::new([
                    pick(contract, 1),
                    pick(contract, 2),
                    pick(contract, 3),
                    pick(contract, 4),
                    done(contract),
                ])
            };
            let big = Script::new([pick(theirs, 5), pick(theirs, 7)]);
            let big_one = Candidate {
                contract: theirs,
                // Where its endpoint was found to refuse a name.
                forcing: match contract {
                    Contract::Tools => Forcing::Required,
                    Contract::Schema | Contract::Simple => Forcing::Named,
                },
                ..candidate("big")
            };
            let driver = with(&own, &[("big", &big)]);
            let events = run(&driver, asking(contract, [big_one])).await;
            assert_eq!(end(&events), ("output".into(), json!("done")));
            assert_eq!(
                stages(&events),
                [
                    "begun",
                    "asked big 1",
                    "failed big 1",
                    "asked big 2",
                    "succeeded big"
                ]
            );
            // A copy of the history, the tool forced, nothing else offered.
            let asked = big.bodies()[0].clone();
            let text = asked["messages"].to_string();
            for part in ["the task", "Some(1) is not 7", "Some(3) is not 7"] {
                assert!(text.contains(part), "{part}: {text}");
            }
            assert_eq!(asked["model"], "big-model");
            let form = json!([asked["tools"], asked["response_format"]]).to_string();
            assert!(!form.contains("echo"), "{form}");
            match theirs {
                Contract::Schema => {
                    let schema = &asked["response_format"]["json_schema"]["schema"];
                    let schema = toolhold_schema::Validator::new(schema).unwrap();
                    let call = json!({"_tool": "pick", "_reasoningForCall": "r", "n": 7});
                    let made = schema.check(&json!({"calls": [call], "output": null}));
                    assert!(made.is_ok(), "{made:?}");
                    assert!(schema.check(&json!({"calls": [], "output": "x"})).is_err());
                }
                Contract::Tools if contract == Contract::Tools => {
                    assert_eq!(asked["tool_choice"], "required");
                }
                Contract::Tools => {
                    assert_eq!(asked["tool_choice"]["function"]["name"], "pick");
                }
                Contract::Simple => {}
            }
            // Its messages are merged, and the own model goes on with its own form.
            let told = own.told(3);
            assert!(told.contains("picked"), "{told}");
            assert_eq!(own.asked(), 5);
            assert_eq!(own.bodies()[3]["model"], "script");
        }
    }
}

/// Other endpoints may refuse members of messages that they do not know.
#[tokio::test]
async fn reasoning_goes_back_to_the_model_that_it_came_from_alone() {
    let contract = Contract::Tools;
    let thinks = |n: i64, thought: &str, member: &'static str| {
        let reply = pick(contract, n).after_reasoning(thought);
        reply.in_member(member)
    };
    let own = [1, 2, 3].map(|n| thinks(n, "my thought", "reasoning_content"));
    let own = Script::new(own.into_iter().chain([done(contract)]));
    let big = Script::new([5, 7].map(|n| thinks(n, "their thought", "reasoning")));
    let big_one = Candidate {
        contract,
        ..candidate("big")
    };
    let events = run(&with(&own, &[("big", &big)]), asking(contract, [big_one])).await;
    assert_eq!(end(&events), ("output".into(), json!("done")));
    assert_eq!((own.asked(), big.asked()), (4, 2));
    for n in 0..2 {
        let told = big.told(n);
        assert!(
            !told.contains("my thought") && !told.contains("reasoning_content"),
            "{told}"
        );
    }
    let told = own.told(3);
    let mine = r#""reasoning_content":"my thought""#;
    assert_eq!(told.matches(mine).count(), 3, "{told}");
    assert!(!told.contains("their thought"), "{told}");
    // The call that the other model made has a text in its place.
    assert!(
        told.matches(r#""reasoning_content":"#).count() > 3,
        "{told}"
    );
}

/// The counter is reset by the success: three more failures are needed.
#[tokio::test]
async fn a_success_resets_the_counter() {
    let contract = Contract::Schema;
    let own = Script::new(
        [1, 2, 7, 3, 4, 5]
            .map(|n| pick(contract, n))
            .into_iter()
            .chain([done(contract)]),
    );
    let big = Script::new([pick(contract, 7)]);
    let driver = with(&own, &[("big", &big)]);
    let events = run(&driver, asking(contract, [candidate("big")])).await;
    assert_eq!(stages(&events), ["begun", "asked big 1", "succeeded big"]);
    assert_eq!((own.asked(), big.asked()), (7, 1));
}

#[tokio::test]
async fn candidates_are_asked_in_order_and_each_begins_with_a_fresh_copy() {
    let contract = Contract::Schema;
    let own = Script::new(
        [1, 2, 3]
            .map(|n| pick(contract, n))
            .into_iter()
            .chain([done(contract)]),
    );
    let first = Script::new([pick(contract, 41), Reply::output("no call")]);
    let broken = Script::new([
        Reply::text("x").breaking_after(1),
        Reply::text("x").breaking_after(1),
    ]);
    let last = Script::new([pick(contract, 7)]);
    let keyless = Candidate {
        missing: Some("its key is missing".into()),
        ..candidate("keyless")
    };
    let all = [
        candidate("first"),
        keyless,
        candidate("broken"),
        candidate("last"),
    ];
    let driver = with(
        &own,
        &[("first", &first), ("broken", &broken), ("last", &last)],
    );
    let events = run(&driver, asking(contract, all)).await;
    assert_eq!(
        stages(&events),
        [
            "begun",
            "asked first 1",
            "failed first 1",
            "asked first 2",
            "failed first 2",
            "skipped keyless",
            "asked broken 1",
            "failed broken 1",
            "asked broken 2",
            "failed broken 2",
            "asked last 1",
            "succeeded last",
        ]
    );
    assert!(first.told(1).contains("Some(41)"), "its own attempt");
    for text in [last.told(0), own.told(3)] {
        assert!(!text.contains("Some(41)"), "not those of others: {text}");
    }
    assert_eq!(end(&events), ("output".into(), json!("done")));
}

/// In the end the model gets the first error, and no candidate is asked again.
#[tokio::test]
async fn when_all_fail_the_first_error_is_what_counts() {
    let contract = Contract::Schema;
    let own = Script::new(
        [1, 2, 3, 4, 5, 6, 8]
            .map(|n| pick(contract, n))
            .into_iter()
            .chain([done(contract)]),
    );
    let big = Script::new([pick(contract, 51), pick(contract, 52)]);
    for candidates in [vec![candidate("big")], Vec::new()] {
        let is_asked = !candidates.is_empty();
        let own = if is_asked {
            own.clone()
        } else {
            Script::new(
                [1, 2, 3]
                    .map(|n| pick(contract, n))
                    .into_iter()
                    .chain([done(contract)]),
            )
        };
        let driver = with(&own, &[("big", &big)]);
        let events = run(&driver, asking(contract, candidates)).await;
        let stages = stages(&events);
        assert_eq!(stages.first().unwrap(), "begun");
        assert_eq!(stages.last().unwrap(), "exhausted");
        assert_eq!(stages.iter().filter(|stage| *stage == "begun").count(), 1);
        let told = own.told(3);
        assert!(
            told.contains("The first error was: Some(1) is not 7"),
            "{told}"
        );
        for theirs in ["Some(51)", "Some(52)"] {
            assert!(!told.contains(theirs), "{told}");
        }
        assert_eq!(end(&events), ("output".into(), json!("done")));
    }
}

#[tokio::test]
async fn it_can_be_switched_off() {
    let contract = Contract::Schema;
    let own = Script::new(
        [1, 2, 3, 4]
            .map(|n| pick(contract, n))
            .into_iter()
            .chain([done(contract)]),
    );
    let big = Script::new([]);
    let mut request = asking(contract, [candidate("big")]);
    request.settings.fallback.is_on = false;
    let events = run(&with(&own, &[("big", &big)]), request).await;
    assert!(stages(&events).is_empty());
    assert_eq!((own.asked(), big.asked()), (5, 0));
}

/// Another model does not find a key either.
#[tokio::test]
async fn faults_that_no_model_can_repair_are_not_counted() {
    let contract = Contract::Schema;
    let own = Script::new((0..4).map(|_| pick(contract, 403)).chain([done(contract)]));
    let big = Script::new([]);
    let events = run(
        &with(&own, &[("big", &big)]),
        asking(contract, [candidate("big")]),
    )
    .await;
    assert!(stages(&events).is_empty(), "{}", lines(&events));
}

/// The counter is that of a tool in its context.
#[tokio::test]
async fn instances_are_counted_apart() {
    let of = |instance: &str, n: i64| {
        Reply::calls(&[json!({"_tool": "pick", "_instance": instance, "n": n})])
    };
    let own = Script::new([
        of("a", 1),
        of("b", 2),
        of("a", 3),
        of("b", 4),
        of("b", 5),
        Reply::output("done"),
    ]);
    let big = Script::new([of("a", 7), of("b", 7)]);
    let mut request = asking(Contract::Schema, [candidate("big")]);
    let inputs = json!([
        {"type": "data", "kind": "user", "data": 1, "_instance": "a"},
        {"type": "data", "kind": "user", "data": 2, "_instance": "b"},
    ]);
    request.context.extend(Message::parse_all(&inputs).unwrap());
    let events = run(&with(&own, &[("big", &big)]), request).await;
    let asked: Vec<_> = events
        .iter()
        .map(json_of)
        .filter(|event| event["stage"] == "begun")
        .collect();
    assert_eq!(asked.len(), 1, "{}", lines(&events));
    assert_eq!(asked[0]["instance"], "b");
    // A call for the other instance is not the one that was asked for.
    assert_eq!(
        stages(&events),
        [
            "begun",
            "asked big 1",
            "failed big 1",
            "asked big 2",
            "succeeded big"
        ]
    );
}

/// What fallbacks ask is no step of the run's own model, and its tokens are the run's all the same.
#[tokio::test]
async fn statement_001_8_fallbacks_take_tokens_and_no_steps() {
    let contract = Contract::Schema;
    let own = || {
        Script::new(
            [1, 2, 3]
                .map(|n| pick(contract, n).counted(10, 0))
                .into_iter()
                .chain([done(contract)]),
        )
    };
    let big = || {
        Script::new([
            pick(contract, 5).counted(10, 0),
            pick(contract, 7).counted(10, 0),
        ])
    };
    let mut request = asking(contract, [candidate("big")]);
    request.settings.max_steps = 4;
    request.settings.token_budget = Some(100);
    let events = run(&with(&own(), &[("big", &big())]), request.clone()).await;
    assert_eq!(end(&events).0, "output");
    let steps = events.iter().find_map(|event| match event.kind {
        EventKind::Done { steps, .. } => Some(steps),
        _ => None,
    });
    assert_eq!(steps, Some(4));
    request.settings.token_budget = Some(40);
    let events = run(&with(&own(), &[("big", &big())]), request).await;
    assert_eq!(
        end(&events).0,
        json!(StopReason::TokenBudget).as_str().unwrap()
    );
}

/// Each reply costs what its own endpoint costs; if one has no price, the sum is unknown.
#[tokio::test]
async fn candidates_have_prices_of_their_own() {
    let contract = Contract::Schema;
    let of_prompts = |price: &str| {
        Some(Price::Tokens {
            prompt: price.parse().unwrap(),
            cached: Amount::ZERO,
            completion: Amount::ZERO,
        })
    };
    for (theirs, expected) in [(of_prompts("10"), Some("0.00023")), (None, None)] {
        let own = Script::new(
            [1, 2, 3]
                .map(|n| pick(contract, n).counted(10, 0))
                .into_iter()
                .chain([done(contract).counted(0, 0)]),
        );
        let big = Script::new([5, 7].map(|n| pick(contract, n).counted(10, 0)));
        let candidate = Candidate {
            price: theirs,
            ..candidate("big")
        };
        let mut request = asking(contract, [candidate]);
        request.settings.price = of_prompts("1");
        let events = run(&with(&own, &[("big", &big)]), request).await;
        holds(&events);
        let cost = events.iter().find_map(|event| match &event.kind {
            EventKind::Done { cost_nano, .. } => *cost_nano,
            _ => None,
        });
        let cost = cost.map(|cost| cost.to_string());
        assert_eq!(cost.as_deref(), expected, "{}", lines(&events));
    }
}

/// Whatever a process was killed in the middle of.
#[tokio::test]
async fn a_fallback_survives_its_process() {
    let contract = Contract::Schema;
    let own = Script::new(
        [1, 2, 3]
            .map(|n| pick(contract, n))
            .into_iter()
            .chain([done(contract)]),
    );
    let big = Script::new([pick(contract, 5), pick(contract, 7)]);
    let whole = run(
        &with(&own, &[("big", &big)]),
        asking(contract, [candidate("big")]),
    )
    .await;
    let begun = whole
        .iter()
        .position(|event| matches!(event.kind, EventKind::Fallback { .. }))
        .unwrap();
    for kept in begun..whole.len() - 1 {
        let mut events = whole[..kept].to_vec();
        let own = Script::new((0..3).map(|_| done(contract)));
        let big = Script::new((0..3).map(|_| pick(contract, 7)));
        let replayed = replay(&events).unwrap_or_else(|error| panic!("after {kept}: {error}"));
        let driver = with(&own, &[("big", &big)]);
        events.extend(rest(driver.resume(replayed, Box::new(NoJournal))).await);
        holds(&events);
        assert_eq!(
            end(&events).0,
            "output",
            "after {kept}: {}",
            lines(&events[kept..])
        );
        assert_eq!(
            stages(&events).last().unwrap(),
            "succeeded big",
            "after {kept}"
        );
    }
}

/// A repetition that was refused is no reason to have another model do it once more, nor is a call that
/// waited for what another never wrote.
#[tokio::test]
async fn call_refused_as_repeated_is_not_made_by_another_model() {
    let contract = Contract::Schema;
    let own = Script::new((0..5).map(|_| pick(contract, 7)).chain([done(contract)]));
    let big = Script::new([]);
    let events = run(
        &with(&own, &[("big", &big)]),
        asking(contract, [candidate("big")]),
    )
    .await;
    assert!(stages(&events).is_empty(), "{}", lines(&events));
    assert_eq!(end(&events).0, "output");
}

/// Many tools fail at once and no candidate is available: each failure is reported, and nothing is
/// nested.
#[tokio::test]
async fn a_thousand_tools_that_fail_are_each_told() {
    let names: Vec<String> = (0..1_000).map(|n| format!("t{n}")).collect();
    let mut activities = Activities::default();
    for name in &names {
        activities = activities.with(name.clone(), |_: Value| async {
            Err::<Value, _>(ToolFailure::correctable("wrong", "no"))
        });
    }
    let all = |n: usize| {
        let calls: Vec<Value> = names
            .iter()
            .map(|name| json!({"_tool": name, "n": n}))
            .collect();
        Reply::calls(&calls)
    };
    let script = Script::new([all(1), all(2), all(3), Reply::output("done")]);
    let tools: Vec<(&str, Value)> = names
        .iter()
        .map(|name| (name.as_str(), json!({})))
        .collect();
    let mut request = request([super::support::tools(&tools)]);
    request.settings.fallback.tool_errors = true;
    let events = run(&driver(&script, activities), request).await;
    assert_eq!(end(&events).0, "output");
    let exhausted = stages(&events)
        .iter()
        .filter(|stage| *stage == "exhausted")
        .count();
    assert_eq!(exhausted, 1_000);
}
