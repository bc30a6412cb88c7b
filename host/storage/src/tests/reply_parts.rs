//! Replies that are being written, for readers in other processes.

use super::audit::started;
use super::{EventScript, databases, opened, two_stores, until};
use crate::*;
use serde_json::json;
use std::slice::from_ref;
use toolhold_protocol::completion::Delta;
use toolhold_protocol::event::{Event, EventKind, Journal as _, Seal};
use toolhold_protocol::reply_offset::ReplyOffset;

fn piece(script: &EventScript, text: &str) -> Event {
    Event {
        run: script.run,
        seq: 1,
        at_ms: 5,
        kind: EventKind::Delta {
            step: 1,
            delta: Delta::Content(text.into()),
            from: Some(ReplyOffset::default()),
        },
        removed: None,
        seal: Seal::default(),
    }
}

fn kind(value: serde_json::Value) -> EventKind {
    serde_json::from_value(value).unwrap()
}

#[tokio::test]
async fn a_reply_is_read_elsewhere_until_it_is_recorded() {
    for database in databases().await {
        let [store, other] = two_stores(&database).await;
        let mut script = EventScript::new();
        let run = script.run;
        let mut journal = store.journal(run, Label::default());
        let begun = script.begin("t");
        let request = script.event(kind(json!({"event": "request", "step": 1, "body": {}})));
        journal.append(&[begun, request]).await.unwrap();
        assert_eq!(other.reply_so_far(run).await.unwrap(), None);
        journal.shown(&piece(&script, "é \0 🦀"));
        let so_far = until(async || other.reply_so_far(run).await.unwrap()).await;
        assert_eq!((so_far.request, so_far.step, so_far.at_ms), (1, 1, 5));
        assert_eq!(so_far.text.content, "é \0 🦀");
        let reply = json!({"event": "reply", "step": 1, "completion": {"content": "é \0 🦀"}});
        let reply = script.event(kind(reply));
        journal.append(from_ref(&reply)).await.unwrap();
        assert_eq!(other.reply_so_far(run).await.unwrap(), None);
        let events = other.read(&Source::Run(run)).await.unwrap();
        assert_eq!(events.len(), 3, "pieces are not recorded");
    }
}

/// A process that lost the run writes no text of it, and the one that resumes it takes away what the first had written.
#[tokio::test]
async fn a_reply_is_written_under_the_lease_of_the_run() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut script = EventScript::new();
        let run = script.run;
        let mut journal = store.journal(run, Label::default());
        let begun = script.begin("t");
        let request = script.event(kind(json!({"event": "request", "step": 1, "body": {}})));
        journal.append(&[begun, request]).await.unwrap();
        journal.shown(&piece(&script, "left"));
        let left = until(async || store.reply_so_far(run).await.unwrap()).await;
        drop(journal);
        until(async || {
            store
                .reply_so_far(run)
                .await
                .unwrap()
                .is_none()
                .then_some(())
        })
        .await;
        // As if the process had been killed.
        sqlx::query("INSERT INTO reply_parts (run, part) VALUES ($1, $2)")
            .bind(run.to_string())
            .bind(serde_json::to_string(&left).unwrap())
            .execute(&store.pool)
            .await
            .unwrap();
        let (mut again, _) = until(async || store.reopen(run).await.ok()).await;
        let resumed = kind(json!({"event": "resumed", "step": 1, "active_ms": 1}));
        assert_eq!(store.reply_so_far(run).await.unwrap(), Some(left));
        again.append(&[script.event(resumed)]).await.unwrap();
        assert_eq!(store.reply_so_far(run).await.unwrap(), None);
        sqlx::query("UPDATE runs SET fence = fence + 1")
            .execute(&store.pool)
            .await
            .unwrap();
        again.shown(&piece(&script, "late"));
        store.writer.catch_up().await.unwrap();
        assert_eq!(store.reply_so_far(run).await.unwrap(), None);
    }
}

/// The events with which the reply ends may be refused.
#[tokio::test]
async fn no_text_stays_of_a_run_that_was_cancelled() {
    for database in databases().await {
        let store = opened(&database).await;
        for ends in [true, false] {
            let mut script = EventScript::new();
            let run = script.run;
            let mut journal = store.journal(run, Label::default());
            let begun = script.begin("t");
            let request = script.event(kind(json!({"event": "request", "step": 1, "body": {}})));
            journal.append(&[begun, request]).await.unwrap();
            journal.shown(&piece(&script, "left"));
            until(async || store.reply_so_far(run).await.unwrap()).await;
            store.request_cancellation(run).await.unwrap();
            let reply = json!({"event": "reply", "step": 1, "completion": {"content": "left"}});
            let mut last = vec![
                script.event(kind(reply)),
                script.event(started("c", json!({}))),
            ];
            journal.append(&last).await.unwrap_err();
            assert!(store.reply_so_far(run).await.unwrap().is_some());
            if ends {
                last.push(script.done());
                journal.append(&last).await.unwrap();
                assert_eq!(store.reply_so_far(run).await.unwrap(), None);
            } else {
                drop(journal);
                until(async || {
                    store
                        .reply_so_far(run)
                        .await
                        .unwrap()
                        .is_none()
                        .then_some(())
                })
                .await;
            }
        }
    }
}
