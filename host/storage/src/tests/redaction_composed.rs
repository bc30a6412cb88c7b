//! Deleted texts in what the host composed of them: ends that no model wrote, and runs that go on from others.

use super::knowledge::{add, collection};
use super::redaction::{changed, ended, keep, kind, passages_of, request, started, text_of};
use super::{EventScript, databases, opened};
use crate::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::slice::from_ref;
use toolhold_protocol::bound::BoundTools;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::{Event, EventKind, FORMAT, Journal as _, PROMPTS};
use toolhold_protocol::settings::{CarriedTexts, RunRequest};
use toolhold_protocol::turn::Role;
use uuid::Uuid;

fn found(passage: i64, text: &str) -> EventKind {
    let found = json!({"passages": [{"id": passage.to_string(), "text": text}]});
    ended(1, "c1", "knowledge.search", &found)
}

/// A reply of which nothing is of a document.
fn said(text: &str) -> EventKind {
    kind(json!({"event": "reply", "step": 1, "completion": {"content": text}}))
}

fn done(reason: &str, output: &Value) -> EventKind {
    let mut done = json!({"event": "done", "reason": reason, "output": output, "steps": 1, "calls": 1, "tokens": 5,
        "duration_ms": 6});
    if reason != "output" {
        done["error"] = json!({"class": "correctable", "message": "a call failed: marmalade"});
    }
    kind(done)
}

/// The output as shields left it.
fn screened(output: &Value) -> EventKind {
    kind(
        json!({"event": "screened", "step": 1, "place": "output", "screened": "redacted", "value": output}),
    )
}

/// Writes the record of a run that began with this request.
async fn recorded(store: &Store, label: Label, asked: RunRequest, events: Vec<EventKind>) -> Uuid {
    let mut script = EventScript::new();
    let mut journal = store.journal(script.run, label);
    let begin = EventKind::Run {
        format: FORMAT,
        prompts: PROMPTS,
        task: "t".into(),
        model: "m".into(),
        request: Box::new(asked),
        tools: BoundTools::default(),
        host: String::new(),
    };
    let kinds = [vec![begin], events].concat();
    let events: Vec<Event> = kinds.into_iter().map(|kind| script.event(kind)).collect();
    for event in &events {
        journal.append(from_ref(event)).await.unwrap();
    }
    script.run
}

fn asked() -> RunRequest {
    RunRequest::new(Uuid::now_v7(), "t")
}

/// The request of a run after `before`, whose messages `composed` the host made.
async fn after(store: &Store, before: Uuid, said: &[&str], composed: &[usize]) -> RunRequest {
    let mut carried = store.carried_texts(before).await.unwrap();
    carried.messages = composed.iter().copied().collect();
    let said = said
        .iter()
        .map(|text| Message::text(Role::Assistant, *text));
    RunRequest {
        context: said.collect(),
        carried: carried.if_any(),
        ..asked()
    }
}

