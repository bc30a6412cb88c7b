//! docs/protocol.md, 10.4: a call against the votes is held before it starts, and the sums go back.

use super::support::{
    Echo, Reply, Script, driver, end, holds, lines, rest, results, run, shown, starts,
};
use super::support::{calls, output};
use serde_json::{Value, json};
use std::sync::Arc;
use toolhold_agent::run::replay::replay;
use toolhold_agent::{Activities, Driver};
use toolhold_protocol::advisor::CouncilMode;
use toolhold_protocol::context::Message;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::{Event, EventKind, NoJournal};
use toolhold_protocol::settings::RunRequest;

/// A scenario of our own with the shape of the protocol's council.
fn fixture() -> Value {
    serde_json::from_str(include_str!(
        "../../../../tests/fixtures/protocol/council.json"
    ))
    .unwrap()
}

fn asked(fixture: &Value, contract: Contract) -> RunRequest {
    let mut request = RunRequest::new(uuid::Uuid::now_v7(), "the task");
    request.context = Message::parse_all(&fixture["context"]).unwrap();
    request.settings.contract = contract;
    request
}

fn cellar(echo: &Echo) -> Activities {
    Activities::default()
        .with("decant", echo.activity())
        .with("taste", echo.activity())
}

/// Its advisors' opinions, and then these calls.
fn decided(fixture: &Value, made: &Value) -> Value {
    json!({"advisors": fixture["opinions"], "calls": made, "output": null})
}

/// Whether each council's decision was held.
fn held(events: &[Event]) -> Vec<bool> {
    let councils = events.iter().filter_map(|event| match &event.kind {
        EventKind::Council { held, .. } => Some(*held),
        _ => None,
    });
    councils.collect()
}

fn outcomes(events: &[Event]) -> Vec<String> {
    let results = results(events).into_iter();
    results
        .map(|(tool, outcome)| {
            format!(
                "{tool}: {}",
                outcome["error"]["kind"].as_str().unwrap_or("ok")
            )
        })
        .collect()
}

#[tokio::test]
async fn a_call_against_the_council_is_held_and_the_sums_go_back() {
    let fixture = fixture();
    let (against, favoured) = (&fixture["against"], &fixture["favoured"]);
    // The model's second choice, and which tools were called in the end.
    for (second, made) in [
        (favoured, vec!["taste"]),
        // It has read the sums: the decision is its own.
        (against, vec!["decant"]),
    ] {
        for contract in Contract::ALL {
            let echo = Echo::default();
            let script = Script::new([
                Reply::of(contract, &decided(&fixture, &json!([against]))),
                Reply::of(contract, &calls(json!([second]))),
                Reply::of(contract, &output(fixture["output"].clone())),
            ]);
            let events = run(&driver(&script, cellar(&echo)), asked(&fixture, contract)).await;
            let what = format!("{contract:?} {second}: {}", lines(&events));
            assert_eq!(starts(&events), made, "{what}");
            assert_eq!(echo.count(), 1, "{what}");
            assert_eq!(held(&events), [true], "{what}");
            assert_eq!(outcomes(&events)[0], "decant: council", "{what}");
            let told = script.told(1).replace('\\', "");
            let sums = fixture["sums"].as_str().unwrap();
            assert!(told.contains("held and was not made"), "{told}");
            assert!(told.contains(sums), "{told}");
            assert_eq!(end(&events), ("output".into(), fixture["output"].clone()));
        }
    }
}

