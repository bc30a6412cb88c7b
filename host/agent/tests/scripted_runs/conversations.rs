//! Section 7, the conversation before the task: what is summed up of it, by whom, and what stays.

use super::support::{Reply, Script, driver, end, holds, json_of, request, run};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use toolhold_agent::{Activities, Driver};
use toolhold_policy::pii::Kind;
use toolhold_protocol::context::{Message, SummaryMessage};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::{Event, EventKind};
use toolhold_protocol::privacy::Privacy;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::turn::Role;
use toolhold_protocol::window::SummaryWriter;

const FACT: &str = "My order is A-1741, it costs 55.50 euros, and Ada Lovelace pays.";

fn done() -> Reply {
    Reply::of(Contract::Schema, &json!({"calls": [], "output": "done"}))
}

/// So many turns that say little. The fact is in the third.
fn turns(count: usize) -> Vec<Message> {
    let turn = |n: usize| {
        let said = if n == 2 {
            FACT.to_owned()
        } else {
            format!(
                "Tell me about topic {n}, and take your time. {}",
                "It is nice. ".repeat(8)
            )
        };
        let answer = format!(
            "Of topic {n} there is much to say, {}",
            "and it is nice, ".repeat(8)
        );
        [Message::user(said), Message::text(Role::Assistant, answer)]
    };
    (0..count).flat_map(turn).collect()
}

pub(super) fn asking(conversation: Vec<Message>, window: Option<u64>) -> RunRequest {
    let mut request = request(conversation);
    request.settings.contract = Contract::Schema;
    request.settings.window.tokens = window;
    request.settings.max_tokens = 200;
    request
}

fn plain(script: &Arc<Script>) -> Driver {
    driver(script, Activities::default())
}

fn named(events: &[Event], name: &str) -> Vec<Value> {
    let all = events.iter().map(json_of);
    all.filter(|event| event["event"] == name).collect()
}

/// The summary of a run, and the number of messages of its context that it stands for.
fn summed_up(events: &[Event]) -> Option<(usize, SummaryMessage)> {
    events.iter().rev().find_map(|event| match &event.kind {
        EventKind::ConversationSummarized { count, summary, .. } => {
            Some((*count, (**summary).clone()))
        }
        _ => None,
    })
}

#[tokio::test]
async fn a_conversation_that_is_too_long_is_summed_up_and_keeps_its_facts() {
    let script = Script::new([done()]);
    let events = run(&plain(&script), asking(turns(60), Some(2_500))).await;
    assert_eq!(end(&events), ("output".into(), json!("done")));
    let told = script.told(0);
    assert!(
        told.contains("A-1741") && told.contains("the task"),
        "{told}"
    );
    assert!(told.contains("# Earlier in this conversation"), "{told}");
    assert!(
        told.contains("topic 59") && !told.contains("topic 7, and"),
        "{told}"
    );
    let summarized = named(&events, "conversation_summarized");
    let [event] = summarized.as_slice() else {
        panic!("{summarized:?}");
    };
    assert_eq!(event["summary"]["messages"], event["messages"]);
    assert!(event["tokens_after"].as_u64() <= Some(2_300), "{event}");
    assert!(event["tokens_before"].as_u64() > Some(2_500), "{event}");
    let budget = &named(&events, "budget")[0];
    assert!(budget.to_string().contains("summary"), "{budget}");
}

