//! The thread of the writer of a SQLite file: what it commits together, and how it ends.

use super::*;
use crate::audit_rows::Draft;
use crate::database::Location;
use crate::health::Outage;
use crate::statements::NativeConnection;
use crate::store::Store;
use crate::tests::{OUTAGE_TIMEOUT, until};
use futures_util::future::BoxFuture;
use std::path::{Path, PathBuf};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Bytes of the header of a write-ahead log, and of each frame before its page.
const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

fn row(number: u32) -> Change {
    let draft = Draft::module_approved("ann", "m", &number.to_string());
    Change::Audit(Box::new(draft))
}

async fn open() -> (tempfile::TempDir, PathBuf, Store) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toolhold.db");
    let location = Location::File(path.clone());
    let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
    (folder, path, store)
}

/// Entries of the log, which is sound.
async fn verified(store: &Store) -> u64 {
    let verified = store.verify_audit(None).await.unwrap();
    assert_eq!(verified.faults, []);
    verified.entries
}

/// Transactions in the write-ahead log: the last frame of each has the size of the database.
fn commits(database: &Path) -> usize {
    let log = std::fs::read(database.with_extension("db-wal")).unwrap();
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
    let frame = FRAME_HEADER + number(8) as usize;
    let frames = log[LOG_HEADER..].len() / frame;
    (0..frames)
        .map(|place| LOG_HEADER + place * frame + 4)
        .filter(|at| number(*at) != 0)
        .count()
}

/// Waits until the queue has this number of entries.
async fn queued(writer: &Writer, entries: usize) {
    until(async || (writer.queue.capacity() + entries == QUEUE_CAPACITY).then_some(())).await;
}

/// A connection of another process that has the lock for writes.
fn locked(path: &Path) -> NativeConnection {
    let database = Database::of(&Location::File(path.to_owned())).unwrap();
    let mut connection = database.native().unwrap().unwrap();
    connection.begin(true).unwrap();
    connection
}

/// A write that is in the queue, or was taken from it. The file is locked.
async fn begun(writer: &Writer, changes: Vec<Change>) -> BoxFuture<'static, io::Result<()>> {
    let writer = writer.clone();
    let mut write: BoxFuture<'_, _> = Box::pin(async move { writer.write(changes, true).await });
    let early = timeout(Duration::ZERO, &mut write).await;
    assert!(early.is_err(), "it waits for the file");
    write
}

#[tokio::test]
async fn writes_of_many_callers_are_committed_together() {
    const CALLERS: usize = 64;
    let (_folder, path, store) = open().await;
    store.writer.write(vec![row(0)], true).await.unwrap();
    let mut other = locked(&path);
    let first = begun(&store.writer, vec![row(1)]).await;
    queued(&store.writer, 0).await;
    let mut callers = JoinSet::new();
    callers.spawn(first);
    for number in 1..CALLERS {
        let writer = store.writer.clone();
        let durable = number % 2 == 0;
        callers.spawn(async move { writer.write(vec![row(2)], durable).await });
    }
    queued(&store.writer, CALLERS - 1).await;
    let before = commits(&path);
    other.roll_back();
    while let Some(written) = callers.join_next().await {
        written.unwrap().unwrap();
    }
    let commits = commits(&path) - before;
    assert_eq!(commits, 2, "the first, and all that waited");
    assert_eq!(verified(&store).await, CALLERS as u64 + 1);
}

#[tokio::test]
async fn a_write_whose_caller_left_is_whole() {
    let (_folder, path, store) = open().await;
    let mut other = locked(&path);
    let first = begun(&store.writer, vec![row(1)]).await;
    queued(&store.writer, 0).await;
    let second = begun(&store.writer, vec![row(2), row(3)]).await;
    queued(&store.writer, 1).await;
    drop((first, second));
    other.roll_back();
    store.writer.catch_up().await.unwrap();
    assert_eq!(verified(&store).await, 3);
}

#[tokio::test]
async fn a_begun_write_is_made_without_its_caller_if_the_queue_had_room() {
    let (_folder, path, store) = open().await;
    let mut other = locked(&path);
    let first = begun(&store.writer, vec![row(1)]).await;
    queued(&store.writer, 0).await;
    let begin = || store.writer.begin_write(vec![row(2)], true, Box::new(()));
    for _ in 0..QUEUE_CAPACITY {
        assert!(matches!(begin(), StartedWrite::Queued(_)));
    }
    assert!(matches!(begin(), StartedWrite::Waiting(_)));
    other.roll_back();
    first.await.unwrap();
    store.writer.catch_up().await.unwrap();
    assert_eq!(verified(&store).await, 1 + QUEUE_CAPACITY as u64);
}