#[tokio::test]
async fn a_call_waits_for_the_votes_while_the_reply_streams() {
    let fixture = fixture();
    let (against, favoured) = (&fixture["against"], &fixture["favoured"]);
    let late = json!({"calls": [favoured], "advisors": fixture["opinions"], "output": null});
    // The reply, the tools whose calls start before its last piece, and those that start at all.
    for (contract, reply, early, all) in [
        (
            Contract::Schema,
            decided(&fixture, &json!([favoured])),
            vec!["taste"],
            vec!["taste"],
        ),
        // As soon as one of the calls is what the council favours, the decision is not against it.
        (
            Contract::Schema,
            decided(&fixture, &json!([against, favoured])),
            vec!["decant", "taste"],
            vec!["decant", "taste"],
        ),
        (
            Contract::Tools,
            decided(&fixture, &json!([against])),
            vec![],
            vec![],
        ),
        // Votes that are written last: nothing is made before they are counted.
        (Contract::Tools, late, vec![], vec!["taste"]),
    ] {
        let echo = Echo::default();
        let script = Script::new([
            Reply::of(contract, &reply),
            Reply::of(contract, &output("done")),
        ]);
        let events = shown(
            &driver(&script, cellar(&echo)),
            asked(&fixture, contract),
            |_| (),
        )
        .await;
        let last = events
            .iter()
            .rposition(|event| matches!(event.kind, EventKind::Delta { step: 1, .. }))
            .unwrap();
        let what = format!("{contract:?} {reply}: {}", lines(&events));
        assert_eq!(starts(&events[..last]), early, "{what}");
        assert_eq!(starts(&events), all, "{what}");
    }
}

/// What the votes hold in one instance holds no call of another.
#[tokio::test]
async fn each_instance_is_held_on_its_own() {
    let mut fixture = fixture();
    let context = fixture["context"].as_array_mut().unwrap();
    context[0]["isInstanced"] = true.into();
    context.remove(1);
    for instance in ["red", "white"] {
        context.push(
            json!({"type": "data", "kind": "bottle", "data": instance, "_instance": instance}),
        );
    }
    let says = |instance: &str, votes: &str| json!({"id": "cellar", "_instance": instance, "opinion": "o", "calls": votes});
    let call =
        |instance: &str| json!({"_tool": "decant", "bottle": "†bottle", "_instance": instance});
    let opinions = json!([
        says("red", "{\"taste\": 9, \"decant\": 1}"),
        says("white", "{\"decant\": 9}")
    ]);
    let first =
        json!({"advisors": opinions, "calls": [call("red"), call("white")], "output": null});
    let echo = Echo::default();
    let script = Script::new([
        Reply::of(Contract::Schema, &first),
        Reply::of(Contract::Schema, &output("done")),
    ]);
    let events = run(
        &driver(&script, cellar(&echo)),
        asked(&fixture, Contract::Schema),
    )
    .await;
    assert_eq!(
        outcomes(&events),
        ["decant: council", "decant: ok"],
        "{}",
        lines(&events)
    );
    let told = script.told(1).replace('\\', "");
    assert!(
        told.contains("in instance \"red\" the call of \"decant\" goes against the advisors"),
        "{told}"
    );
}

/// Nothing is written for a call that is held, and an output beside it does not end the run.
#[tokio::test]
async fn a_held_call_writes_nothing_and_an_output_beside_it_waits() {
    let fixture = fixture();
    let mut against = fixture["against"].clone();
    against["_outputPath"] = json!("†state.wine || †state.trouble");
    let mut context = fixture["context"].as_array().unwrap().clone();
    context.push(json!({"type": "state", "state": {}}));
    let fixture_with = json!({"context": context});
    let mut first = decided(&fixture, &json!([against]));
    first["output"] = "opened".into();
    let echo = Echo::default();
    let script = Script::new([
        Reply::of(Contract::Schema, &first),
        Reply::of(Contract::Schema, &output("left as it was")),
    ]);
    let mut request = asked(&fixture_with, Contract::Schema);
    request.settings.shape = toolhold_protocol::compose::Shape::Both;
    let events = run(&driver(&script, cellar(&echo)), request).await;
    assert_eq!(end(&events), ("output".into(), json!("left as it was")));
    assert!(!script.told(1).contains("written to"), "{}", script.told(1));
    assert!(
        script.told(1).contains("calls beside it are held"),
        "{}",
        script.told(1)
    );
}