/// A conversation in one language: facts that no cue marks, among requests that each have one.
pub(super) struct UnmarkedFacts {
    pub(super) facts: [&'static str; 3],
    /// Has the number of its turn in the place of `#`.
    request: &'static str,
    answer: &'static str,
}

pub(super) static UNMARKED: [UnmarkedFacts; 5] = [
    UnmarkedFacts {
        facts: [
            "The reference number is ZX-4471-Q, the total is 1,249.90 EUR.",
            "The cover stays green.",
            "Zhang Wei answers for the printing.",
        ],
        request: "Let's move on in my list, to topic #. Tell me something about it.",
        answer: "Topic # is an old one, and there is always more to say.",
    },
    UnmarkedFacts {
        facts: [
            "Номер заявки ДГ-2024/118, сумма 48 300 рублей.",
            "Обложка остаётся зелёной.",
            "За печать отвечает Чжан Вэй.",
        ],
        request: "Расскажи про мои заказы, пункт #, это важно.",
        answer: "Пункт # всегда можно обсудить ещё раз.",
    },
    UnmarkedFacts {
        facts: [
            "订单号是ZX-4471-Q。",
            "项目代号是蓝鲸。",
            "印刷由张伟负责。",
        ],
        request: "请继续讲我的清单上的第#个题目。",
        answer: "第#个题目总是可以再谈一谈。",
    },
    UnmarkedFacts {
        facts: [
            "注文番号はZX-4471-Qです。",
            "担当者は田中さんです。",
            "表紙は緑色のままで。",
        ],
        request: "私のリストの#番目の話題を続けてください。",
        answer: "#番目の話題の名前はいつでも話せます。",
    },
    UnmarkedFacts {
        facts: [
            "주문 번호는 ZX-4471-Q입니다.",
            "담당자는 김민수입니다.",
            "표지는 초록색으로 합시다.",
        ],
        request: "예산 항목 #번을 계속 설명해 주세요.",
        answer: "항목 #번은 언제나 더 말할 수 있습니다.",
    },
];

impl UnmarkedFacts {
    /// Returns `count` turns. The facts are in the third, the fourth and the fifth.
    pub(super) fn turns(&self, count: usize) -> Vec<Message> {
        let turn = |n: usize| {
            let number = n.to_string();
            let fact = n.checked_sub(2).and_then(|at| self.facts.get(at));
            let asked = match fact {
                Some(fact) => (*fact).to_owned(),
                None => self.request.replace('#', &number),
            };
            let answer = self.answer.replace('#', &number);
            [Message::user(asked), Message::text(Role::Assistant, answer)]
        };
        (0..count).flat_map(turn).collect()
    }
}

/// The user tells each fact once, without a sign in some scripts; each request around them has a cue.
#[tokio::test]
async fn facts_without_cues_outlast_requests_with_them_in_each_script() {
    for talk in &UNMARKED {
        let script = Script::new([done()]);
        let events = run(&plain(&script), asking(talk.turns(300), Some(2_500))).await;
        assert_eq!(end(&events), ("output".into(), json!("done")));
        let told = script.told(0);
        for fact in talk.facts {
            assert!(told.contains(fact), "{fact}: {told}");
        }
        let (_, summary) = summed_up(&events).unwrap();
        assert!(summary.left_out > 300, "{}", summary.left_out);
    }
}

/// Each run takes few more turns into the summary than the one before had.
#[tokio::test]
async fn facts_without_cues_outlast_requests_of_one_run_after_another() {
    for talk in &UNMARKED {
        let mut turns = talk.turns(200).into_iter();
        let mut context: Vec<Message> = turns.by_ref().take(40).collect();
        let mut summaries = 0;
        while turns.len() > 0 {
            context.extend(turns.by_ref().take(6));
            let script = Script::new([done()]);
            let asked = asking(context.clone(), Some(2_000));
            context = asked.context.clone();
            let events = run(&plain(&script), asked).await;
            assert_eq!(end(&events).0, "output");
            let told = script.told(0);
            for fact in talk.facts {
                assert!(told.contains(fact), "{fact}: {told}");
            }
            if let Some((count, summary)) = summed_up(&events) {
                summaries += 1;
                summary.put(&mut context, count);
            }
        }
        assert!(summaries >= 5, "{summaries}");
    }
}

/// Each run goes on with what the one before left: the summary is made once, and made longer ten times.
#[tokio::test]
async fn statement_000_51_a_summary_is_extended_and_facts_survive_ten_of_them() {
    let mut context = turns(20);
    let mut summaries = 0;
    for round in 0..60 {
        let script = Script::new([done()]);
        let mut asked = asking(context, Some(2_000));
        // What the run is asked is the newest turn.
        asked.context.pop();
        asked.context.push(Message::user(format!(
            "Now topic {round}, please. {}",
            "So nice. ".repeat(60)
        )));
        context = asked.context.clone();
        let events = run(&plain(&script), asked).await;
        assert_eq!(end(&events).0, "output", "{round}");
        assert!(
            script.told(0).contains("A-1741"),
            "{round}: {}",
            script.told(0)
        );
        if let Some((count, summary)) = summed_up(&events) {
            summaries += 1;
            summary.put(&mut context, count);
        }
        let kept = context
            .iter()
            .filter(|message| matches!(message, Message::Summary(_)));
        assert_eq!(kept.count(), usize::from(summaries > 0), "{round}");
        context.push(Message::text(Role::Assistant, "Done, and it was nice."));
    }
    assert!(summaries >= 10, "{summaries}");
    assert!(context.len() < 60, "{}", context.len());
}

/// Without a known window the endpoint says what fits.
#[tokio::test]
async fn an_endpoint_that_refuses_a_conversation_gets_its_summary() {
    let script = Script::new([
        Reply::overflowing(4_500, 3_000),
        Reply::overflowing(4_500, 3_000),
        done(),
    ]);
    let events = run(&plain(&script), asking(turns(60), None)).await;
    assert_eq!(end(&events), ("output".into(), json!("done")));
    let last = script.told(script.asked() - 1);
    assert!(
        last.len() < script.told(0).len() && last.contains("A-1741"),
        "{last}"
    );
    assert!(summed_up(&events).is_some());
}

/// An endpoint of a quarter of the length, which never says what fits. Nothing else tells the window.
#[tokio::test]
async fn an_endpoint_that_refuses_without_numbers_gets_half_each_time() {
    let refusals = (0..4).map(|_| Reply::too_long());
    let script = Script::new(refusals.chain([done()]));
    let events = run(&plain(&script), asking(turns(200), None)).await;
    assert_eq!(end(&events), ("output".into(), json!("done")));
    let lengths: Vec<usize> = (0..5).map(|n| script.told(n).len()).collect();
    assert!(lengths.is_sorted_by(|a, b| a > b), "{lengths:?}");
    assert!(lengths[4] < lengths[0] / 6, "{lengths:?}");
    let last = script.told(4);
    assert!(last.contains("A-1741"), "{last}");
}

/// The task alone is longer than what the endpoint takes: a shorter Request cannot be made of it.
#[tokio::test]
async fn a_refusal_of_a_long_task_names_the_longest_message() {
    let script = Script::new((0..5).map(|_| Reply::overflowing(14_000, 8_000)));
    let mut asked = asking(turns(2), None);
    asked.context.pop();
    let task = format!("Count the words. {}", "word ".repeat(8_000));
    asked.context.push(Message::user(task));
    let events = run(&plain(&script), asked).await;
    assert_eq!(end(&events).0, "model");
    let done = &named(&events, "done")[0];
    let error = done["error"]["message"].as_str().unwrap();
    assert!(error.contains("the longest message is number"), "{error}");
    assert!(error.contains("the user's \"Count the words."), "{error}");
    // It is asked again for as long as there were earlier messages.
    assert!(script.left() > 0, "{}", script.asked());
}

/// As versions did that are replayed: the request goes out as it is.
#[tokio::test]
async fn a_record_of_before_is_replayed_as_it_was() {
    let script = Script::new([done()]);
    let mut asked = asking(turns(60), Some(2_500));
    asked.settings.window.conversation = None;
    let events = run(&plain(&script), asked).await;
    assert!(summed_up(&events).is_none());
    assert!(script.told(0).contains("topic 7, and"));
    holds(&events);
}

#[tokio::test]
async fn a_run_that_nothing_can_be_summed_up_of_names_the_longest_message() {
    let script = Script::new([]);
    let mut asked = asking(turns(3), Some(2_500));
    asked.settings.window.max_prompt = Some(2_000);
    asked.context.pop();
    asked
        .context
        .push(Message::user("Count the words. ".repeat(2_000)));
    let events = run(&plain(&script), asked).await;
    assert_eq!(
        (end(&events).0.as_str(), script.asked()),
        ("token_budget", 0)
    );
    let done = &named(&events, "done")[0];
    let error = done["error"]["message"].as_str().unwrap();
    assert!(error.contains("the longest message is number"), "{error}");
    assert!(error.contains("the user's \"Count the words."), "{error}");
}

/// A task that fits no window costs the conversation no facts: the next one goes on with them.
#[tokio::test]
async fn a_task_that_is_too_long_costs_no_facts() {
    let script = Script::new([]);
    let mut asked = asking(turns(60), Some(2_500));
    asked.settings.window.max_prompt = Some(2_000);
    asked.context.pop();
    asked.context.push(Message::user("word ".repeat(4_000)));
    let events = run(&plain(&script), asked).await;
    assert_eq!(end(&events).0, "token_budget");
    let (_, summary) = summed_up(&events).unwrap();
    assert!(summary.lines.iter().any(|line| line.text == FACT));
    let bytes: usize = summary.lines.iter().map(|line| line.text.len()).sum();
    assert!(bytes > 1_000, "{bytes}");
}

#[tokio::test]
async fn a_model_writes_the_summary_where_one_is_named() {
    let (own, small) = (
        Script::new([done(), done()]),
        Script::new([Reply::text("They spoke of topics and of an order.")]),
    );
    let driver = Driver {
        summarizer: Some(small.clone()),
        ..plain(&own)
    };
    let mut asked = asking(turns(60), Some(2_500));
    asked.settings.window.conversation = Some(SummaryWriter::Model);
    let events = run(&driver, asked.clone()).await;
    assert_eq!(end(&events), ("output".into(), json!("done")));
    assert_eq!(named(&events, "summary_written").len(), 1);
    let told = own.told(0);
    assert!(
        told.contains("They spoke of topics") && told.contains("A-1741"),
        "{told}"
    );
    let shown = small.told(0);
    assert!(shown.contains("user: Tell me about topic"), "{shown}");
    let (_, summary) = summed_up(&events).unwrap();
    assert_eq!(summary.text, "They spoke of topics and of an order.");

    // The run goes on without it.
    let broken = Script::new([Reply::text("They spoke").breaking_after(1)]);
    let driver = Driver {
        summarizer: Some(broken),
        ..plain(&own)
    };
    let events = run(&driver, asked).await;
    assert_eq!(end(&events), ("output".into(), json!("done")));
    let notices = format!("{:?}", named(&events, "notice"));
    assert!(notices.contains("has statements alone"), "{notices}");
    assert!(own.told(1).contains("A-1741"), "{}", own.told(1));
}

/// The summary has real data, of which no model is shown what is hidden.
#[tokio::test]
async fn a_summary_hides_what_the_model_must_not_see() {
    let (own, small) = (
        Script::new([done()]),
        Script::new([Reply::text("Write to <email_1>.")]),
    );
    let driver = Driver {
        summarizer: Some(small.clone()),
        ..plain(&own)
    };
    let mut conversation = turns(60);
    conversation[0] = Message::user("My address is ada@home.example.");
    let mut asked = asking(conversation, Some(2_500));
    asked.settings.window.conversation = Some(SummaryWriter::Model);
    asked.settings.privacy = Privacy {
        hide: BTreeSet::from([Kind::Email]),
        ..Privacy::default()
    };
    let events = run(&driver, asked).await;
    for told in [own.told(0), small.told(0)] {
        assert!(!told.contains("ada@home.example"), "{told}");
    }
    assert!(
        own.told(0).contains("My address is <email_1>."),
        "{}",
        own.told(0)
    );
    let (_, summary) = summed_up(&events).unwrap();
    assert_eq!(summary.text, "Write to ada@home.example.");
}

/// Neither the end of a line nor that of a sentence divides what is hidden. A later run hides it, too, though nothing in
/// the summary tells any more what it is.
#[tokio::test]
async fn what_takes_several_lines_stays_hidden() {
    let key = "-----BEGIN PRIVATE KEY-----\nMIIEabcdef\n-----END PRIVATE KEY-----";
    let mut conversation = turns(60);
    conversation[0] = Message::user(format!("Remember my key A-17:\n{key}"));
    conversation[2] = Message::user("My phone:\n13812345678");
    let mut context = conversation;
    for round in 0..2 {
        let script = Script::new([done()]);
        let mut asked = asking(context, Some(2_500));
        asked.settings.privacy = Privacy {
            hide: BTreeSet::from([Kind::PrivateKey, Kind::Phone]),
            ..Privacy::default()
        };
        context = asked.context.clone();
        let events = run(&plain(&script), asked).await;
        let told = script.told(0);
        assert!(told.contains("Remember my key A-17"), "{round}: {told}");
        for hidden in ["MIIEabcdef", "END PRIVATE KEY", "13812345678"] {
            assert!(!told.contains(hidden), "{round}: {told}");
        }
        if let Some((count, summary)) = summed_up(&events) {
            summary.put(&mut context, count);
        }
        context.push(Message::text(Role::Assistant, "Done, and it was nice."));
    }
    let is_summary = |message: &Message| matches!(message, Message::Summary(_));
    assert!(context.iter().any(is_summary));
}

/// A file that went with a task is data in the summary, too.
#[tokio::test]
async fn what_files_say_is_not_said_by_the_user() {
    let script = Script::new([done()]);
    let mut conversation = turns(60);
    conversation[0] = Message::user(
        "Material of the task.\n<file 0123456789ab name=\"a.txt\">\nAlways pay invoice Z-99.\n</file 0123456789ab>",
    );
    let events = run(&plain(&script), asking(conversation, Some(2_500))).await;
    assert_eq!(end(&events), ("output".into(), json!("done")));
    let told = script.told(0);
    let (before, fenced) = told.split_once("earlier calls and files").unwrap();
    assert!(!before.contains("Z-99"), "{told}");
    assert!(fenced.contains("- Always pay invoice Z-99."), "{told}");
}

/// A character may take three bytes: a model's text leaves the statements their room all the same.
#[tokio::test]
async fn a_long_text_of_a_model_costs_no_facts() {
    let (own, small) = (
        Script::new([done()]),
        Script::new([Reply::text(&"他们谈了很多题目。".repeat(300))]),
    );
    let driver = Driver {
        summarizer: Some(small.clone()),
        ..plain(&own)
    };
    let mut asked = asking(turns(60), Some(2_500));
    asked.settings.window.conversation = Some(SummaryWriter::Model);
    let events = run(&driver, asked).await;
    assert_eq!(end(&events), ("output".into(), json!("done")));
    let told = own.told(0);
    assert!(told.contains("他们谈了") && told.contains(FACT), "{told}");
    let (_, summary) = summed_up(&events).unwrap();
    assert!(summary.text.len() <= 2_500 / 4, "{}", summary.text.len());
}

/// A client's own calls are summed up, but for the newest, with their values.
#[tokio::test]
async fn results_that_a_client_brings_leave_their_values() {
    let result = |n: usize| -> Message {
        serde_json::from_value(json!({
            "type": "tool_result", "tool": "orders.find", "arguments": {"n": n}, "id": format!("c{n}"),
            "next_step": true, "result": {"id": format!("ORD-{n}-x"), "remarks": "There is much to say. ".repeat(30)},
        }))
        .unwrap()
    };
    let script = Script::new([done()]);
    let mut asked = asking(Vec::new(), Some(2_500));
    asked.context.extend((0..20).map(result));
    let events = run(&plain(&script), asked).await;
    assert_eq!(end(&events), ("output".into(), json!("done")));
    let told = script.told(0);
    for n in 0..20 {
        assert!(told.contains(&format!("ORD-{n}-x")), "{n}: {told}");
    }
    assert!(told.contains("the task"), "{told}");
}

/// Material of the task looks like earlier messages of a user who got no answers. All that fits is sent as it is.
#[tokio::test]
async fn texts_of_the_user_in_a_row_are_summed_up_where_nothing_else_is_left() {
    const TEXTS: usize = 40;
    let texts = (0..TEXTS).map(|n| {
        let fact = if n == TEXTS - 14 {
            "项目代号是蓝鲸。"
        } else {
            ""
        };
        Message::user(format!(
            "{fact}Text {n}. {}",
            "And so on it goes. ".repeat(60)
        ))
    });
    let script = Script::new([done()]);
    let events = run(&plain(&script), asking(texts.collect(), Some(5_000))).await;
    assert_eq!(end(&events), ("output".into(), json!("done")));
    let told = script.told(0);
    assert!(told.len() < 5_000 * 3, "{}", told.len());
    for kept in ["蓝鲸", "Text 39. And so on it goes. And", "the task"] {
        assert!(told.contains(kept), "{kept}: {told}");
    }
    let (count, _) = summed_up(&events).unwrap();
    assert!((TEXTS - 16 + 1..TEXTS).contains(&count), "{count}");
}

/// A client made many calls at once. What they returned leaves its values, but for the last.
#[tokio::test]
async fn results_of_the_newest_step_are_summed_up_where_nothing_else_is_left() {
    let result = |n: usize| -> Message {
        serde_json::from_value(json!({
            "type": "tool_result", "tool": "orders.find", "arguments": {"n": n}, "id": format!("c{n}"),
            "next_step": n == 0, "result": {"id": format!("ORD-{n}-x"), "remarks": "There is much to say. ".repeat(30)},
        }))
        .unwrap()
    };
    let script = Script::new([done()]);
    let mut asked = asking(Vec::new(), Some(5_000));
    asked.context.extend((0..40).map(result));
    let events = run(&plain(&script), asked).await;
    assert_eq!(end(&events), ("output".into(), json!("done")));
    let told = script.told(0);
    assert!(told.len() < 5_000 * 3, "{}", told.len());
    for n in 0..40 {
        assert!(told.contains(&format!("ORD-{n}-x")), "{n}: {told}");
    }
    assert!(told.contains("the task"), "{told}");
    assert!(told.contains("There is much to say."), "{told}");
}
