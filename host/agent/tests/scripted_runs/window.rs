//! Section 7, the budget: what a Request takes, what is dropped, and how the model reads it again.

use super::support::{Reply, Script, driver, end, holds, json_of, plain_tools, request, rest, run};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use toolhold_agent::run::replay::replay;
use toolhold_agent::{Activities, Driver};
use toolhold_model::{ChatRequest, CompletionObserver, Counter, Model, ModelError};
use toolhold_policy::pii::Kind;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::context::Message;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::Event;
use toolhold_protocol::event::NoJournal;
use toolhold_protocol::privacy::Privacy;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::turn::Role;

/// `order` tells of the order with a number: an identifier, what belongs to it, and much prose.
fn orders() -> Activities {
    Activities::default().with("order", |arguments: Value| async move {
        let n = arguments["n"].as_i64().unwrap_or(0);
        Ok(json!({
            "order": {"id": format!("ORD-{n}-x"), "total": n * 17, "customer": format!("c{n}@shop.example")},
            "remarks": format!("Order {n} was placed by somebody who had much to say. ").repeat(12),
        }))
    })
}

fn order(contract: Contract, n: usize) -> Reply {
    let call = json!({"_tool": "order", "n": n});
    Reply::of(contract, &json!({"calls": [call], "output": null}))
}

fn done(contract: Contract) -> Reply {
    Reply::of(contract, &json!({"calls": [], "output": "done"}))
}

fn asking(contract: Contract, window: Option<u64>) -> RunRequest {
    let mut request = request([plain_tools(&["order"])]);
    request.settings.contract = contract;
    request.settings.window.tokens = window;
    request.settings.max_steps = 99;
    request.settings.max_tokens = 200;
    request
}

fn of<'a>(events: &'a [Event], kind: &'a str) -> impl Iterator<Item = Value> + 'a {
    let all = events.iter().map(json_of);
    all.filter(move |event| event["event"] == kind)
}

fn total(budget: &Value) -> u64 {
    let parts = budget["parts"].as_array().unwrap();
    parts.iter().map(|part| part[1].as_u64().unwrap()).sum()
}

#[tokio::test]
async fn dropped_history_leaves_every_identifier_with_its_values() {
    for contract in Contract::ALL {
        let script = Script::new((1..=20).map(|n| order(contract, n)).chain([done(contract)]));
        let driver = driver(&script, orders());
        let events = run(&driver, asking(contract, Some(2_500))).await;
        assert_eq!(end(&events), ("output".into(), json!("done")));
        let dropped: u64 = of(&events, "summarized")
            .map(|event| event["turns"].as_u64().unwrap())
            .sum();
        assert!(dropped >= 10, "{contract:?}: {dropped} turns were dropped");
        for budget in of(&events, "budget") {
            assert!(total(&budget) <= 2_300, "{contract:?}: {budget}");
        }
        let last = script.told(20);
        for n in 1..=20 {
            let pair = format!("id=ORD-{n}-x, total={}, customer=c{n}@shop.example", n * 17);
            let whole = format!("ORD-{n}-x\\\\\\\",\\\\\\\"total");
            let is_there = last.contains(&pair)
                || last.contains(&whole)
                || last.contains(&format!("ORD-{n}-x\\\""));
            assert!(is_there, "{contract:?}: order {n}: {last}");
        }
        assert!(last.contains("the task"), "the task stays");
        let prose = last.matches("Order 1 was placed").count();
        assert!(prose <= 1, "{contract:?}: {prose}");
    }
}

/// Without a known window nothing is dropped; an endpoint that refuses a Request says how much fits.
#[tokio::test]
async fn an_endpoint_that_refuses_the_length_gets_less() {
    let contract = Contract::Schema;
    let refused = || Reply::overflowing(4_000, 3_000);
    let replies = (1..=9).map(|n| order(contract, n));
    let script = Script::new(replies.chain([refused(), done(contract)]));
    let driver = driver(&script, orders());
    let events = run(&driver, asking(contract, None)).await;
    assert_eq!(end(&events), ("output".into(), json!("done")));
    let (before, after) = (script.told(9), script.told(10));
    assert!(
        after.len() < before.len() && after.contains("id=ORD-1-x"),
        "{after}"
    );
    assert!(!before.contains("id=ORD-1-x"));

    let script = Script::new([refused(), refused(), refused(), refused()]);
    let driver = super::support::driver(&script, orders());
    let events = run(&driver, asking(contract, None)).await;
    assert_eq!(end(&events).0, "model", "there is nothing to drop");
    assert_eq!(script.asked(), 1);
}

