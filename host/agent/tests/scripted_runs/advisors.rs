//! docs/protocol.md, 10: advisors.

use super::support::told::{FinishedRun, request, run};
use super::support::{calls, output};
use serde_json::{Value, json};
use toolhold_protocol::advisor::{Council, Dissent, Tally};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::{EventKind, StopReason};

fn advisor(id: &str, on: impl Into<Value>) -> Value {
    json!({"type": "advisor", "id": id, "role": format!("Speaks as {id}."), "on": on.into()})
}

/// What an advisor without a schema says; `votes` is the JSON text.
fn says(id: &str, votes: &str) -> Value {
    json!({"id": id, "opinion": format!("{id} thinks"), "calls": votes})
}

fn with(advisors: Value, mut solution: Value) -> Value {
    let mut whole = json!({"advisors": advisors});
    whole
        .as_object_mut()
        .unwrap()
        .append(solution.as_object_mut().unwrap());
    whole
}

fn add() -> Value {
    calls(json!([{"_tool": "math.add", "a": 1, "b": 2}]))
}

/// The councils of the run, by step.
fn councils(told: &FinishedRun) -> Vec<(u32, &Council, &[Tally], Option<&Dissent>)> {
    let councils = told.events.iter().filter_map(|event| match &event.kind {
        EventKind::Council {
            step,
            council,
            tallies,
            dissent,
            ..
        } => Some((
            *step,
            council.as_ref(),
            tallies.as_slice(),
            dissent.as_ref(),
        )),
        _ => None,
    });
    councils.collect()
}

/// Who was heard in which step.
fn heard(told: &FinishedRun) -> Vec<(u32, Vec<String>)> {
    let councils = councils(told);
    councils
        .into_iter()
        .map(|(step, council, ..)| {
            let opinions = council.opinions.iter();
            (
                step,
                opinions.map(|opinion| opinion.advisor.clone()).collect(),
            )
        })
        .collect()
}

