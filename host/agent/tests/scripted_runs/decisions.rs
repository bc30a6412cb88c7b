//! Section 7, decisions: which calls wait, what a person can decide, and what a decision is bound to.

use super::support::{
    Echo, Reply, Script, driver, end, place, plain_tools, request, rest, results, run, starts,
    tools,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use toolhold_agent::run::decider::Decider;
use toolhold_agent::run::replay::replay;
use toolhold_agent::{Activities, Driver, ResolvedModule, ToolCall, ToolRunner, ToolSource};
use toolhold_protocol::context::Message;
use toolhold_protocol::decision::{Decision, DecisionRules, Pending, Verdict};
use toolhold_protocol::event::EventKind;
use toolhold_protocol::event::NoJournal;
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::saved::SavedRequest;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::tool::Tool;
use uuid::Uuid;

/// Decides as it was told, and keeps what it was asked. A decision may be bound to something else.
#[derive(Debug, Default)]
pub struct Person {
    verdicts: Mutex<VecDeque<(Option<&'static str>, Verdict)>>,
    pub asked: Mutex<Vec<Pending>>,
}

impl Person {
    pub fn who(verdicts: impl IntoIterator<Item = Verdict>) -> Arc<Self> {
        Arc::new(Self {
            verdicts: Mutex::new(
                verdicts
                    .into_iter()
                    .map(|verdict| (None, verdict))
                    .collect(),
            ),
            asked: Mutex::default(),
        })
    }
}

impl Decider for Person {
    fn decide<'a>(&'a self, _: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(pending.clone());
            let next = self.verdicts.lock().unwrap().pop_front();
            let Some((digest, verdict)) = next else {
                return std::future::pending().await;
            };
            Decision {
                digest: digest.map_or(pending.digest.clone(), str::to_owned),
                verdict,
                by: Some("a test".into()),
            }
        })
    }
}

fn policy(policy: &Value) -> DecisionRules {
    serde_json::from_value(policy.clone()).expect("a policy")
}

fn asking(script: &Arc<Script>, echo: &Echo, person: &Arc<Person>) -> Driver {
    let activities = Activities::default()
        .with("echo", echo.activity())
        .with("reads", echo.activity());
    Driver {
        decider: person.clone(),
        ..driver(script, activities)
    }
}

fn always() -> RunRequest {
    let mut request = request([plain_tools(&["echo", "reads"])]);
    request.settings.decisions = policy(&json!({"default": "always"}));
    request
}

#[tokio::test]
async fn a_policy_says_by_tool_which_calls_wait() {
    for (rules, waits) in [
        (json!({}), vec![]),
        (json!({"default": "always"}), vec!["echo", "reads"]),
        (json!({"default": "on-write"}), vec!["echo"]),
        (json!({"tools": {"reads": "always"}}), vec!["reads"]),
        (
            json!({"default": "always", "tools": {"echo": "never"}}),
            vec!["reads"],
        ),
    ] {
        let script = Script::new([
            Reply::calls(&[json!({"_tool": "echo"}), json!({"_tool": "reads"})]),
            Reply::output("done"),
        ]);
        let person = Person::who([Verdict::Approve, Verdict::Approve]);
        let echo = Echo::default();
        let mut request = request([tools(&[
            ("echo", json!({})),
            ("reads", json!({"readOnly": true})),
        ])]);
        request.settings.decisions = policy(&rules);
        let events = run(&asking(&script, &echo, &person), request).await;
        let mut asked: Vec<_> = person
            .asked
            .lock()
            .unwrap()
            .iter()
            .map(|p| p.call.tool.clone())
            .collect();
        asked.sort();
        assert_eq!(asked, waits, "{rules}");
        assert_eq!((echo.count(), end(&events).1), (2, json!("done")));
    }
}

/// What comes of a call by what a person decides.
#[tokio::test]
async fn a_call_is_approved_changed_replaced_or_refused() {
    for (verdict, made, outcome) in [
        (
            Verdict::Approve,
            Some(json!({"of": 1})),
            json!({"output": 1}),
        ),
        (
            Verdict::Edit {
                arguments: json!({"of": 2}),
            },
            Some(json!({"of": 2})),
            json!({"output": 2}),
        ),
        (
            Verdict::Replace { result: json!(3) },
            None,
            json!({"output": 3}),
        ),
        (
            Verdict::Refuse {
                reason: "too much".into(),
            },
            None,
            Value::Null,
        ),
    ] {
        let script = Script::new([
            Reply::calls(&[json!({"_tool": "echo", "of": 1})]),
            Reply::output("done"),
        ]);
        let (echo, person) = (Echo::default(), Person::who([verdict.clone()]));
        let events = run(&asking(&script, &echo, &person), always()).await;
        assert_eq!(
            echo.made.lock().unwrap().first().cloned(),
            made,
            "{verdict:?}"
        );
        let told = script.told(1);
        match verdict {
            Verdict::Refuse { .. } => {
                assert_eq!(results(&events)[0].1["error"]["kind"], "refused");
                assert!(
                    told.contains("a person refused this call: too much"),
                    "{told}"
                );
            }
            _ => assert_eq!(results(&events)[0].1, outcome),
        }
    }
}