/// What a reply might take, of each Request.
fn reply_tokens(script: &Script) -> Vec<u64> {
    let bodies = script.bodies();
    let limits = bodies.iter().map(|body| body["max_tokens"].as_u64());
    limits.map(Option::unwrap).collect()
}

/// The endpoint was not probed, and it refuses the first Request: there is nothing to drop, but there is room
/// for a shorter reply.
#[tokio::test]
async fn a_reply_is_given_less_before_history_is_dropped() {
    let refused = || Reply::overflowing(3_200, 4_096);
    for contract in Contract::ALL {
        let mut asked = asking(contract, None);
        asked.settings.max_tokens = 1_024;
        let script = Script::new([refused(), order(contract, 1), done(contract)]);
        let events = run(&driver(&script, orders()), asked.clone()).await;
        assert_eq!(end(&events), ("output".into(), json!("done")));
        assert_eq!(reply_tokens(&script)[..2], [1_024, 895], "{contract:?}");
        assert_eq!(script.told(0), script.told(1), "{contract:?}");
        let told: Vec<Value> = of(&events, "notice").collect();
        let said = told[0]["message"].as_str().unwrap();
        assert!(said.contains("895 tokens for the reply"), "{said}");
        let budgets: Vec<Value> = of(&events, "budget").collect();
        assert_eq!(budgets[0]["reply"], 1_024);
        assert_eq!(budgets[1]["reply"], 895);

        // Where that does not do either, history is dropped.
        let replies = (1..=5).map(|n| order(contract, n));
        let script = Script::new(replies.chain([refused(), refused(), done(contract)]));
        let events = run(&driver(&script, orders()), asked.clone()).await;
        assert_eq!(end(&events), ("output".into(), json!("done")));
        assert_eq!(reply_tokens(&script)[5..7], [1_024, 895], "{contract:?}");
        assert_eq!(script.told(5), script.told(6), "{contract:?}");
        let (before, after) = (script.told(6), script.told(7));
        assert!(
            after.len() < before.len() && after.contains("id=ORD-1-x"),
            "{contract:?}: {after}"
        );

        let script = Script::new([refused(), refused(), refused()]);
        let events = run(&driver(&script, orders()), asked).await;
        assert_eq!((end(&events).0.as_str(), script.asked()), ("model", 2));
    }
}

/// `list` tells of many orders in one result, `prose` of nothing in particular.
fn listing() -> Activities {
    Activities::default()
        .with("list", |_: Value| async {
            let orders = (0..150).map(|n| json!({"id": format!("A-{n}"), "total": n * 17}));
            Ok(json!({"orders": orders.collect::<Vec<_>>()}))
        })
        .with("prose", |arguments: Value| async move {
            let n = arguments["n"].as_u64().unwrap_or(0);
            let word: String = (0..n).map(|_| 'x').collect();
            Ok(json!(format!("{word}y much to say ").repeat(60)))
        })
}