#[tokio::test]
async fn a_plan_against_the_council_is_held_as_a_whole() {
    let mut fixture = fixture();
    let plan = json!({"type": "plan", "plan": [], "mode": "lazy"});
    fixture["context"].as_array_mut().unwrap().push(plan);
    let made = json!([fixture["against"]]);
    let echo = Echo::default();
    let script = Script::new([
        Reply::of(Contract::Schema, &decided(&fixture, &made)),
        Reply::of(Contract::Schema, &calls(&made)),
        Reply::of(Contract::Schema, &output("done")),
    ]);
    let events = run(
        &driver(&script, cellar(&echo)),
        asked(&fixture, Contract::Schema),
    )
    .await;
    let told = script.told(1).replace('\\', "");
    assert!(
        told.contains("the plan is held, and no call of it was made")
            && told.contains(fixture["sums"].as_str().unwrap()),
        "{told}"
    );
    assert_eq!(starts(&events), ["decant"], "{}", lines(&events));
    assert_eq!(held(&events), [true]);
}

/// A model that is held again and again is bound by the steps of the run, and by what was held before.
#[tokio::test]
async fn a_held_call_that_is_chosen_again_is_made_also_against_new_votes() {
    let mut fixture = fixture();
    for at in [0, 1] {
        fixture["context"][at]["on"] = "request".into();
    }
    let again = decided(&fixture, &json!([fixture["against"]]));
    let last = json!({"advisors": fixture["opinions"], "calls": [], "output": "done"});
    let echo = Echo::default();
    let replies = [&again, &again, &again, &last];
    let script = Script::new(replies.map(|reply| Reply::of(Contract::Schema, reply)));
    let events = run(
        &driver(&script, cellar(&echo)),
        asked(&fixture, Contract::Schema),
    )
    .await;
    // In the second step the council is told before the call begins, and again with the dissent when the reply has ended.
    assert_eq!(
        held(&events),
        [true, false, false, true, false],
        "{}",
        lines(&events)
    );
    assert_eq!(starts(&events), ["decant"]);
    assert_eq!(end(&events), ("output".into(), json!("done")));
}

/// With `run.council = "two-phases"` the advisors vote first, and the model chooses with the sums.
#[tokio::test]
async fn in_two_phases_the_sums_are_there_before_the_first_call() {
    let fixture = fixture();
    for contract in Contract::ALL {
        let echo = Echo::default();
        let script = Script::new([
            Reply::of(contract, &output(fixture["opinions"].clone())),
            Reply::of(contract, &calls(json!([fixture["against"]]))),
            Reply::of(contract, &output("done")),
        ]);
        let mut request = asked(&fixture, contract);
        request.settings.council = CouncilMode::TwoPhases;
        let events = run(&driver(&script, cellar(&echo)), request).await;
        let what = format!("{contract:?}: {}", lines(&events));
        let vote = script.bodies()[0].to_string();
        assert!(!vote.contains("\"_tool\""), "no call can be made: {vote}");
        assert!(
            script.told(0).contains("- decant: Opens a bottle"),
            "{contract:?} {}",
            script.told(0)
        );
        let told = script.told(1).replace('\\', "");
        for part in [fixture["sums"].as_str().unwrap(), "They came for it."] {
            assert!(told.contains(part), "{contract:?} {part}: {told}");
        }
        // What goes against the sums was chosen with them, so it is made and recorded.
        assert_eq!(starts(&events), ["decant"], "{what}");
        let flagged = |event: &Event| matches!(&event.kind, EventKind::Notice { message, .. } if message.contains("goes against the advisors"));
        assert!(events.iter().any(flagged), "{what}");
        assert_eq!(held(&events), [false], "{what}");
        assert_eq!(
            end(&events),
            ("output".into(), json!("done")),
            "{contract:?}"
        );
    }
}

