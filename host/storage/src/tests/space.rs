//! Space of deleted records.

use super::{EventScript, OUTAGE_TIMEOUT, databases, opened};
use crate::database::Database;
use crate::schema::migrator_until;
use crate::*;
use sqlx::Connection as _;
use std::fs::File;
use std::path::Path;
use toolhold_protocol::event::{EventKind, Journal as _};

/// Bytes of each run.
const RUN_BYTES: usize = 200_000;
const RUNS: u64 = 20;

/// Makes runs that ended, deletes them, and returns the bytes that were given back.
async fn fill_and_empty(store: &Store) -> u64 {
    for _ in 0..RUNS {
        let mut script = EventScript::new();
        let mut journal = store.journal(script.run, Label::default());
        let message = "x".repeat(RUN_BYTES);
        let events = [
            script.begin("t"),
            script.event(EventKind::Notice { step: 1, message }),
            script.done(),
        ];
        journal.append(&events).await.unwrap();
    }
    let gone = store.prune(now_ms(), PrunedBy::Person).await.unwrap();
    assert_eq!(gone.runs, RUNS);
    store.give_back_space().await.unwrap()
}

fn size(path: &Path) -> u64 {
    path.metadata().unwrap().len()
}

#[tokio::test]
async fn a_file_is_small_again_after_its_runs_were_deleted() {
    const FILLED: u64 = RUNS * RUN_BYTES as u64;
    for database in databases().await {
        let store = opened(&database).await;
        let given = fill_and_empty(&store).await;
        let Location::File(path) = &database.location else {
            assert_eq!(given, 0, "PostgreSQL does it by itself");
            continue;
        };
        assert!(given > FILLED / 2, "{given}");
        assert!(size(path) < FILLED / 4, "{}", size(path));
        check_database(path, "it").await.unwrap();
        assert_eq!(store.give_back_space().await.unwrap(), 0);
    }
}

/// Its free pages stay, and the next records use them; its copy is as a new file.
#[tokio::test]
async fn a_file_of_an_older_version_gives_space_back_as_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("a.db"), folder.path().join("b.db"));
    let location = Location::File(path.clone());
    File::create_new(&path).unwrap();
    let older = Database::of(&location).unwrap();
    let mut connection = older.connect().await.unwrap();
    migrator_until(true, 16).run(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
    assert_eq!(fill_and_empty(&store).await, 0);
    File::create_new(&copy).unwrap();
    copy_database(&path, &copy).await.unwrap();
    assert!(size(&copy) < RUNS * RUN_BYTES as u64 / 4);
    let copied = Store::open(&Location::File(copy), OUTAGE_TIMEOUT).await;
    assert!(fill_and_empty(&copied.unwrap()).await > 0);
}