/// A result that was cut is no JSON any more: what it told comes from where it is kept.
#[tokio::test]
async fn a_result_that_was_cut_leaves_every_pair() {
    for (window, has_room) in [(9_000, true), (4_500, false)] {
        for contract in Contract::ALL {
            let call = |call: Value| Reply::of(contract, &json!({"calls": [call], "output": null}));
            let list = call(json!({"_tool": "list"}));
            let prose = (1..=45).map(|n| call(json!({"_tool": "prose", "n": n})));
            let script = Script::new([list].into_iter().chain(prose).chain([done(contract)]));
            let mut asked = request([plain_tools(&["list", "prose"])]);
            asked.settings.contract = contract;
            asked.settings.window.tokens = Some(window);
            asked.settings.max_steps = 99;
            asked.settings.max_tokens = 200;
            asked.settings.result_chars = 600;
            let events = run(&driver(&script, listing()), asked).await;
            assert_eq!(end(&events), ("output".into(), json!("done")));
            assert!(script.told(1).contains("[cut: 600 of"), "{contract:?}");
            let last = script.told(46);
            let is_kept = |n: &usize| last.contains(&format!("id=A-{n}, total={}\\n", n * 17));
            let kept = (0..150).filter(is_kept).count();
            if has_room {
                assert_eq!(kept, 150, "{contract:?}: {last}");
                continue;
            }
            let key = of(&events, "tool_result").next().unwrap()["id"].clone();
            let said = format!(
                "{} values of what was told; read_result has them under {}.",
                2 * (150 - kept),
                key.as_str().unwrap()
            );
            assert!(kept > 50 && kept < 150, "{contract:?}: {kept}: {last}");
            assert!(last.contains(&said), "{contract:?}: {said}: {last}");
        }
    }
}

