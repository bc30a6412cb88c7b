//! Queries over what grows without bound read it by an index.

use super::queries::plan;
use super::{OUTAGE_TIMEOUT, databases, opened};
use crate::*;
use toolhold_protocol::event::Journal as _;

#[tokio::test]
async fn growing_tables_are_read_by_their_indexes() {
    let databases = databases().await;
    let store = Store::open(&databases[0].location, OUTAGE_TIMEOUT)
        .await
        .unwrap();
    let since = format!("SELECT id FROM runs WHERE {}", runs::SINCE);
    for (statement, indexes) in [
        (since, &["runs_by_begin"][..]),
        (sessions::turns_statement(), &["runs_by_session"]),
        (
            prune::idle_statement(),
            &["sessions_by_age", "runs_by_session"],
        ),
        (
            knowledge::GONE.to_owned(),
            &[
                "documents_by_state",
                "collections_gone",
                "documents_by_collection",
            ],
        ),
        (knowledge::EMPTY.to_owned(), &["collections_gone"]),
        (
            redaction::RUNS.to_owned(),
            &["sqlite_autoindex_shown_texts_1", "sqlite_autoindex_runs_1"],
        ),
        (shared_texts::UNNAMED.to_owned(), &["event_texts_by_text"]),
        (blobs::UNNAMED.to_owned(), &["run_blobs_by_blob"]),
        (blobs::SUMS.to_owned(), &["COVERING INDEX blobs_by_bytes"]),
        (
            knowledge::left_statement(),
            &["sqlite_autoindex_sessions_1", "sqlite_autoindex_runs_1"],
        ),
    ] {
        let plan = plan(&store, statement.clone()).await;
        for index in indexes {
            assert!(plan.contains(index), "{statement}\n{plan}");
        }
        assert!(!plan.contains("TEMP B-TREE"), "{statement}\n{plan}");
    }
}

#[tokio::test]
async fn turns_are_read_by_their_numbers() {
    for database in databases().await {
        let store = opened(&database).await;
        let session = store.create_session("ann", "default", "").await.unwrap();
        let mut runs = Vec::new();
        for turn in 0..5 {
            let mut script = super::EventScript::new();
            let label = Label {
                owner: "ann".into(),
                turn: Some((session.id, turn)),
                ..Label::default()
            };
            let mut journal = store.journal(script.run, label);
            journal.append(&[script.begin("t")]).await.unwrap();
            runs.push(script.run);
        }
        for (numbers, expected) in [(0..9, &runs[..]), (1..3, &runs[1..3]), (5..9, &[])] {
            let found = store.turns(session.id, numbers).await.unwrap();
            let found: Vec<_> = found.into_iter().map(|row| row.id).collect();
            assert_eq!(found, expected);
        }
        assert_eq!(store.next_turn(session.id).await.unwrap(), Some(5));
    }
}