#[tokio::test]
async fn advisors_that_vote_first_make_no_call_and_leave_a_step_for_the_choice() {
    let fixture = fixture();
    // Calls in the place of the votes.
    let echo = Echo::default();
    let script = Script::new([
        Reply::of(Contract::Tools, &calls(json!([fixture["favoured"]]))),
        Reply::of(Contract::Tools, &output(fixture["opinions"].clone())),
        Reply::of(Contract::Tools, &output("done")),
    ]);
    let mut request = asked(&fixture, Contract::Tools);
    request.settings.council = CouncilMode::TwoPhases;
    let events = run(&driver(&script, cellar(&echo)), request).await;
    assert!(starts(&events).is_empty(), "{}", lines(&events));
    assert!(
        script.told(1).contains("the advisors vote first"),
        "{}",
        script.told(1)
    );
    // The only Request that there may be has the votes and the choice.
    let script = Script::new([Reply::of(
        Contract::Schema,
        &decided(&fixture, &json!([fixture["against"]])),
    )]);
    let mut request = asked(&fixture, Contract::Schema);
    request.settings.council = CouncilMode::TwoPhases;
    request.settings.max_steps = 1;
    let events = run(&driver(&script, cellar(&echo)), request).await;
    assert_eq!(starts(&events), ["decant"]);
    assert_eq!(held(&events), [false]);
}

/// Wherever the process ends, a call that was held is not made by going on.
#[tokio::test]
async fn a_run_with_a_council_that_is_killed_after_any_event_goes_on() {
    let fixture = fixture();
    for mode in [CouncilMode::Hold, CouncilMode::TwoPhases] {
        let echo = Echo::default();
        let decision = decided(&fixture, &json!([fixture["against"]]));
        let replies = match mode {
            CouncilMode::Hold => vec![decision, calls(json!([fixture["favoured"]]))],
            CouncilMode::TwoPhases => vec![
                output(fixture["opinions"].clone()),
                calls(json!([fixture["favoured"]])),
            ],
        };
        let replies = replies.into_iter().chain([output("done")]);
        let script = Script::new(replies.map(|reply| Reply::of(Contract::Schema, &reply)));
        let mut request = asked(&fixture, Contract::Schema);
        request.settings.council = mode;
        let whole = run(&driver(&script, cellar(&echo)), request).await;
        for kept in 1..whole.len() {
            let mut events = whole[..kept].to_vec();
            let replayed = replay(&events).unwrap_or_else(|error| panic!("after {kept}: {error}"));
            let echo = Echo::default();
            let script: Arc<Script> = Script::new((0..4).map(|_| {
                Reply::of(
                    Contract::Schema,
                    &json!({"advisors": fixture["opinions"], "calls": [], "output": fixture["opinions"]}),
                )
            }));
            let driver = Driver {
                model: script,
                ..driver(&Script::new([]), cellar(&echo))
            };
            events.extend(rest(driver.resume(replayed, Box::new(NoJournal))).await);
            holds(&events);
            assert_eq!(
                end(&events).0,
                "output",
                "after {kept}: {}",
                lines(&events[kept..])
            );
            assert!(!starts(&events).contains(&"decant".to_owned()), "{kept}");
        }
    }
}

/// A reply that breaks off before the votes are there has made nothing.
#[tokio::test]
async fn a_reply_that_breaks_off_before_its_votes_made_no_call() {
    let fixture = fixture();
    let whole = json!({"calls": [fixture["favoured"]], "advisors": fixture["opinions"]});
    let echo = Echo::default();
    let script = Script::new([
        // The call is complete, and the votes have begun.
        Reply::of(Contract::Tools, &whole).breaking_after(8),
        Reply::of(Contract::Tools, &output("done")),
    ]);
    let events = run(
        &driver(&script, cellar(&echo)),
        asked(&fixture, Contract::Tools),
    )
    .await;
    assert!(starts(&events).is_empty(), "{}", lines(&events));
    assert_eq!(end(&events), ("output".into(), json!("done")));
    assert_eq!(held(&events), [false], "the vote was asked for again");
}

