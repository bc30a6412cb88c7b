//! Section 7, the fallback: what counts as a failure of the model, and what a run ends with where no other
//! model does better.

use super::fallback::{asking, candidate, done, pick, stages, with};
use super::support::{Reply, Script, end, json_of, lines, results, run};
use serde_json::{Value, json};
use std::sync::Arc;
use toolhold_policy::pii::Kind;
use toolhold_protocol::context::Message;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::Event;
use toolhold_protocol::privacy::Privacy;
use toolhold_protocol::settings::RunRequest;

const CONTRACT: Contract = Contract::Schema;

fn request() -> RunRequest {
    let mut request = asking(CONTRACT, [candidate("big")]);
    request.settings.fallback.tool_errors = false;
    request
}

fn alone() -> RunRequest {
    let mut request = request();
    request.settings.fallback.candidates.clear();
    request
}

fn unknown(name: &str) -> Reply {
    Reply::calls(&[json!({"_tool": name, "n": 7})])
}

/// A call that its schema refuses, the same each time.
fn refused() -> Reply {
    Reply::calls(&[json!({"_tool": "pick", "n": "seven"})])
}

/// Why a run ended without an output.
fn error(events: &[Event]) -> String {
    let last = json_of(events.last().unwrap());
    last["error"]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn told_of(script: &Arc<Script>) -> String {
    script.bodies().last().unwrap()["messages"].to_string()
}

#[tokio::test]
async fn replies_that_cannot_be_read_reach_the_fallback() {
    for contract in Contract::ALL {
        let empty = || Reply::text("");
        let own = Script::new((0..3).map(|_| empty()).chain([done(contract)]));
        let big = Script::new([empty(), pick(contract, 7)]);
        let mut asked = asking(contract, [candidate("big")]);
        asked.settings.fallback.candidates[0].contract = contract;
        let events = run(&with(&own, &[("big", &big)]), asked).await;
        assert_eq!(
            stages(&events),
            [
                "begun",
                "asked big 1",
                "failed big 1",
                "asked big 2",
                "succeeded big"
            ],
            "{contract:?}: {}",
            lines(&events)
        );
        assert_eq!(end(&events), ("output".into(), json!("done")));
        // Every tool is there, what it did is the run's, and the own model goes on.
        let offered = big.bodies()[0].to_string();
        assert!(offered.contains("echo"), "{offered}");
        assert!(told_of(&own).contains("picked"), "{}", told_of(&own));
    }
}

#[tokio::test]
async fn an_answer_of_another_model_is_the_runs() {
    let own = Script::new((0..3).map(|_| Reply::text("I think")));
    let big = Script::new([done(CONTRACT)]);
    let events = run(&with(&own, &[("big", &big)]), request()).await;
    assert_eq!(end(&events), ("output".into(), json!("done")));
    assert_eq!(stages(&events), ["begun", "asked big 1", "succeeded big"]);
}

#[tokio::test]
async fn tools_that_do_not_exist_reach_the_fallback() {
    let own = Script::new([
        unknown("pikc"),
        unknown("peck"),
        unknown("puck"),
        done(CONTRACT),
    ]);
    let big = Script::new([unknown("pock"), pick(CONTRACT, 7)]);
    let events = run(&with(&own, &[("big", &big)]), request()).await;
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
    assert_eq!(end(&events), ("output".into(), json!("done")));
    assert!(told_of(&own).contains("picked"), "{}", told_of(&own));
}

#[tokio::test]
async fn a_reply_that_can_be_used_begins_the_count_anew() {
    let own = Script::new([
        Reply::text("I think"),
        unknown("pikc"),
        pick(CONTRACT, 7),
        unknown("peck"),
        Reply::text("I think"),
        done(CONTRACT),
    ]);
    let big = Script::new([]);
    let events = run(&with(&own, &[("big", &big)]), request()).await;
    assert!(stages(&events).is_empty(), "{}", lines(&events));
    assert_eq!(end(&events).0, "output");
}

/// The error is the one of the run's own model, and not the last or another model's.
#[tokio::test]
async fn when_no_model_gives_a_reply_the_run_ends_with_the_first_error() {
    let own = || Script::new([unknown("pikc"), Reply::text("I think"), unknown("peck")]);
    let big = Script::new((0..2).map(|_| Reply::text("so do I")));
    for request in [request(), alone()] {
        let own = own();
        let events = run(&with(&own, &[("big", &big)]), request).await;
        assert_eq!(end(&events).0, "unusable", "{}", lines(&events));
        let error = error(&events);
        let first = error.find("\"pikc\"").expect(&error);
        let last = error.find("\"peck\"").expect(&error);
        assert!(first < last && !error.contains("so do I"), "{error}");
        assert_eq!(own.asked(), 3);
    }
    assert_eq!(big.asked(), 2);
}

#[tokio::test]
async fn a_run_that_meets_a_limit_ends_with_the_first_error_as_well() {
    let own = Script::new((0..6).map(|n| {
        let arguments = json!({"_tool": "pick", "n": format!("no. {n}")});
        Reply::calls(&[arguments])
    }));
    let big = Script::new((0..2).map(|_| Reply::text("no")));
    let mut request = request();
    request.settings.max_steps = 5;
    let events = run(&with(&own, &[("big", &big)]), request).await;
    assert_eq!(end(&events).0, "max_steps", "{}", lines(&events));
    let error = error(&events);
    for part in ["run.max_steps", "pick", "no. 0"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!error.contains("no. 1"), "{error}");
}

/// A reply that calls a tool, and then breaks off into what is no JSON.
fn partly(tool: &str) -> Reply {
    let call = json!({"_tool": tool, "n": 7});
    Reply::text(&format!(r#"{{"calls": [{call}], "output": oops"#))
}

/// Whether the run ends or another model is asked is decided by one count.
#[tokio::test]
async fn a_reply_of_which_only_calls_could_be_used_counts_for_the_fallback() {
    let own = Script::new([
        Reply::text("I think"),
        partly("pick"),
        Reply::text("I think"),
        done(CONTRACT),
    ]);
    let big = Script::new([pick(CONTRACT, 7)]);
    let events = run(&with(&own, &[("big", &big)]), request()).await;
    assert_eq!(
        stages(&events),
        ["begun", "asked big 1", "succeeded big"],
        "{}",
        lines(&events)
    );
    assert_eq!(end(&events), ("output".into(), json!("done")));
}

/// Such replies get on as long as their calls do.
#[tokio::test]
async fn replies_whose_calls_are_made_end_nothing() {
    let big = Script::new([]);
    for mut request in [request(), alone()] {
        // The same call is not made a third time.
        request.settings.fallback.max_tool_failures = 9;
        let own = Script::new((0..5).map(|_| partly("pick")).chain([done(CONTRACT)]));
        let events = run(&with(&own, &[("big", &big)]), request).await;
        assert_eq!(end(&events).0, "output", "{}", lines(&events));
    }
}

#[tokio::test]
async fn replies_that_are_broken_and_call_no_tool_that_exists_end_the_run() {
    let names: Vec<String> = (0..12).map(|n| format!("pikc{n}")).collect();
    let own = Script::new(names.iter().map(|name| partly(name)));
    let events = run(&with(&own, &[]), alone()).await;
    assert_eq!(end(&events).0, "unusable", "{}", lines(&events));
    assert_eq!(own.asked(), 3);
    // And with another model, that one is asked.
    let own = Script::new(
        names[..3]
            .iter()
            .map(|name| partly(name))
            .chain([done(CONTRACT)]),
    );
    let big = Script::new([pick(CONTRACT, 7)]);
    let events = run(&with(&own, &[("big", &big)]), request()).await;
    assert_eq!(stages(&events), ["begun", "asked big 1", "succeeded big"]);
    assert_eq!(end(&events).0, "output");
}

/// The error is shown to the user, who gets no secret that a run hides.
#[tokio::test]
async fn the_error_of_a_run_holds_no_secret_that_is_hidden() {
    const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
    let given = json!({"_tool": "pick", "n": "<api_key_1>"});
    let own = Script::new((0..4).map(|_| Reply::calls(std::slice::from_ref(&given))));
    let mut request = alone();
    request.context.push(Message::user(format!("use {KEY}")));
    request.settings.privacy = Privacy {
        hide: Kind::ALL.iter().copied().collect(),
        reveal_secrets: ["pick".to_owned()].into(),
        ..Privacy::default()
    };
    let events = run(&with(&own, &[]), request).await;
    assert_eq!(end(&events).0, "unusable", "{}", lines(&events));
    let refused = results(&events)[0].1["error"]["message"].to_string();
    assert!(refused.contains(KEY), "the record has it: {refused}");
    let error = error(&events);
    assert!(
        error.contains("<api_key_1>") && !error.contains(KEY),
        "{error}"
    );
}

/// Also where the run ends for another reason than what failed first.
#[tokio::test]
async fn a_run_that_ends_by_a_refused_call_names_the_first_error_as_well() {
    let wrong = |n: usize| Reply::calls(&[json!({"_tool": "pick", "n": format!("no. {n}")})]);
    let own = Script::new([0, 1, 2, 2, 2, 2].map(wrong));
    let big = Script::new((0..2).map(|_| Reply::text("no")));
    let events = run(&with(&own, &[("big", &big)]), request()).await;
    assert_eq!(end(&events).0, "unusable", "{}", lines(&events));
    let error = error(&events);
    for part in ["4 times", "no. 2", "first with", "no. 0"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

/// A model that gets on in between is not stopped, however often it comes back to the call.
#[tokio::test]
async fn a_refused_call_is_counted_anew_when_another_was_made() {
    let own = Script::new(
        (0..5)
            .flat_map(|n| {
                [
                    refused(),
                    Reply::calls(&[json!({"_tool": "echo", "of": n})]),
                ]
            })
            .chain([done(CONTRACT)]),
    );
    let events = run(&with(&own, &[]), alone()).await;
    assert_eq!(end(&events).0, "output", "{}", lines(&events));
    // It is told all the same that this call was refused before.
    assert!(own.told(3).contains("was refused before"));
}

/// Whether or not another model is asked, the same refused call is not sent to the end of the run.
#[tokio::test]
async fn the_same_refused_call_is_not_sent_again_and_again() {
    let mut off = alone();
    off.settings.fallback.is_on = false;
    let echo = || Reply::calls(&[json!({"_tool": "echo", "of": "†", "_outputPath": "†state.x"})]);
    for (request, reply) in [
        (off.clone(), refused as fn() -> Reply),
        (alone(), refused),
        (off, echo),
    ] {
        let own = Script::new((0..12).map(|_| reply()));
        let events = run(&with(&own, &[]), request).await;
        assert_eq!(end(&events).0, "unusable", "{}", lines(&events));
        assert_eq!(own.asked(), 4);
        let error = error(&events);
        let reason = if error.contains("pick") {
            "/n: "
        } else {
            "/of"
        };
        assert!(
            error.contains("4 times") && error.contains(reason),
            "{error}"
        );
        let told: Vec<bool> = (0..4)
            .map(|at| own.told(at).contains("was refused before"))
            .collect();
        assert_eq!(told, [false, false, true, true]);
    }
}

/// A weak model repeats its whole list: what goes on beside the refused call is progress.
#[tokio::test]
async fn a_refused_call_beside_others_that_are_made_ends_nothing() {
    let own = Script::new(
        (0..6)
            .map(|n| {
                Reply::calls(&[
                    json!({"_tool": "pick", "n": "seven"}),
                    json!({"_tool": "echo", "of": n}),
                ])
            })
            .chain([done(CONTRACT)]),
    );
    let events = run(&with(&own, &[]), alone()).await;
    assert_eq!(end(&events).0, "output", "{}", lines(&events));
}

#[tokio::test]
async fn errors_of_the_tool_itself_count_only_where_that_is_configured() {
    for (tool_errors, expected) in [
        (false, vec![]),
        (true, vec!["begun", "asked big 1", "succeeded big"]),
    ] {
        let own = Script::new(
            [1, 2, 3]
                .map(|n| pick(CONTRACT, n))
                .into_iter()
                .chain([done(CONTRACT)]),
        );
        let big = Script::new([pick(CONTRACT, 7)]);
        let mut request = request();
        request.settings.fallback.tool_errors = tool_errors;
        let events = run(&with(&own, &[("big", &big)]), request).await;
        assert_eq!(stages(&events), expected);
        assert_eq!(end(&events), ("output".into(), json!("done")));
    }
}

/// It made a call that passes every check. What the tool says to it is for the run's own model.
#[tokio::test]
async fn a_candidate_is_not_blamed_for_the_tools_own_errors() {
    let own = Script::new(
        (0..3)
            .map(|n| {
                let arguments = json!({"_tool": "pick", "n": format!("no. {n}")});
                Reply::calls(&[arguments])
            })
            .chain([done(CONTRACT)]),
    );
    let big = Script::new([pick(CONTRACT, 5)]);
    let events = run(&with(&own, &[("big", &big)]), request()).await;
    assert_eq!(stages(&events), ["begun", "asked big 1", "succeeded big"]);
    assert!(
        told_of(&own).contains("Some(5) is not 7"),
        "{}",
        told_of(&own)
    );
}

#[tokio::test]
async fn each_model_has_three_attempts_unless_configured() {
    let mut request = request();
    request.settings.fallback.attempts = toolhold_protocol::fallback::Fallback::default().attempts;
    let own = Script::new((0..3).map(|_| refused()).chain([done(CONTRACT)]));
    let big = Script::new((0..3).map(|_| refused()));
    let events = run(&with(&own, &[("big", &big)]), request).await;
    assert_eq!(big.asked(), 3, "{}", lines(&events));
    assert_eq!(end(&events), ("output".into(), Value::from("done")));
}
