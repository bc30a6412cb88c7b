//! Runs that were cancelled by another process than the one that has them.

use super::audit::{all, ended, started};
use super::{EventScript, databases, opened, two_stores, until};
use crate::*;
use serde_json::json;
use std::time::Duration;
use toolhold_protocol::event::{CancelRequested, EventKind, Journal as _, ToolOutcome};
use toolhold_protocol::failure::NOT_MADE;

#[tokio::test]
async fn no_call_begins_in_a_run_that_was_cancelled() {
    for database in databases().await {
        let [store, other] = two_stores(&database).await;
        let mut script = EventScript::new();
        let run = script.run;
        let mut journal = store.journal(run, Label::default());
        let arguments = json!({"to": "a"});
        let begun = [
            script.begin("t"),
            script.event(started("c1", arguments.clone())),
        ];
        journal.append(&begun).await.unwrap();
        other.request_cancellation(run).await.unwrap();
        journal.append(&[script.notice()]).await.unwrap();
        let nested = EventKind::Sub {
            call: "c1".into(),
            what: Box::new(started("c1.1", json!({}))),
        };
        let resumed = EventKind::Resumed {
            step: 1,
            active_ms: 1,
            notes: Vec::new(),
        };
        for kind in [nested, resumed] {
            let mut ahead = script.clone();
            let refused = [ahead.notice(), ahead.event(kind)];
            let error = journal.append(&refused).await.unwrap_err();
            assert!(CancelRequested::is_cause_of(&error), "{error:?}");
        }
        let result = ended("c1", ToolOutcome::Output(json!(1)));
        let mut last = vec![
            script.event(result),
            script.event(started("c2", arguments.clone())),
        ];
        let error = journal.append(&last).await.unwrap_err();
        assert!(CancelRequested::is_cause_of(&error), "{error:?}");
        let recorded = store.events(run, 0).await.unwrap();
        assert_eq!(recorded.len(), 3, "what came with the begin waits, too");
        // Nothing goes on after an end, and nothing is lost that came before it.
        let not_made = serde_json::from_value(json!({
            "event": "tool_result", "step": 1, "id": "c2", "tool": "files.write", "usage": {}, "by_host": true,
            "error": {"kind": NOT_MADE, "class": "correctable", "message": "it was not made"},
        }));
        last.extend([script.event(not_made.unwrap()), script.done()]);
        journal.append(&last).await.unwrap();
        assert!(store.run(run).await.unwrap().unwrap().ended.is_some());
        let events = store.read(&Source::Run(run)).await.unwrap();
        assert_eq!(events.len(), 7);
        let rows = all(&store).await;
        let calls = rows.iter().filter(|row| row["action"] == "call");
        let calls: Vec<_> = calls
            .map(|row| {
                [
                    &row["call"],
                    &row["arguments"],
                    &row["status"],
                    &row["by_host"],
                ]
            })
            .collect();
        assert_eq!(
            calls,
            [
                [&json!("c1"), &arguments, &json!("ok"), &json!(false)],
                [&json!("c2"), &arguments, &json!("error"), &json!(true)],
            ]
        );
    }
}

#[tokio::test]
async fn a_cancelled_run_that_was_taken_over_is_refused_as_that() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut script = EventScript::new();
        let mut journal = store.journal(script.run, Label::default());
        journal.append(&[script.begin("t")]).await.unwrap();
        store.request_cancellation(script.run).await.unwrap();
        sqlx::query("UPDATE runs SET fence = fence + 1")
            .execute(&store.pool)
            .await
            .unwrap();
        let begin = script.event(started("c1", json!({})));
        let error = journal.append(&[begin]).await.unwrap_err();
        assert!(!CancelRequested::is_cause_of(&error), "{error:?}");
        assert!(
            error.to_string().contains("another process goes on"),
            "{error}"
        );
    }
}

/// The request and the begins of calls meet at the same time.
#[tokio::test]
async fn no_call_begins_after_a_cancellation_was_acknowledged() {
    for database in databases().await {
        let [store, other] = two_stores(&database).await;
        let mut script = EventScript::new();
        let run = script.run;
        let mut journal = store.journal(run, Label::default());
        journal.append(&[script.begin("t")]).await.unwrap();
        let begins = tokio::spawn(async move {
            loop {
                let begin = script.event(started("c", json!({})));
                if let Err(error) = journal.append(&[begin]).await {
                    assert!(CancelRequested::is_cause_of(&error), "{error:?}");
                    return journal;
                }
                // Time for the other writer: SQLite has one at a time.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        let recorded = async || other.events(run, 0).await.unwrap().len();
        until(async || (recorded().await > 3).then_some(())).await;
        other.request_cancellation(run).await.unwrap();
        let acknowledged = recorded().await;
        let _journal = begins.await.unwrap();
        assert_eq!(recorded().await, acknowledged);
    }
}

#[tokio::test]
async fn a_journal_that_is_opened_again_says_whether_its_run_was_cancelled() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut script = EventScript::new();
        let run = script.run;
        let mut journal = store.journal(run, Label::default());
        assert!(!journal.was_cancelled());
        journal.append(&[script.begin("t")]).await.unwrap();
        drop(journal);
        for is_cancelled in [false, true] {
            if is_cancelled {
                store.request_cancellation(run).await.unwrap();
            }
            // The journal before releases the run in the queue of writes.
            let (journal, _) = until(async || store.reopen(run).await.ok()).await;
            assert_eq!(journal.was_cancelled(), is_cancelled);
        }
    }
}