/// A call that the advisors favour and that cannot be made frees no other call.
#[tokio::test]
async fn a_favoured_call_that_cannot_be_made_frees_no_other() {
    let fixture = fixture();
    let against = &fixture["against"];
    for broken in [
        json!({"_tool": "taste"}),
        json!({"_tool": "taste", "bottle": "†nothing", "_outputPath": "†state.x"}),
        json!({"_tool": "taste", "bottle": "1961", "_instance": "nobody's"}),
        json!({"_tool": "taste", "bottle": "1961", "_outputPath": "†a ||"}),
    ] {
        for made in [json!([broken, against]), json!([against, broken])] {
            let echo = Echo::default();
            let script = Script::new([
                Reply::of(Contract::Schema, &decided(&fixture, &made)),
                Reply::of(Contract::Schema, &output("done")),
            ]);
            let asked = asked(&fixture, Contract::Schema);
            let events = run(&driver(&script, cellar(&echo)), asked).await;
            assert!(starts(&events).is_empty(), "{made}: {}", lines(&events));
            assert_eq!(held(&events), [true], "{made}");
            let told = script.told(1).replace('\\', "");
            let decant = "the call of \"decant\" goes against the advisors";
            assert!(told.contains(decant), "{made}: {told}");
        }
    }
}

/// Without an instance a call works on the data of all, so the votes of all instances judge it.
#[tokio::test]
async fn a_call_without_an_instance_does_not_escape_the_votes_of_the_instances() {
    let mut fixture = fixture();
    let context = fixture["context"].as_array_mut().unwrap();
    context[0]["isInstanced"] = true.into();
    context.remove(1);
    for instance in ["red", "white"] {
        context.push(
            json!({"type": "data", "kind": "bottle", "data": instance, "_instance": instance}),
        );
    }
    let says = |instance: &str| json!({"id": "cellar", "_instance": instance, "opinion": "o", "calls": "{\"taste\": 9, \"decant\": 1}"});
    let first = json!({"advisors": [says("red"), says("white")], "calls": [fixture["against"]], "output": null});
    let echo = Echo::default();
    let script = Script::new([
        Reply::of(Contract::Schema, &first),
        Reply::of(Contract::Schema, &output("done")),
    ]);
    let asked = asked(&fixture, Contract::Schema);
    let events = run(&driver(&script, cellar(&echo)), asked).await;
    assert_eq!(outcomes(&events), ["decant: council"], "{}", lines(&events));
    let told = script.told(1).replace('\\', "");
    assert!(told.contains("\"taste\" 18, \"decant\" 2"), "{told}");
}

/// A call that is held was not tried: its step stays open, and the saved context has no error of it.
#[tokio::test]
async fn the_step_of_a_held_call_stays_open_in_the_plan() {
    let mut fixture = fixture();
    let plan = json!({"type": "plan", "plan": [fixture["against"]], "mode": "eager"});
    fixture["context"].as_array_mut().unwrap().push(plan);
    let echo = Echo::default();
    let first = decided(&fixture, &json!([fixture["against"]]));
    let script = Script::new([
        Reply::of(Contract::Schema, &first),
        Reply::of(Contract::Schema, &output("done")),
    ]);
    let asked = asked(&fixture, Contract::Schema);
    let events = run(&driver(&script, cellar(&echo)), asked).await;
    assert_eq!(held(&events), [true], "{}", lines(&events));
    let told = script.told(1).replace('\\', "");
    assert!(told.contains("open: {"), "{told}");
    assert!(!told.contains("failed: {"), "{told}");
}

/// Where the model cannot be asked again, its call is made and recorded as one against the votes.
#[tokio::test]
async fn in_the_last_step_nothing_is_held() {
    let fixture = fixture();
    for finished in [Value::Null, json!("opened")] {
        let mut only = decided(&fixture, &json!([fixture["against"]]));
        only["output"] = finished.clone();
        let echo = Echo::default();
        let script = Script::new([Reply::of(Contract::Schema, &only)]);
        let mut request = asked(&fixture, Contract::Schema);
        request.settings.max_steps = 1;
        request.settings.shape = toolhold_protocol::compose::Shape::Both;
        let events = run(&driver(&script, cellar(&echo)), request).await;
        assert_eq!(starts(&events), ["decant"], "{}", lines(&events));
        assert_eq!(held(&events), [false]);
        let flagged = |event: &Event| matches!(&event.kind, EventKind::Notice { message, .. } if message.contains("goes against the advisors"));
        assert!(events.iter().any(flagged), "{}", lines(&events));
        let reason = if finished.is_null() {
            "max_steps"
        } else {
            "output"
        };
        assert_eq!(end(&events).0, reason);
    }
}