async fn sources_of(store: &Store, run: Uuid) -> Vec<String> {
    sqlx::query_scalar("SELECT source FROM shown_texts WHERE run = $1 ORDER BY source")
        .bind(run.to_string())
        .fetch_all(&store.pool)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_no_model_wrote_goes_although_a_model_said_something() {
    for database in databases().await {
        let store = opened(&database).await;
        let tales = collection(&store, "k", "tales").await;
        let document = add(&store, &tales, "a", "d", &["marmalade"]).await;
        let passage = passages_of(&store, document).await[0];
        let data = json!({"found": "marmalade"});
        let calls = json!({"told": "it returned marmalade", "calls": [
            {"id": "c2", "tool": "weather", "arguments": {"of": "marmalade"}},
        ]});
        let mut runs = Vec::new();
        for (reason, output) in [
            ("max_steps", &data),
            ("cancelled", &data),
            ("tool_calls", &calls),
        ] {
            let events = vec![
                said("I look for it"),
                found(passage, "marmalade"),
                screened(output),
                done(reason, output),
            ];
            runs.push(recorded(&store, Label::default(), asked(), events).await);
        }
        let own = vec![
            found(passage, "marmalade"),
            said("It is jam"),
            done("output", &json!("It is jam")),
        ];
        let answered = recorded(&store, Label::default(), asked(), own).await;
        // So is a plan that it wrote.
        let plan = json!({"calls": [{"id": "c3", "tool": "weather", "arguments": {"of": "jam"}}]});
        let own = vec![
            found(passage, "marmalade"),
            said("I plan it"),
            kind(
                json!({"event": "done", "reason": "planned", "output": plan, "steps": 1, "calls": 1, "tokens": 5,
                "duration_ms": 6}),
            ),
        ];
        let planned = recorded(&store, Label::default(), asked(), own).await;
        assert!(store.delete_document("k", &tales, document).await.unwrap());
        assert_eq!(store.remove_gone_passages(0).await.unwrap().records, 5);
        for run in &runs {
            let text = text_of(&store, *run).await;
            assert!(!text.contains("marmalade"), "{text}");
            assert!(text.contains("I look for it"), "{text}");
            assert_eq!(changed(&store, *run).await, None);
        }
        // The client brings the result of its call by the id.
        let events = store.read(&Source::Run(runs[2])).await.unwrap();
        let EventKind::Done { output, .. } = &events.last().unwrap().kind else {
            panic!("the run has no end");
        };
        let left = json!({"told": "", "calls": [{"id": "c2", "tool": "weather", "arguments": {}}]});
        assert_eq!(*output, left);
        let events = store.read(&Source::Run(planned)).await.unwrap();
        let EventKind::Done { output, .. } = &events.last().unwrap().kind else {
            panic!("the run has no end");
        };
        assert_eq!(*output, plan);
        // A model's output is what it said.
        let text = text_of(&store, answered).await;
        assert_eq!(text.matches("It is jam").count(), 2, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_go_out_of_the_runs_that_go_on_from_a_run() {
    for database in databases().await {
        let store = opened(&database).await;
        let tales = collection(&store, "k", "tales").await;
        let document = add(&store, &tales, "a", "d", &["marmalade"]).await;
        let passage = passages_of(&store, document).await[0];
        let data = json!({"found": "marmalade"});
        let events = vec![found(passage, "marmalade"), done("max_steps", &data)];
        let first = recorded(&store, Label::default(), asked(), events).await;
        let ends = || vec![request(1, "marmalade"), done("output", &json!("well"))];
        let request = after(&store, first, &["It is jam", "marmalade"], &[1]).await;
        let items = json!({"input": [{"content": "marmalade"}], "metadata": {}});
        let label = Label {
            asked: Some(items.to_string()),
            ..Label::default()
        };
        let second = recorded(&store, label, request, ends()).await;
        let request = after(&store, second, &["It is jam", "marmalade", "well"], &[1]).await;
        let third = recorded(&store, Label::default(), request, ends()).await;
        // Nothing of the host's is in its context.
        let request = after(&store, second, &["It is jam"], &[]).await;
        assert_eq!(request.carried, None);
        let other = recorded(&store, Label::default(), request, vec![]).await;
        for run in [second, third] {
            assert_eq!(sources_of(&store, run).await, [document.to_string()]);
        }
        assert_eq!(sources_of(&store, other).await, Vec::<String>::new());

        // This one is begun when the record that it goes on from was redacted.
        let late = after(&store, first, &["It is jam", "marmalade"], &[1]).await;
        assert!(store.delete_document("k", &tales, document).await.unwrap());
        assert_eq!(store.remove_gone_passages(0).await.unwrap().records, 3);
        let late = recorded(&store, Label::default(), late, ends()).await;
        assert_eq!(store.redact_records().await.unwrap().records, 1);
        for run in [first, second, third, late] {
            let text = text_of(&store, run).await;
            assert!(!text.contains("marmalade"), "{text}");
            assert_eq!(changed(&store, run).await, None);
            if run != first {
                assert!(text.contains("It is jam"), "{text}");
            }
        }
        let left = store.response(second).await.unwrap().unwrap();
        assert_eq!(left, json!({"metadata": {}}).to_string());
        let none = store.carried_texts(first).await.unwrap();
        assert_eq!(
            none,
            CarriedTexts {
                from: first,
                ..CarriedTexts::default()
            }
        );
    }
}

/// A summary of messages that had deleted texts loses its statements, in the run that made it and in those after it.
#[tokio::test(flavor = "multi_thread")]
async fn texts_go_out_of_summaries_of_conversations() {
    for database in databases().await {
        let store = opened(&database).await;
        let tales = collection(&store, "k", "tales").await;
        let document = add(&store, &tales, "a", "d", &["marmalade"]).await;
        let passage = passages_of(&store, document).await[0];
        let data = json!({"found": "marmalade"});
        let events = vec![found(passage, "marmalade"), done("max_steps", &data)];
        let first = recorded(&store, Label::default(), asked(), events).await;

        let summary = json!({"messages": 2, "lines": [{"from": "assistant", "text": "found: marmalade", "weight": 2}]});
        let summarized = kind(
            json!({"event": "conversation_summarized", "step": 1, "count": 2, "messages": 2,
            "summary": summary, "tokens_before": 9, "tokens_after": 7}),
        );
        let request = after(&store, first, &["It is jam", "marmalade"], &[1]).await;
        let written =
            json!({"event": "summary_written", "step": 1, "text": "They found marmalade."});
        let ends = vec![kind(written), summarized, done("output", &json!("well"))];
        let second = recorded(&store, Label::default(), request, ends).await;
        let (count, left) = store.summed_up(second).await.unwrap().unwrap();
        assert_eq!((count, json!(left)), (2, summary.clone()));
        assert!(store.summed_up(first).await.unwrap().is_none());

        // The run after it has the summary in its context.
        let mut request = after(&store, second, &[], &[0]).await;
        request.context = vec![Message::Summary(left)];
        let third = recorded(
            &store,
            Label::default(),
            request,
            vec![done("output", &json!("well"))],
        )
        .await;
        // What this run sums up was said before it found anything.
        let said_before =
            json!({"messages": 1, "lines": [{"from": "user", "text": "I like jam", "weight": 2}]});
        let summarized = kind(
            json!({"event": "conversation_summarized", "step": 1, "count": 1, "messages": 1,
            "summary": said_before, "tokens_before": 9, "tokens_after": 7}),
        );
        let events = vec![
            found(passage, "marmalade"),
            summarized,
            done("output", &json!("well")),
        ];
        let other = recorded(&store, Label::default(), asked(), events).await;

        assert!(store.delete_document("k", &tales, document).await.unwrap());
        store.remove_gone_passages(0).await.unwrap();
        for run in [second, third] {
            let text = text_of(&store, run).await;
            assert!(!text.contains("marmalade"), "{text}");
            assert_eq!(changed(&store, run).await, None);
        }
        let (_, kept) = store.summed_up(other).await.unwrap().unwrap();
        assert_eq!(json!(kept), said_before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_goes_on_has_the_sources_of_the_run_before_it() {
    for database in databases().await {
        let store = opened(&database).await;
        let tales = collection(&store, "k", "tales").await;
        let document = add(&store, &tales, "a", "d1", &["marmalade"]).await;
        let passage = passages_of(&store, document).await[0];
        let data = json!({"found": "marmalade"});
        let events = vec![found(passage, "marmalade"), done("max_steps", &data)];
        let first = recorded(&store, Label::default(), asked(), events).await;
        // The passage is gone when the next run begins, and its text may stay.
        let last = add(&store, &tales, "a", "d2", &["jam"]).await;
        assert_eq!(store.remove_gone_passages(0).await.unwrap().records, 0);
        let request = after(&store, first, &["marmalade"], &[0]).await;
        let ends = vec![done("output", &json!("well"))];
        let second = recorded(&store, Label::default(), request, ends).await;
        assert_eq!(sources_of(&store, second).await, [document.to_string()]);
        // A run that goes on from another one, and whose client named an item of the first.
        let mut request = after(&store, first, &["marmalade"], &[0]).await;
        let named = request.carried.take().unwrap();
        let mut carried = CarriedTexts {
            from: Uuid::now_v7(),
            messages: named.messages.clone(),
            ..CarriedTexts::default()
        };
        carried.add_texts(named);
        request.carried = carried.if_any();
        let ends = vec![done("output", &json!("well"))];
        let third = recorded(&store, Label::default(), request, ends).await;
        assert_eq!(sources_of(&store, third).await, [document.to_string()]);
        assert_eq!(store.redact_records().await.unwrap().records, 0);
        assert!(store.delete_document("k", &tales, last).await.unwrap());
        assert_eq!(store.remove_gone_passages(0).await.unwrap().records, 3);
        for run in [second, third] {
            assert!(!text_of(&store, run).await.contains("marmalade"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_a_reply_that_remembered_a_fact_goes_with_it() {
    for database in databases().await {
        let store = opened(&database).await;
        let fact = keep(&store).await;
        let mut call = json!(started(
            1,
            "c1",
            "knowledge.remember",
            &json!({"text": "a"})
        ));
        call["unknown"] = json!({"_note": "marmalade"});
        call["scopes"] = json!(["marmalade"]);
        let council = json!({"event": "council", "step": 1, "council": {
            "opinions": [{"advisor": "ann", "fields": {"why": "marmalade"}, "votes": []}],
            "faults": [{"advisor": "bob", "reason": "it wrote marmalade"}],
        }});
        let repaired = json!({"event": "repaired", "step": 1, "repairs": [
            {"kind": "thought", "change": {"from": "marmalade", "to": "marmalade"}},
        ]});
        let events = vec![
            request(1, "t"),
            said("marmalade"),
            kind(council),
            kind(repaired),
            kind(call),
            ended(1, "c1", "knowledge.remember", &json!({"id": fact})),
            done("output", &json!("well")),
        ];
        let run = recorded(&store, Label::default(), asked(), events).await;
        assert_eq!(text_of(&store, run).await.matches("marmalade").count(), 7);
        let late = after(&store, run, &["It is jam", "marmalade"], &[1]).await;
        let carried = late.carried.as_ref().map(|carried| &carried.facts);
        assert_eq!(carried, Some(&BTreeSet::from([fact])));
        let forgotten = store.forget("", fact, ForgetExtent::Fact, "person").await;
        assert_eq!(forgotten.unwrap().unwrap().facts, [fact]);
        assert_eq!(store.redact_records().await.unwrap().records, 1);
        let text = text_of(&store, run).await;
        assert!(!text.contains("marmalade"), "{text}");
        assert!(text.contains("\"advisor\":\"ann\""), "{text}");
        assert_eq!(changed(&store, run).await, None);
        // A turn that had been begun when the fact was forgotten.
        let ends = vec![done("output", &json!("well"))];
        let late = recorded(&store, Label::default(), late, ends).await;
        assert_eq!(store.redact_records().await.unwrap().records, 1);
        let text = text_of(&store, late).await;
        assert!(!text.contains("marmalade"), "{text}");
        assert!(text.contains("It is jam"), "{text}");
    }
}