#[tokio::test]
async fn a_result_that_is_cut_is_read_part_by_part() {
    for contract in Contract::ALL {
        let script = Script::new([order(contract, 7), order(contract, 8), done(contract)]);
        let mut asked = asking(contract, None);
        asked.settings.result_chars = 300;
        let first = run(&driver(&script, orders()), asked.clone()).await;
        let told = script.told(1);
        let key = of(&first, "tool_result").next().unwrap()["id"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(told.contains("[cut: 300 of"), "{contract:?}: {told}");
        assert!(
            told.contains("read_result") && told.contains(&key),
            "{contract:?}: {told}"
        );
        let form = |n: usize| {
            let body = script.bodies()[n].clone();
            json!([body["tools"], body["response_format"], body["messages"][0]]).to_string()
        };
        assert!(!form(0).contains("read_result") && form(1).contains("read_result"));

        // The same run again, now with a model that reads on: ids come from the run's.
        let reads = |arguments: Value| {
            let mut call = json!({"_tool": "read_result", "key": key});
            call.as_object_mut()
                .unwrap()
                .extend(arguments.as_object().unwrap().clone());
            Reply::of(contract, &json!({"calls": [call], "output": null}))
        };
        let script = Script::new([
            order(contract, 7),
            reads(json!({"path": "order.id"})),
            reads(json!({"find": "somebody", "path": "remarks"})),
            reads(json!({"from": 99_999})),
            done(contract),
        ]);
        let events = run(&driver(&script, orders()), asked).await;
        let outputs: Vec<Value> = of(&events, "tool_result").collect();
        assert_eq!(
            outputs[1]["output"],
            json!({"text": "ORD-7-x"}),
            "{contract:?}"
        );
        let text = outputs[2]["output"]["text"].as_str().unwrap();
        assert!(
            text.starts_with("somebody who had") && text.len() == 150,
            "{text}"
        );
        assert!(
            outputs[3]["error"]["message"]
                .as_str()
                .unwrap()
                .contains("characters")
        );
        assert!(script.told(2).contains("ORD-7-x"));
    }
}

#[tokio::test]
async fn the_same_result_is_sent_once() {
    let contract = Contract::Schema;
    let both =
        json!([{"_tool": "order", "n": 3, "of": "a"}, {"_tool": "order", "n": 3, "of": "b"}]);
    let script = Script::new([
        Reply::of(contract, &json!({"calls": both, "output": null})),
        done(contract),
    ]);
    run(&driver(&script, orders()), asking(contract, None)).await;
    let told = script.told(1);
    assert_eq!(told.matches("ORD-3-x").count(), 1, "{told}");
    assert!(
        told.contains("the same, to the letter, as an earlier result above (order"),
        "{told}"
    );
}

/// Whether a Request begins with all of the one before it, byte for byte.
fn goes_on(before: &Value, after: &Value) -> bool {
    let parts = |body: &Value| {
        let mut body = body.clone();
        let messages = body["messages"].take();
        (body.to_string(), messages.as_array().unwrap().clone())
    };
    let ((head, before), (same, after)) = (parts(before), parts(after));
    head == same && after.starts_with(&before)
}

/// Prefix caches of servers hit.
#[tokio::test]
async fn a_request_begins_with_the_one_before_it() {
    for contract in Contract::ALL {
        let script = Script::new((1..=8).map(|n| order(contract, n)).chain([done(contract)]));
        run(&driver(&script, orders()), asking(contract, None)).await;
        for pair in script.bodies().windows(2) {
            assert!(goes_on(&pair[0], &pair[1]), "{contract:?}: {pair:?}");
        }
    }
}

/// So they do where the window is full, but for the steps in which history is dropped: those are few.
#[tokio::test]
async fn prefixes_hold_from_one_summary_to_the_next() {
    for contract in Contract::ALL {
        let replies = (1..=40).map(|n| order(contract, n));
        let script = Script::new(replies.chain([done(contract)]));
        let events = run(&driver(&script, orders()), asking(contract, Some(6_000))).await;
        assert_eq!(end(&events), ("output".into(), json!("done")));
        let steps: Vec<u64> = of(&events, "summarized")
            .map(|event| event["step"].as_u64().unwrap())
            .collect();
        assert!(steps.len() >= 2, "{contract:?}: {steps:?}");
        for pair in steps.windows(2) {
            assert!(pair[1] - pair[0] >= 4, "{contract:?}: {steps:?}");
        }
        for (step, pair) in (2..).zip(script.bodies().windows(2)) {
            let is_dropping = steps.contains(&step);
            assert_eq!(
                goes_on(&pair[0], &pair[1]),
                !is_dropping,
                "{contract:?}: step {step} of {steps:?}: {pair:?}"
            );
        }
        // What is dropped leaves room for a while, and no more than that.
        for summed_up in of(&events, "summarized") {
            let tokens = |name: &str| summed_up[name].as_u64().unwrap();
            let (before, after) = (tokens("tokens_before"), tokens("tokens_after"));
            assert!(before > 5_400 && after < 4_200, "{contract:?}: {summed_up}");
            assert!(after > 3_000, "{contract:?}: {summed_up}");
        }
    }
}

/// Of too many tools those are shown that the task speaks of; the model finds the others.
#[tokio::test]
async fn tools_are_disclosed_when_they_are_needed() {
    for contract in Contract::ALL {
        let names: Vec<String> = (0..100).map(|n| format!("gauge{n}")).collect();
        let mut all: Vec<&str> = names.iter().map(String::as_str).collect();
        all.extend(["weather", "translate"]);
        let calls = |call: Value| Reply::of(contract, &json!({"calls": [call], "output": null}));
        let script = Script::new([
            calls(json!({"_tool": "find_tools", "query": "translate a text"})),
            calls(json!({"_tool": "translate", "of": "x"})),
            calls(json!({"_tool": "gauge7", "of": "it knows the name"})),
            done(contract),
        ]);
        let count = std::sync::Arc::new(AtomicUsize::new(0));
        let mut activities = Activities::default();
        for name in &all {
            let count = count.clone();
            activities = activities.with(*name, move |_: Value| {
                count.fetch_add(1, Ordering::SeqCst);
                async { Ok(json!("made")) }
            });
        }
        let mut asked = request([plain_tools(&all)]);
        asked
            .context
            .push(toolhold_protocol::context::Message::user(
                "How is the weather?",
            ));
        asked.context.swap(0, 1);
        asked.settings.contract = contract;
        asked.settings.window.max_tools = 8;
        let events = run(&driver(&script, activities), asked).await;
        assert_eq!(end(&events), ("output".into(), json!("done")));
        assert_eq!(count.load(Ordering::SeqCst), 2, "{contract:?}");
        let shown = |n: usize| -> BTreeSet<String> {
            let body = &script.bodies()[n];
            let text = json!([body["tools"], body["messages"][0]]).to_string();
            let known = all.iter().chain(&["find_tools"]);
            known
                .filter(|name| {
                    [format!("## {name}\\n"), format!("\"name\":\"{name}\"")]
                        .iter()
                        .any(|form| text.contains(form))
                })
                .map(|name| (*name).to_owned())
                .collect()
        };
        let first = shown(0);
        assert!(
            first.contains("weather") && first.contains("find_tools"),
            "{first:?}"
        );
        assert!(
            first.len() <= 9 && !first.contains("translate"),
            "{first:?}"
        );
        let second = shown(1);
        assert!(
            second.contains("translate") && second.is_superset(&first),
            "{second:?}"
        );
    }
}

#[tokio::test]
async fn every_part_is_counted() {
    let contract = Contract::Schema;
    let script = Script::new([
        order(contract, 1).counted(1_000, 10),
        order(contract, 2).counted(1_200, 10),
        done(contract),
    ]);
    let events = run(&driver(&script, orders()), asking(contract, Some(100_000))).await;
    let budgets: Vec<Value> = of(&events, "budget").collect();
    assert_eq!(budgets.len(), 3);
    for budget in &budgets {
        assert_eq!(
            (&budget["window"], &budget["reply"]),
            (&json!(100_000), &json!(200))
        );
    }
    let names = |budget: &Value| -> Vec<String> {
        let parts = budget["parts"].as_array().unwrap();
        parts
            .iter()
            .map(|part| part[0].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&budgets[0]), ["system", "user", "tools"]);
    assert_eq!(
        names(&budgets[1]),
        ["system", "user", "results", "history", "tools"]
    );
    // The endpoint's count corrects the estimates: of the second Request it was told the first's.
    let bytes = |n: usize| script.told(n).len() as f64;
    let expected = bytes(2) / bytes(1) * 1_200.0;
    let counted = total(&budgets[2]) as f64;
    assert!(
        (counted / expected - 1.0).abs() < 0.15,
        "{counted} {expected}"
    );
}

#[tokio::test]
async fn a_summary_survives_its_process() {
    let contract = Contract::Schema;
    let script = Script::new((1..=12).map(|n| order(contract, n)).chain([done(contract)]));
    let whole = run(&driver(&script, orders()), asking(contract, Some(2_500))).await;
    for kept in (2..whole.len() - 1).step_by(37) {
        let mut events = whole[..kept].to_vec();
        let replayed = replay(&events).unwrap_or_else(|error| panic!("after {kept}: {error}"));
        let script = Script::new((0..9).map(|_| done(contract)));
        let driver = driver(&script, orders());
        events.extend(rest(driver.resume(replayed, Box::new(NoJournal))).await);
        holds(&events);
    }
}

/// A model whose endpoint counts: a word is so many tokens.
#[derive(Debug)]
struct CountingModel {
    model: Arc<dyn Model>,
    words: Arc<Words>,
}

#[derive(Debug)]
struct Words {
    each: u64,
    /// After so many texts it fails.
    until: usize,
    asked: Mutex<Vec<String>>,
}

impl Words {
    fn of(&self, text: &str) -> u64 {
        self.each * text.split_whitespace().count() as u64
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Model for CountingModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        self.model.complete(request, watch)
    }

    fn counter(&self) -> Option<Arc<dyn Counter>> {
        Some(self.words.clone())
    }
}

impl Counter for Words {
    fn count<'a>(&'a self, text: &'a str) -> BoxFuture<'a, Result<u64, ModelError>> {
        Box::pin(async move {
            let mut asked = self.asked.lock().unwrap();
            if asked.len() >= self.until {
                return Err(ModelError::Config {
                    message: "the tokenizer is gone".into(),
                });
            }
            asked.push(text.to_owned());
            Ok(self.of(text))
        })
    }
}

/// A driver whose endpoint counts, until it was asked for so many texts.
fn counting(script: &Arc<Script>, each: u64, until: usize) -> (Driver, Arc<Words>) {
    let mut driver = driver(script, orders());
    let words = Arc::new(Words {
        each,
        until,
        asked: Mutex::default(),
    });
    driver.model = Arc::new(CountingModel {
        model: driver.model.clone(),
        words: words.clone(),
    });
    (driver, words)
}

fn exact(budget: &Value) -> BTreeSet<String> {
    let parts = budget["exact"].as_array().into_iter().flatten();
    parts
        .map(|part| part.as_str().unwrap().to_owned())
        .collect()
}

fn part(budget: &Value, name: &str) -> u64 {
    let parts = budget["parts"].as_array().unwrap();
    let found = parts.iter().find(|part| part[0] == name);
    found.map_or(0, |part| part[1].as_u64().unwrap())
}

/// What the author of a context says as its system is a part of the instructions, and no word of the user.
#[tokio::test]
async fn messages_of_the_system_count_as_policy() {
    let rule = "Never promise a refund. ".repeat(60);
    let mut parts = Vec::new();
    for role in [None, Some(Role::System), Some(Role::User)] {
        let mut request = asking(Contract::Schema, Some(100_000));
        if let Some(role) = role {
            request.context.insert(0, Message::text(role, rule.clone()));
        }
        let script = Script::new([done(Contract::Schema)]);
        let events = run(&driver(&script, orders()), request).await;
        let budget = of(&events, "budget").next().unwrap();
        parts.push(["system", "user", "tools", "policy"].map(|name| part(&budget, name)));
    }
    let [[system, user, tools, policy], as_system, as_user] = <[_; 3]>::try_from(parts).unwrap();
    let more = rule.len() as u64 / 3;
    assert_eq!((policy, as_user[3]), (0, 0));
    assert!(
        (more..more + 3).contains(&as_system[3]),
        "{more} {as_system:?}"
    );
    assert!(as_system[0].abs_diff(system) <= 1, "{system} {as_system:?}");
    assert!(as_system[1].abs_diff(user) <= 1, "{user} {as_system:?}");
    assert_eq!(as_user[0], system);
    assert!(as_user[1] >= user + more, "{user} {as_user:?}");
    // The form of a reply is as long as before; only a line between messages is new.
    assert!(as_system[2].abs_diff(tools) <= 2, "{tools} {as_system:?}");
}

#[tokio::test]
async fn an_endpoint_that_counts_makes_every_part_exact() {
    for contract in Contract::ALL {
        let script = Script::new([
            order(contract, 1),
            order(contract, 2).counted(500, 10),
            done(contract),
        ]);
        let (driver, words) = counting(&script, 1, usize::MAX);
        let events = run(&driver, asking(contract, Some(100_000))).await;
        assert_eq!(end(&events), ("output".into(), json!("done")));
        let budgets: Vec<Value> = of(&events, "budget").collect();
        assert_eq!(budgets.len(), 3);
        for (n, budget) in budgets.iter().enumerate() {
            let texts = script.bodies()[n]["messages"].clone();
            let texts = texts.as_array().unwrap().iter();
            let written: u64 = texts
                .map(|message| words.of(message["content"].as_str().unwrap_or_default()))
                .sum();
            let template = part(budget, "template");
            assert!(template > 0, "{contract:?}: {budget}");
            if contract == Contract::Tools {
                // The form in which a template writes functions cannot be counted.
                assert!(!exact(budget).contains("tools"), "{budget}");
            } else {
                assert_eq!(
                    total(budget) - template,
                    written,
                    "{contract:?} {n}: {budget}"
                );
                assert!(exact(budget).contains("tools"), "{budget}");
            }
            let told: BTreeSet<&str> = ["system", "user"].into();
            assert!(
                told.iter().all(|part| exact(budget).contains(*part)),
                "{budget}"
            );
            assert_eq!(exact(budget).contains("results"), n > 0, "{budget}");
            assert!(!exact(budget).contains("template"), "{budget}");
        }
        // The endpoint counted 500 for the second prompt: what is not of its texts is the template's.
        if contract != Contract::Tools {
            let texts = total(&budgets[1]) - part(&budgets[1], "template");
            let messages =
                |n: usize| script.bodies()[n]["messages"].as_array().unwrap().len() as u64;
            let template = ((500 - texts) * messages(2)).div_ceil(messages(1));
            assert_eq!(part(&budgets[2], "template"), template, "{contract:?}");
        }
        // No text is counted twice.
        let asked = words.asked();
        let distinct: BTreeSet<&String> = asked.iter().collect();
        assert_eq!(distinct.len(), asked.len(), "{contract:?}");
    }
}

/// The same run, by an endpoint with a token a word and by one with many: by bytes both are the same.
#[tokio::test]
async fn turns_are_dropped_by_token_count() {
    let contract = Contract::Schema;
    let dropped = async |each: u64| {
        let script = Script::new((1..=9).map(|n| order(contract, n)).chain([done(contract)]));
        let (driver, _) = counting(&script, each, usize::MAX);
        let events = run(&driver, asking(contract, Some(2_500))).await;
        assert_eq!(end(&events), ("output".into(), json!("done")));
        for budget in of(&events, "budget") {
            assert!(total(&budget) + 200 <= 2_500, "{each}: {budget}");
            assert!(exact(&budget).contains("user"), "{each}: {budget}");
        }
        of(&events, "summarized").count()
    };
    assert_eq!(dropped(1).await, 0);
    assert!(dropped(4).await > 0);
}

#[tokio::test]
async fn a_tokenizer_that_fails_midway_is_not_asked_again() {
    let contract = Contract::Schema;
    for until in [0, 1, 3, 6, 8] {
        let script = Script::new((1..=4).map(|n| order(contract, n)).chain([done(contract)]));
        let (driver, words) = counting(&script, 1, until);
        let events = run(&driver, asking(contract, Some(100_000))).await;
        assert_eq!(end(&events), ("output".into(), json!("done")), "{until}");
        let notices: Vec<Value> = of(&events, "notice").collect();
        assert_eq!(notices.len(), 1, "{until}: {notices:?}");
        let said = notices[0]["message"].as_str().unwrap();
        assert!(
            said.contains("estimated") && said.contains("the tokenizer is gone"),
            "{said}"
        );
        assert_eq!(words.asked().len(), until);
        let last = of(&events, "budget").last().unwrap();
        assert!(!exact(&last).contains("results"), "{until}: {last}");
        assert!(part(&last, "results") > 0, "{until}: {last}");
    }
}

/// Counting is something that the run was told: it is replayed, and begun anew by another process.
#[tokio::test]
async fn counting_survives_its_process() {
    let contract = Contract::Schema;
    let script = Script::new((1..=9).map(|n| order(contract, n)).chain([done(contract)]));
    let (driver, _) = counting(&script, 4, usize::MAX);
    let whole = run(&driver, asking(contract, Some(2_500))).await;
    let counted: Vec<usize> = (0..whole.len())
        .filter(|at| json_of(&whole[*at])["event"] == "counted")
        .collect();
    assert!(counted.len() >= 10, "{counted:?}");
    for at in counted {
        for kept in [at, at + 1] {
            let mut events = whole[..kept].to_vec();
            let replayed = replay(&events).unwrap_or_else(|error| panic!("after {kept}: {error}"));
            let script = Script::new((0..3).map(|_| done(contract)));
            let (driver, words) = counting(&script, 1, usize::MAX);
            events.extend(rest(driver.resume(replayed, Box::new(NoJournal))).await);
            holds(&events);
            // Another endpoint may count otherwise.
            assert!(!words.asked().is_empty(), "after {kept}");
        }
    }
}

#[tokio::test]
async fn the_tokenizer_sees_no_more_than_the_model() {
    let contract = Contract::Schema;
    let script = Script::new([order(contract, 1), done(contract)]);
    let (driver, words) = counting(&script, 1, usize::MAX);
    let mut asked = asking(contract, Some(100_000));
    asked.instructions.push_str(" Ask boss@corp.example.");
    asked
        .context
        .push(toolhold_protocol::context::Message::user(
            "I am me@home.example.",
        ));
    asked.settings.privacy = Privacy {
        hide: BTreeSet::from([Kind::Email]),
        ..Privacy::default()
    };
    run(&driver, asked).await;
    let told = words.asked().join("\n");
    assert!(told.contains("<email_1>"), "{told}");
    for address in ["boss@corp.example", "me@home.example", "c1@shop.example"] {
        assert!(!told.contains(address), "{told}");
    }
}