#[tokio::test]
async fn the_last_handle_waits_for_what_is_queued() {
    let (_folder, path, store) = open().await;
    for number in 0..300 {
        let queued = store.writer.queue(row(number), Box::new(()));
        queued.await.unwrap();
    }
    drop(store);
    let store = Store::open(&Location::File(path), OUTAGE_TIMEOUT).await;
    assert_eq!(verified(&store.unwrap()).await, 300);
}

/// Panics in the thread, where the attachment of a write is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("as a fault of the writer");
    }
}

#[tokio::test]
async fn writes_fail_after_the_thread_is_gone() {
    let (_folder, path, store) = open().await;
    store.writer.queue(row(0), Box::new(Bomb)).await.unwrap();
    for _ in 0..3 {
        let failed = store.writer.write(vec![row(1)], true).await;
        assert!(failed.is_err());
    }
    assert!(store.writer.queue(row(2), Box::new(())).await.is_err());
    assert_eq!(store.health.outage(), Some(Outage::ReadOnly));
    assert!(store.writable().is_err());
    drop(store);
    let store = Store::open(&Location::File(path), OUTAGE_TIMEOUT).await;
    verified(&store.unwrap()).await;
}

#[tokio::test]
async fn rows_of_two_processes_are_one_chain() {
    let (_folder, path, store) = open().await;
    let location = Location::File(path);
    let other = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
    for number in 0..4 {
        for store in [&store, &other] {
            store.writer.write(vec![row(number)], true).await.unwrap();
        }
        let draft = Draft::module_revoked("through the pool");
        let mut transaction = store.pool.begin().await.unwrap();
        let appended = crate::audit_rows::append(&mut transaction, &[&draft]).await;
        appended.unwrap();
        transaction.commit().await.unwrap();
    }
    assert_eq!(verified(&other).await, 12);
}

/// A transaction that adds a row, and ends with `answer`.
async fn transacted(
    store: &Store,
    number: u32,
    answer: Result<u32, sqlx::Error>,
) -> io::Result<u32> {
    let draft = Draft::module_approved("ann", "m", &number.to_string());
    let work = store.transact(move |transaction| {
        Box::pin(async move {
            crate::audit_rows::append(transaction, &[&draft]).await?;
            answer
        })
    });
    work.await.map_err(io::Error::other)
}

#[tokio::test]
async fn transactions_of_callers_are_committed_together_and_undone_alone() {
    let (_folder, path, store) = open().await;
    store.writer.write(vec![row(0)], true).await.unwrap();
    let mut other = locked(&path);
    let answer = |number: u32| match number % 3 {
        2 => Err(sqlx::Error::RowNotFound),
        _ => Ok(number),
    };
    let mut callers = JoinSet::new();
    let first = store.clone();
    let mut first = Box::pin(async move { (0, transacted(&first, 0, Ok(0)).await) });
    assert!(
        timeout(Duration::ZERO, &mut first).await.is_err(),
        "it waits"
    );
    until(async || (store.writer.jobs.0.capacity() == JOB_CAPACITY).then_some(())).await;
    callers.spawn(first);
    for number in 1..9 {
        let store = store.clone();
        callers.spawn(async move {
            let answered = transacted(&store, number, answer(number)).await;
            (number, answered)
        });
    }
    until(async || (store.writer.jobs.0.capacity() + 8 == JOB_CAPACITY).then_some(())).await;
    let before = commits(&path);
    other.roll_back();
    while let Some(done) = callers.join_next().await {
        let (number, answer) = done.unwrap();
        assert_eq!(answer.ok(), (number % 3 != 2).then_some(number));
    }
    let commits = commits(&path) - before;
    // More than one on a slow machine only, where the time of a transaction is over before it has all of them.
    assert!(commits < 6, "{commits} commits of six rows");
    assert_eq!(verified(&store).await, 7);
}

/// Longest wait, far longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
async fn journals_are_written_between_transactions_of_busy_callers() {
    let (_folder, _path, store) = open().await;
    let mut callers = JoinSet::new();
    for _ in 0..4 {
        let store = store.clone();
        callers.spawn(async move {
            loop {
                store.create_session("ann", "a", "t").await.unwrap();
            }
        });
    }
    let begun = async || store.sessions("ann", None, 8).await.unwrap().len();
    until(async || (begun().await == 8).then_some(())).await;
    for number in 0..8 {
        let write = store.writer.write(vec![row(number)], true);
        let written = timeout(PATIENCE, write).await;
        written.expect("it waits for the callers' end").unwrap();
    }
    callers.shutdown().await;
    assert_eq!(verified(&store).await, 8);
}