/// What a person shows to be wrong is not done; they are asked again.
#[tokio::test]
async fn impossible_decision_is_asked_for_again() {
    let wrong = Decision {
        digest: String::new(),
        verdict: Verdict::Approve,
        by: None,
    };
    for (first, why) in [
        ((Some("another"), wrong.verdict), "made for other arguments"),
        (
            (
                None,
                Verdict::Edit {
                    arguments: json!({"n": "x"}),
                },
            ),
            "cannot be done: the arguments",
        ),
    ] {
        let script = Script::new([
            Reply::calls(&[json!({"_tool": "echo", "of": 1})]),
            Reply::output("done"),
        ]);
        let (echo, person) = (Echo::default(), Arc::new(Person::default()));
        person.verdicts.lock().unwrap().extend([
            first,
            (
                None,
                Verdict::Refuse {
                    reason: "now I see".into(),
                },
            ),
        ]);
        let events = run(&asking(&script, &echo, &person), always()).await;
        assert_eq!((person.asked.lock().unwrap().len(), echo.count()), (2, 0));
        place(
            &events,
            |kind| matches!(kind, EventKind::Notice { message, .. } if message.contains(why)),
        );
    }
}

/// A replaced result is held to the tool's own schema, as a real one is.
#[tokio::test]
async fn a_result_that_the_tool_could_not_have_is_asked_again() {
    let context =
        toolhold_protocol::context::Message::parse_all(&json!([{"type": "tool", "tool": {"echo": {
            "type": "object", "properties": {"of": {}, "_output": {"type": "integer"}},
        }}}]));
    let script = Script::new([
        Reply::calls(&[json!({"_tool": "echo", "of": 1})]),
        Reply::output("done"),
    ]);
    let (echo, person) = (
        Echo::default(),
        Person::who([
            Verdict::Replace { result: json!("x") },
            Verdict::Replace { result: json!(4) },
        ]),
    );
    let mut request = request(context.unwrap());
    request.settings.decisions = policy(&json!({"default": "always"}));
    let events = run(&asking(&script, &echo, &person), request).await;
    assert_eq!(results(&events)[0].1, json!({"output": 4}));
}

/// The same call again is another call, and waits again.
#[tokio::test]
async fn a_decision_counts_once() {
    let same = || Reply::calls(&[json!({"_tool": "echo", "of": 1})]);
    let script = Script::new([same(), same(), Reply::output("done")]);
    let (echo, person) = (
        Echo::default(),
        Person::who([
            Verdict::Approve,
            Verdict::Refuse {
                reason: "once".into(),
            },
        ]),
    );
    run(&asking(&script, &echo, &person), always()).await;
    let asked = person.asked.lock().unwrap();
    assert_eq!((asked.len(), echo.count()), (2, 1));
    assert_ne!(asked[0].digest, asked[1].digest);
}

/// What is approved is what is run: references are replaced before a person sees the arguments.
#[tokio::test]
async fn a_person_sees_what_would_be_run() {
    let script = Script::new([
        Reply::calls(&[
            json!({"_tool": "reads", "of": "secret plan", "_outputPath": "†state.x"}),
            json!({"_tool": "echo", "of": "†state.x"}),
        ]),
        Reply::output("done"),
    ]);
    let (echo, person) = (Echo::default(), Person::who([Verdict::Approve]));
    let mut request = always();
    request.settings.decisions = policy(&json!({"tools": {"echo": "always"}}));
    run(&asking(&script, &echo, &person), request).await;
    assert_eq!(
        person.asked.lock().unwrap()[0].arguments,
        json!({"of": "secret plan"})
    );
}

/// While one call waits for a person, the others run, also beyond their number of places.
#[tokio::test]
async fn while_one_waits_the_others_go_on() {
    let script = Script::new([Reply::calls(&[
        json!({"_tool": "echo", "of": 0}),
        json!({"_tool": "reads", "of": 1, "_outputPath": "†state.x"}),
        json!({"_tool": "reads", "of": "†state.x"}),
    ])]);
    let (echo, person) = (Echo::default(), Arc::new(Person::default()));
    let mut request = always();
    request.settings.decisions = policy(&json!({"tools": {"echo": "always"}}));
    request.settings.parallel_calls = 1;
    let mut run = asking(&script, &echo, &person)
        .start(request, Box::new(NoJournal))
        .await
        .unwrap();
    let mut events = Vec::new();
    while results(&events).len() < 2 {
        events.push(run.events.recv().await.unwrap());
    }
    run.cancel.cancel();
    events.extend(rest(run).await);
    super::support::holds(&events);
    assert_eq!(starts(&events), ["reads", "reads"]);
    assert_eq!(end(&events).0, "cancelled");
}

