//! Copies of a SQLite database.

use super::{EventScript, OUTAGE_TIMEOUT};
use crate::*;
use std::fs::File;
use std::path::Path;
use std::slice::from_ref;
use toolhold_protocol::event::Journal as _;

async fn opened(path: &Path) -> Store {
    let location = Location::File(path.to_owned());
    Store::open(&location, OUTAGE_TIMEOUT).await.unwrap()
}

async fn begin_run(store: &Store, task: &str) {
    let mut script = EventScript::new();
    let mut journal = store.journal(script.run, Label::default());
    journal.append(from_ref(&script.begin(task))).await.unwrap();
}

#[tokio::test]
async fn a_copy_has_all_that_was_committed_and_opens_as_the_database_does() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("a.db"), folder.path().join("b.db"));
    let store = opened(&path).await;
    // In the write-ahead log, which a copy of the file alone would not have.
    begin_run(&store, "before").await;
    File::create_new(&copy).unwrap();
    copy_database(&path, &copy).await.unwrap();
    begin_run(&store, "after").await;
    check_database(&copy, "the copy").await.unwrap();
    let tasks = async |store: Store| -> Vec<String> {
        let runs = store.runs_since(0).await.unwrap();
        runs.into_iter().map(|run| run.task).collect()
    };
    assert_eq!(tasks(opened(&copy).await).await, ["before"]);
    assert_eq!(tasks(store).await, ["before", "after"]);
    // It takes the place of nothing.
    let refused = copy_database(&path, &copy).await.unwrap_err();
    assert!(matches!(refused, StoreError::Failed { .. }), "{refused}");
}

#[tokio::test]
async fn a_file_that_is_no_whole_database_is_no_copy() {
    let folder = tempfile::tempdir().unwrap();
    let (path, text) = (folder.path().join("a.db"), folder.path().join("text"));
    let store = opened(&path).await;
    for number in 0..200 {
        begin_run(&store, &format!("{number} {}", "x".repeat(2_000))).await;
    }
    let whole = folder.path().join("whole.db");
    File::create_new(&whole).unwrap();
    copy_database(&path, &whole).await.unwrap();
    let bytes = std::fs::read(&whole).unwrap();
    std::fs::write(&text, vec![b'x'; 8_192]).unwrap();
    std::fs::write(&whole, &bytes[..bytes.len() / 2 / 4_096 * 4_096]).unwrap();
    for wrong in [&text, &whole, &folder.path().join("absent.db")] {
        let refused = check_database(wrong, "the copy").await.unwrap_err();
        assert!(refused.to_string().starts_with("the copy "), "{refused}");
    }
}