/// The ids that the `n`th Request asks for, as far as its schema says.
fn asked_for(told: &FinishedRun, n: usize) -> Vec<&'static str> {
    let whole = told.requests[n].to_string();
    let ids = ["first", "last", "always", "asked"];
    let is_asked = |id: &&str| {
        whole.contains(&format!(r#""id":{{"const":"{id}"}}"#))
            || whole.contains(&format!(r#"\"id\":{{\"const\":\"{id}\"}}"#))
    };
    ids.into_iter().filter(is_asked).collect()
}

/// One of each kind, in all contracts: who is asked when.
#[tokio::test]
async fn each_advisor_takes_part_when_it_should() {
    let messages = json!([
        advisor("first", "start"),
        advisor("last", "finish"),
        advisor("always", "request"),
        advisor("asked", Value::Null),
    ]);
    for contract in Contract::ALL {
        let told = run(
            request(contract, messages.clone()),
            [
                with(json!([says("first", "{}"), says("always", "{}")]), add()),
                with(json!([says("always", "{}")]), add()),
                with(json!([says("always", "{}")]), output("three")),
                with(
                    json!([says("last", "{}"), says("always", "{}")]),
                    output("3"),
                ),
            ],
        )
        .await;
        let asked: Vec<_> = (0..4).map(|n| asked_for(&told, n)).collect();
        let expect = [
            vec!["first", "always"],
            vec!["always"],
            vec!["always"],
            vec!["last", "always"],
        ];
        assert_eq!(asked, expect, "{contract:?}");
        assert_eq!(
            heard(&told),
            [
                (1, vec!["first".to_owned(), "always".into()]),
                (2, vec!["always".into()]),
                (3, vec!["always".into()]),
                (4, vec!["last".into(), "always".into()]),
            ],
            "{contract:?}"
        );
        assert_eq!(
            told.done(),
            (StopReason::Output, json!("3")),
            "{contract:?}"
        );
        let last = told.asked(3);
        assert!(
            last.contains("three") && last.contains("Before this ends, the advisors say"),
            "{last}"
        );
    }
}

#[tokio::test]
async fn those_who_speak_in_every_iteration_do_not_make_one_more() {
    let told = run(
        request(Contract::Schema, json!([advisor("always", "request")])),
        [with(json!([says("always", "{}")]), output("done"))],
    )
    .await;
    assert_eq!(told.requests.len(), 1);
    assert_eq!(heard(&told).len(), 1);
}

#[tokio::test]
async fn a_reply_that_could_not_be_used_was_not_the_first_iteration() {
    let told = run(
        request(Contract::Schema, json!([advisor("first", "start")])),
        [
            json!("Sure, I can help!"),
            with(json!([says("first", "{}")]), output("done")),
        ],
    )
    .await;
    assert_eq!(heard(&told), [(2, vec!["first".to_owned()])]);
}

#[tokio::test]
async fn advisors_at_the_end_may_send_the_model_back_to_work() {
    let told = run(
        request(Contract::Schema, json!([advisor("last", "finish")])),
        [
            output("a guess"),
            with(json!([says("last", "{\"math.add\": 90}")]), add()),
            output("three"),
            with(json!([says("last", "{}")]), output("three")),
        ],
    )
    .await;
    assert_eq!(told.done(), (StopReason::Output, json!("three")));
    assert_eq!(told.calls.len(), 1);
    assert_eq!(
        heard(&told)
            .iter()
            .map(|(step, _)| *step)
            .collect::<Vec<_>>(),
        [2, 4]
    );
}

#[tokio::test]
async fn an_output_is_not_lost_where_there_is_no_request_left_for_advisors() {
    let mut request = request(Contract::Schema, json!([advisor("last", "finish")]));
    request.settings.max_steps = 1;
    let told = run(request, [output("done")]).await;
    assert_eq!(told.done(), (StopReason::Output, json!("done")));
    assert!(
        told.notices()[0].starts_with("last could not be heard"),
        "{:?}",
        told.notices()
    );
}

#[tokio::test]
async fn advisors_come_first_and_write_their_own_fields_and_a_string_of_votes() {
    let mut risk = advisor("risk", "request");
    risk["schema"] = json!({"type": "object", "properties": {"level": {"type": "integer"}}, "required": ["level"]});
    risk["scopes"] = json!(["state"]);
    let told = run(
        request(Contract::Schema, json!([risk])),
        [with(
            json!([{"id": "risk", "level": 3, "calls": "{}"}]),
            output("done"),
        )],
    )
    .await;
    let schema = told.schema(0);
    for shape in schema["anyOf"].as_array().unwrap() {
        let names: Vec<_> = shape["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["advisors", "calls", "output"]);
        let opinion = &shape["properties"]["advisors"]["items"]["anyOf"][0];
        let fields: Vec<_> = opinion["properties"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["id", "level", "calls"], "{opinion}");
        assert_eq!(opinion["properties"]["calls"], json!({"type": "string"}));
    }
    let asked = told.asked(0);
    assert!(
        asked.contains("## Advisor: risk\n│ Speaks as risk.\nLooks at: state"),
        "{asked}"
    );
    assert_eq!(councils(&told)[0].1.opinions[0].fields["level"], 3);
}

/// Votes of several advisors, their sums, and whether the model's decision goes against them.
#[tokio::test]
async fn votes_are_added_up_and_a_decision_against_them_is_held_and_flagged() {
    let up = calls(json!([{"_tool": "text.up", "text": "x"}]));
    let both =
        calls(json!([{"_tool": "text.up", "text": "x"}, {"_tool": "math.add", "a": 1, "b": 2}]));
    for (mode, solution, is_against) in [
        ("eager", add(), false),
        ("eager", up.clone(), true),
        ("eager", both, false),
        ("eager", output("done"), false),
        ("lazy", add(), false),
        ("lazy", up, true),
    ] {
        let messages = json!([advisor("first", "start"), advisor("always", "start"), {"type": "plan", "mode": mode}]);
        let ends = solution["output"] != Value::Null;
        let votes = json!([
            says("first", "{\"math.add\": 80, \"text.up\": 30}"),
            says("always", "{\"math.add\": 20, \"text.up\": 50.5}")
        ]);
        let replies = [with(votes, solution.clone())]
            .into_iter()
            .chain((!ends).then(|| output("done")));
        let told = run(request(Contract::Schema, messages), replies).await;
        let (_, council, tallies, dissent) = councils(&told)[0];
        assert!(council.faults.is_empty());
        let standings: Vec<_> = tallies[0]
            .standings
            .iter()
            .map(|standing| {
                (
                    standing.tool.as_str(),
                    standing.sum,
                    standing.count,
                    standing.spread,
                )
            })
            .collect();
        assert_eq!(
            standings,
            [("math.add", 100.0, 2, 60.0), ("text.up", 80.5, 2, 20.5)]
        );
        assert_eq!(
            json!(tallies[0].outcome),
            json!({"result": "winner", "tool": "math.add", "sum": 100.0})
        );
        let who: Vec<_> = tallies[0].standings[0]
            .ballots
            .iter()
            .map(|ballot| (ballot.advisor.as_str(), ballot.weight))
            .collect();
        assert_eq!(who, [("first", 80.0), ("always", 20.0)]);
        assert_eq!(dissent.is_some(), is_against, "{mode} {solution}");
        let flagged = told
            .notices()
            .iter()
            .any(|notice| notice.contains("math.add"));
        assert_eq!(
            flagged,
            is_against,
            "{mode} {solution}: {:?}",
            told.notices()
        );
        let is_made = !is_against && !ends;
        assert_eq!(told.calls.is_empty(), !is_made, "{mode} {solution}");
    }
}

/// A faulty part of an opinion does not count, is reported, and does not affect other advisors'
/// votes.
#[tokio::test]
async fn faults_are_rejected_and_told_to_the_model_in_all_contracts() {
    for contract in Contract::ALL {
        for (said, fault, sum) in [
            (
                json!([says("first", "{\"math.guess\": 90, \"math.add\": 10}")]),
                "tools that do not exist: \"math.guess\"",
                10.0,
            ),
            (
                json!([says("first", "{\"math.add\": 101}")]),
                "the weight 101; write a number from 0 to 100",
                0.0,
            ),
            (
                json!([says("first", "{\"math.add\": 1, \"math.add\": 2}")]),
                "weighs \"math.add\" 2 times",
                0.0,
            ),
            (
                json!([says("first", "all of them")]),
                "calls is not JSON",
                0.0,
            ),
            (
                json!([{"id": "first", "calls": "{\"math.add\": 10}"}]),
                "its fields do not fit its schema",
                10.0,
            ),
            (
                json!([says("nobody", "{}"), says("first", "{\"math.add\": 10}")]),
                "advisor \"nobody\": is not asked now",
                10.0,
            ),
            (
                json!([says("first", "{}"), says("first", "{}")]),
                "gave 2 opinions",
                0.0,
            ),
            (json!([]), "gave no opinion", 0.0),
            (
                json!("first"),
                "must be a list with one object for each advisor",
                0.0,
            ),
        ] {
            let told = run(
                request(contract, json!([advisor("first", "start")])),
                match sum {
                    // Without any vote, the reply goes back once.
                    0.0 => vec![
                        with(said.clone(), add()),
                        with(said.clone(), add()),
                        output("done"),
                    ],
                    _ => vec![with(said.clone(), add()), output("done")],
                },
            )
            .await;
            let what = format!("{contract:?} {said}");
            let asked = told.asked(1);
            let words = match sum {
                0.0 => "no advisor voted",
                _ => "Of the advisors: ",
            };
            assert!(
                asked.contains(words) && asked.replace('\\', "").contains(&fault.replace('\\', "")),
                "{what}: {asked}"
            );
            let (_, council, tallies, _) = councils(&told)[0];
            assert!(!council.faults.is_empty(), "{what}");
            let found = tallies.first().map_or(0.0, |tally| tally.sum("math.add"));
            assert!((found - sum).abs() < 1e-9, "{what}: {found}");
            assert_eq!(told.calls.len(), 1, "{what}: the decision stands");
        }
        // Nothing said at all.
        let told = run(
            request(contract, json!([advisor("first", "start")])),
            [add(), add(), output("done")],
        )
        .await;
        assert!(told.asked(1).contains("gave no opinion"), "{contract:?}");
    }
}

#[tokio::test]
async fn an_instanced_advisor_speaks_for_each_instance_and_each_decision_is_held_against_its_votes()
{
    let mut each = advisor("always", "request");
    each["isInstanced"] = true.into();
    let of = |instance: &str, votes: &str| {
        let mut said = says("always", votes);
        said["_instance"] = instance.into();
        said
    };
    let input = |instance: &str| json!({"type": "input", "input": {"x": 1}, "schema": {}, "_instance": instance});
    let call = |instance: &str| json!({"_tool": "text.up", "text": "x", "_instance": instance});
    for contract in [Contract::Schema, Contract::Tools] {
        let told = run(
            request(
                contract,
                json!([each, advisor("first", "start"), input("a"), input("b")]),
            ),
            [
                with(
                    json!([
                        of("a", "{\"text.up\": 60}"),
                        of("b", "{\"math.add\": 90}"),
                        says("first", "{\"text.up\": 40}")
                    ]),
                    calls(json!([call("a"), call("b")])),
                ),
                with(json!([of("a", "{}"), of("b", "{}")]), output("done")),
            ],
        )
        .await;
        // The call of one instance began before the other one's was there: the council is told again at the end.
        let told = councils(&told);
        let mut first = told.iter().filter(|(step, ..)| *step == 1);
        let (_, council, tallies, dissent) = first.next_back().unwrap();
        let seats: Vec<_> = council
            .opinions
            .iter()
            .map(|opinion| (opinion.advisor.as_str(), opinion.instance.as_deref()))
            .collect();
        assert_eq!(
            seats,
            [
                ("always", Some("a")),
                ("always", Some("b")),
                ("first", None)
            ],
            "{contract:?}"
        );
        let sums: Vec<_> = tallies
            .iter()
            .map(|tally| {
                (
                    tally.instance.as_deref(),
                    tally.sum("text.up"),
                    tally.sum("math.add"),
                )
            })
            .collect();
        assert_eq!(
            sums,
            [
                (None, 40.0, 0.0),
                (Some("a"), 100.0, 0.0),
                (Some("b"), 40.0, 90.0)
            ]
        );
        let against: Vec<_> = dissent
            .unwrap()
            .against
            .iter()
            .map(|against| against.instance.as_deref())
            .collect();
        assert_eq!(against, [Some("b")]);
    }
}

#[tokio::test]
async fn an_advisor_on_demand_is_asked_through_a_tool_and_sees_the_task_and_the_context() {
    let mut asked = advisor("asked", Value::Null);
    asked["schema"] = json!({"type": "object", "properties": {"verdict": {"type": "string"}}, "required": ["verdict"]});
    asked["scopes"] = json!(["user", "state.nothing"]);
    let messages = json!([
        asked,
        {"type": "data", "kind": "user", "data": {"name": "Ada"}},
        {"type": "data", "kind": "secret", "data": "hush"},
    ]);
    let question = json!({"_tool": "ConsultAdvisor", "id": "asked", "question": "Is it wise?"});
    for contract in [Contract::Schema, Contract::Tools] {
        let told = run(
            request(contract, messages.clone()),
            [
                calls(json!([question])),
                // The advisor's own Request, and a first answer that it cannot give.
                output(json!({"opinion": "hm"})),
                output(json!({"verdict": "no"})),
                output("then not"),
            ],
        )
        .await;
        let offered = told.requests[0].to_string();
        assert!(
            offered.contains("ConsultAdvisor") && offered.contains("- asked: Speaks as asked."),
            "{offered}"
        );
        assert!(
            !told.asked(0).contains("## Advisor: asked"),
            "it takes part only when it is asked"
        );
        let room = told.asked(1);
        assert!(
            room.contains("Speaks as asked.") && room.contains("Is it wise?"),
            "{room}"
        );
        assert!(
            room.contains("Look first at: user, state.nothing"),
            "its scopes are a focus: {room}"
        );
        assert!(
            room.contains("Ada") && room.contains("hush") && room.contains("the task"),
            "they are no wall: {room}"
        );
        assert!(
            told.asked(3).contains("{\"verdict\":\"no\"}"),
            "{}",
            told.asked(3)
        );
        assert_eq!(
            told.done(),
            (StopReason::Output, json!("then not")),
            "{contract:?}"
        );
        let subs = told
            .events
            .iter()
            .filter(|event| matches!(event.kind, EventKind::Sub { .. }));
        assert!(subs.count() > 3, "what it was asked and said is recorded");
    }
}

#[tokio::test]
async fn only_advisors_on_demand_can_be_consulted() {
    let question = json!({"_tool": "ConsultAdvisor", "id": "first", "question": "?"});
    // There is one on demand, but it is another.
    let told = run(
        request(
            Contract::Schema,
            json!([advisor("first", "start"), advisor("asked", Value::Null)]),
        ),
        [
            with(json!([says("first", "{}")]), calls(json!([question]))),
            output("done"),
        ],
    )
    .await;
    assert_eq!(told.results()[0].1, Err("arguments".into()));
    // Without any there is no such tool.
    let told = run(
        request(Contract::Schema, json!([advisor("first", "finish")])),
        [
            calls(json!([question])),
            output("done"),
            with(json!([says("first", "{}")]), output("done")),
        ],
    )
    .await;
    assert_eq!(told.results()[0].1, Err("unknown_tool".into()));
    assert!(!told.requests[0].to_string().contains("ConsultAdvisor"));
}

#[tokio::test]
async fn to_consult_an_advisor_is_no_decision_against_the_council() {
    let told = run(
        request(
            Contract::Schema,
            json!([advisor("first", "start"), advisor("asked", Value::Null)]),
        ),
        [
            with(
                json!([says("first", "{\"math.add\": 90}")]),
                calls(json!([{"_tool": "ConsultAdvisor", "id": "asked", "question": "?"}])),
            ),
            output(json!({"opinion": "yes"})),
            output("done"),
        ],
    )
    .await;
    assert!(councils(&told)[0].3.is_none());
}

/// Its votes are those of the reply that comes after its answer, as if it had spoken in it.
#[tokio::test]
async fn the_votes_of_a_consulted_advisor_join_the_council_of_the_next_reply() {
    let question = json!({"_tool": "ConsultAdvisor", "id": "asked", "question": "Which?"});
    let up = calls(json!([{"_tool": "text.up", "text": "x"}]));
    let votes = json!({"opinion": "add", "calls": "{\"math.add\": 90, \"text.up\": 10}"});
    for on in [Value::Null, json!("request")] {
        let mut messages = vec![advisor("asked", Value::Null)];
        if !on.is_null() {
            messages.push(advisor("always", on.clone()));
        }
        let wrap = |solution: Value| {
            if on.is_null() {
                solution
            } else {
                with(json!([says("always", "{\"text.up\": 20}")]), solution)
            }
        };
        let told = run(
            request(Contract::Schema, messages.into()),
            [
                wrap(calls(json!([question]))),
                output(votes.clone()),
                wrap(up.clone()),
                wrap(add()),
                wrap(output("done")),
            ],
        )
        .await;
        assert_eq!(told.done(), (StopReason::Output, json!("done")), "{on}");
        let room = told.asked(1);
        assert!(
            room.contains("You may vote") && room.contains("- math.add:"),
            "{room}"
        );
        let outcomes: Vec<_> = told
            .results()
            .into_iter()
            .map(|(tool, outcome)| (tool, outcome.err()))
            .collect();
        assert_eq!(
            outcomes,
            [
                ("ConsultAdvisor".to_owned(), None),
                ("text.up".to_owned(), Some("council".to_owned())),
                ("math.add".to_owned(), None),
            ],
            "{on}"
        );
        let councils = councils(&told);
        let (_, council, tallies, dissent) = councils.iter().find(|(step, ..)| *step == 2).unwrap();
        let who = council.opinions.iter().map(|own| own.advisor.as_str());
        assert!(who.eq(if on.is_null() {
            vec!["asked"]
        } else {
            vec!["always", "asked"]
        }));
        assert!((tallies[0].sum("math.add") - 90.0).abs() < 1e-9, "{on}");
        assert!(dissent.is_some(), "{on}");
    }
}

#[tokio::test]
async fn statement_004_13_a_council_is_recorded_before_the_calls_that_it_allows() {
    let told = run(
        request(Contract::Schema, json!([advisor("first", "start")])),
        [
            with(json!([says("first", "{\"math.add\": 90}")]), add()),
            output("done"),
        ],
    )
    .await;
    let place = |is_it: fn(&EventKind) -> bool| {
        let at = told.events.iter().position(|event| is_it(&event.kind));
        at.unwrap()
    };
    let council = place(|kind| matches!(kind, EventKind::Council { .. }));
    let start = place(|kind| matches!(kind, EventKind::ToolStart { .. }));
    assert!(council < start, "{council} {start}");
    assert_eq!(heard(&told).len(), 1, "it is told once");
}

#[tokio::test]
async fn the_last_definition_of_an_advisor_wins() {
    let told = run(
        request(
            Contract::Schema,
            json!([advisor("first", "start"), advisor("first", "finish")]),
        ),
        [
            output("done"),
            with(json!([says("first", "{}")]), output("done")),
        ],
    )
    .await;
    assert_eq!(heard(&told), [(2, vec!["first".to_owned()])]);
}