/// Leaving the votes out does not switch the council off: the reply goes back once.
#[tokio::test]
async fn calls_without_votes_go_back_once() {
    let fixture = fixture();
    let spoilt = json!([
        {"id": "cellar", "opinion": "o", "calls": "none"},
        {"id": "guests", "opinion": "o", "calls": "none"},
    ]);
    for silent in [Value::Null, json!([]), spoilt] {
        let first = json!({"advisors": silent, "calls": [fixture["against"]], "output": null});
        let last = json!({"advisors": null, "calls": [], "output": "done"});
        for second in [&decided(&fixture, &json!([fixture["favoured"]])), &first] {
            let echo = Echo::default();
            let replies = [&first, second, &last];
            let script = Script::new(replies.map(|reply| Reply::of(Contract::Schema, reply)));
            let asked = asked(&fixture, Contract::Schema);
            let events = run(&driver(&script, cellar(&echo)), asked).await;
            let told = script.told(1).replace('\\', "");
            assert!(told.contains("no advisor voted"), "{silent}: {told}");
            let made = if *second == first { "decant" } else { "taste" };
            assert_eq!(starts(&events), [made], "{silent}: {}", lines(&events));
            assert_eq!(held(&events), [false], "{silent}");
            assert_eq!(end(&events), ("output".into(), json!("done")));
        }
    }
}

/// In two phases, an output that holds no opinion is no vote.
#[tokio::test]
async fn a_vote_without_an_opinion_is_asked_for_again() {
    let fixture = fixture();
    let echo = Echo::default();
    let script = Script::new([
        Reply::of(Contract::Schema, &output("done")),
        Reply::of(Contract::Schema, &output(fixture["opinions"].clone())),
        Reply::of(Contract::Schema, &output("done")),
    ]);
    let mut request = asked(&fixture, Contract::Schema);
    request.settings.council = CouncilMode::TwoPhases;
    let events = run(&driver(&script, cellar(&echo)), request).await;
    assert!(script.told(1).contains("the advisors vote first"));
    assert!(script.told(2).contains("The advisors have voted"));
    assert_eq!(held(&events), [false], "{}", lines(&events));
}

/// What began before a reply broke off began by votes, or was chosen with them: the record has both.
#[tokio::test]
async fn a_reply_that_breaks_off_after_a_call_leaves_its_council_in_the_record() {
    let fixture = fixture();
    for mode in [CouncilMode::Hold, CouncilMode::TwoPhases] {
        let again = json!({"_tool": "taste", "bottle": "1962"});
        let vote = Reply::of(Contract::Schema, &output(fixture["opinions"].clone()));
        let (first, chosen) = match mode {
            CouncilMode::Hold => (
                None,
                decided(&fixture, &json!([fixture["favoured"], again])),
            ),
            CouncilMode::TwoPhases => (
                Some(vote),
                calls(json!([fixture["against"], fixture["against"]])),
            ),
        };
        let broken = Reply::of(Contract::Schema, &chosen);
        let deltas = broken.pieces();
        let replies = first.into_iter().chain([
            broken.breaking_after(deltas - 1),
            Reply::of(Contract::Schema, &output("done")),
        ]);
        let script = Script::new(replies);
        let echo = Echo::default();
        let mut request = asked(&fixture, Contract::Schema);
        request.settings.council = mode;
        let events = run(&driver(&script, cellar(&echo)), request).await;
        // Of the first reply that was used as a whole, advisors of the start are heard, too.
        let councils = if mode == CouncilMode::Hold { 2 } else { 1 };
        assert_eq!(held(&events), vec![false; councils], "{}", lines(&events));
        let flagged = |event: &Event| matches!(&event.kind, EventKind::Notice { message, .. } if message.contains("goes against the advisors"));
        let is_against = mode == CouncilMode::TwoPhases;
        assert_eq!(
            events.iter().any(flagged),
            is_against,
            "{mode:?}: {}",
            lines(&events)
        );
        assert!(!starts(&events).is_empty(), "{}", lines(&events));
    }
}