/// A run whose process ended while a call waited asks again, and what was decided counts then.
#[tokio::test]
async fn a_run_that_waits_survives_its_process() {
    let calls = [
        json!({"_tool": "echo", "of": 0}),
        json!({"_tool": "reads", "of": 1}),
    ];
    let script = Script::new([Reply::calls(&calls), Reply::output("done")]);
    let (echo, absent) = (Echo::default(), Arc::new(Person::default()));
    let mut request = always();
    request.settings.decisions = policy(&json!({"tools": {"echo": "always"}}));
    let mut first = asking(&script, &echo, &absent)
        .start(request, Box::new(NoJournal))
        .await
        .unwrap();
    let mut events = Vec::new();
    let is_answered = |events: &[toolhold_protocol::event::Event]| {
        let has_reply = events
            .iter()
            .any(|e| matches!(e.kind, EventKind::Plan { .. }));
        has_reply && results(events).len() == 1
    };
    while !is_answered(&events) {
        events.push(first.events.recv().await.unwrap());
    }
    drop(first);
    let person = Person::who([Verdict::Approve]);
    let resumed =
        asking(&script, &echo, &person).resume(replay(&events).unwrap(), Box::new(NoJournal));
    events.extend(rest(resumed).await);
    super::support::holds(&events);
    assert_eq!(end(&events).1, "done");
    assert_eq!(
        echo.made.lock().unwrap()[..],
        [json!({"of": 1}), json!({"of": 0})]
    );
    assert_eq!(
        absent.asked.lock().unwrap()[0].digest,
        person.asked.lock().unwrap()[0].digest,
        "what was decided about the one counts for the other"
    );
}

/// A shelf with a saved Request whose agent has a tool of its own.
#[derive(Debug)]
struct SubAgents;

impl ToolSource for SubAgents {
    fn tools(&self) -> Vec<Arc<Tool>> {
        Vec::new()
    }

    fn take_fetch(&self, _: &str) -> Option<RequestFetch> {
        None
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        Box::pin(async move {
            let tool = match name {
                "outer" => {
                    json!({"within": {"type": "object", "properties": {"_module": {"const": "inner"}}}})
                }
                _ => json!({"echo": {"type": "object", "properties": {"of": {}}}}),
            };
            let saved = json!({"context": [
                {"type": "tool", "tool": tool}, {"role": "user", "content": "Do it."},
            ]});
            Ok(ResolvedModule::Request(Box::new(SavedRequest::parse(
                &saved,
            )?)))
        })
    }
}

impl ToolRunner for SubAgents {
    fn call<'a>(&'a self, _: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        unreachable!("there are no modules")
    }
}

#[tokio::test]
async fn a_question_says_which_sub_agent_asks_it() {
    let outer = json!([{"type": "tool", "tool": {"outer": {"type": "object", "properties": {"_module": {"const": "outer"}}}}}]);
    let context = Message::parse_all(&outer).unwrap();
    let script = Script::new([
        Reply::calls(&[json!({"_tool": "echo", "of": 1})]),
        Reply::calls(&[json!({"_tool": "outer"})]),
        Reply::calls(&[json!({"_tool": "within"})]),
        Reply::calls(&[json!({"_tool": "echo", "of": 2})]),
        Reply::output("inner"),
        Reply::output("outer"),
        Reply::output("done"),
    ]);
    let person = Person::who([Verdict::Approve, Verdict::Approve]);
    let driver = Driver {
        decider: person.clone(),
        activities: Activities::default().with("echo", Echo::default().activity()),
        ..Driver::new(script, Arc::new(SubAgents))
    };
    let mut request = request(context.into_iter().chain([plain_tools(&["echo"])]));
    request.settings.decisions = policy(&json!({"tools": {"echo": "always"}}));
    let events = run(&driver, request).await;
    assert_eq!(end(&events).1, json!("done"));
    let asked = person.asked.lock().unwrap();
    let agents: Vec<_> = asked
        .iter()
        .map(|pending| pending.agents.as_slice())
        .collect();
    let own: [String; 0] = [];
    assert_eq!(agents, [&own[..], &["outer".into(), "within".into()]]);
    // The record says it, too.
    let record = serde_json::to_string(&events).unwrap();
    assert!(record.contains(r#""agents":["outer","within"]"#));
}
