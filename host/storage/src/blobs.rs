//! The bytes of images and files that runs are shown, and of results: an event has their digests and sizes, and the bytes are kept
//! beside the events.
//!
//! Equal bytes are kept once for all runs that name them, as many are: each request of a client without a session brings
//! its whole conversation again. They go with the last of these runs.

use crate::blob_quota::{BlobBound, BlobSums};
use crate::column::signed;
use crate::database::{Database, InTime as _};
use crate::error::WriteError;
use crate::statements::{OpenTransaction, SqlValue};
use sqlx::AnyPool;
use std::collections::BTreeMap;
use std::sync::Arc;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::{Event, EventKind};
use toolhold_protocol::image::Image;
use toolhold_protocol::sent_file::SentFile;
use uuid::Uuid;

/// The bytes of one image, or of a part of a result.
#[derive(Clone)]
pub struct Blob {
    /// Their number.
    bytes: u64,
    base64: Arc<str>,
}

impl Blob {
    pub fn new(bytes: u64, base64: Arc<str>) -> Self {
        Self { bytes, base64 }
    }
}

/// Without the bytes, because changes that were not written are logged.
impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blob")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// Returns the images and files that a run, or one inside of it, begins with, by their digests.
pub fn begun_with(event: &EventKind) -> BTreeMap<String, Blob> {
    let of = |message: &Message| match message {
        Message::Image(image) => {
            let base64 = image.data()?.clone();
            let bytes = image.bytes;
            Some((image.digest.clone(), Blob { bytes, base64 }))
        }
        _ => None,
    };
    let sent = |file: &SentFile| {
        let blob = Blob::new(file.bytes, file.data()?.clone());
        Some((file.digest.clone(), blob))
    };
    match event {
        EventKind::Run { request, .. } => {
            let images = request.context.iter().filter_map(of);
            images
                .chain(request.files.iter().filter_map(sent))
                .collect()
        }
        EventKind::Sub { what, .. } => begun_with(what),
        _ => BTreeMap::new(),
    }
}

/// Names a blob that is kept, and locks it until the transaction ends. PostgreSQL, SQLite.
const NAME: [&str; 2] = [
    "INSERT INTO run_blobs (run, blob) SELECT CAST($1 AS TEXT), kept.id \
     FROM (SELECT id FROM blobs WHERE digest = $2 FOR SHARE) AS kept WHERE true ON CONFLICT (run, blob) DO NOTHING",
    "INSERT INTO run_blobs (run, blob) SELECT $1, id FROM blobs WHERE digest = $2 ON CONFLICT (run, blob) DO NOTHING",
];
/// Keeps a blob. One that another transaction has added meanwhile is updated, which locks it.
const KEEP: &str = "INSERT INTO blobs (digest, bytes, data) VALUES ($1, $2, $3) \
     ON CONFLICT (digest) DO UPDATE SET bytes = excluded.bytes";

/// Sums of the bytes of all blobs, and of those that the owner's runs name.
///
/// A blob counts as [`LEAST_BYTES`] at least: a row and its names take room, too.
pub const SUMS: &str = "SELECT CAST(COALESCE(SUM(CASE WHEN bytes < 1024 THEN 1024 ELSE bytes END), 0) AS BIGINT), \
     CAST(COALESCE(SUM(CASE WHEN blobs.id NOT IN \
     (SELECT blob FROM run_blobs JOIN runs ON runs.id = run_blobs.run WHERE runs.owner = $1) THEN 0 \
     WHEN bytes < 1024 THEN 1024 ELSE bytes END), 0) AS BIGINT) FROM blobs";
/// Least bytes that a blob counts as. [`SUMS`] has the number, too.
const LEAST_BYTES: u64 = 1_024;

/// Number of the blobs of a digest, and of those that the owner's runs name: none or one.
pub const IS_KEPT: &str = "SELECT CAST(COUNT(*) AS BIGINT), CAST(COALESCE(SUM(CASE WHEN blobs.id IN \
     (SELECT blob FROM run_blobs JOIN runs ON runs.id = run_blobs.run WHERE runs.owner = $1) THEN 1 ELSE 0 END), 0) \
     AS BIGINT) FROM blobs WHERE digest = $2";

/// Reads a row of [`SUMS`].
pub fn sums((all, owned): (i64, i64)) -> BlobSums {
    BlobSums {
        owner: owned.unsigned_abs(),
        all: all.unsigned_abs(),
    }
}

/// Adds a blob of `bytes` to the sums by which a run would add to those that are kept, with its row of [`IS_KEPT`].
pub fn add(added: &mut BlobSums, (kept, owned): (i64, i64), bytes: u64) {
    let bytes = bytes.max(LEAST_BYTES);
    if owned == 0 {
        added.owner = added.owner.saturating_add(bytes);
    }
    if kept == 0 {
        added.all = added.all.saturating_add(bytes);
    }
}

/// Waits until no other server compares images with a quota, and has the others wait until the transaction ends: none
/// would see what another is about to commit. SQLite has one transaction that writes at a time. The two numbers are keys
/// apart from those of processes, which are single ones.
const TAKE_TURN: &str = "SELECT CAST(COUNT(*) AS BIGINT) FROM pg_advisory_xact_lock(21, 1)";

/// Compares the images of a run that begins with its quota. Its row is written, and its images are not.
///
/// # Errors
/// The images do not fit, or the database failed.
async fn ensure_fit(
    transaction: &mut OpenTransaction<'_>,
    blobs: &BTreeMap<String, Blob>,
    bound: &BlobBound,
) -> Result<(), WriteError> {
    if !transaction.is_file() {
        let _turn: Option<(i64,)> = transaction.row(TAKE_TURN, &[]).await?;
    }
    let mut added = BlobSums::default();
    for (digest, blob) in blobs {
        let values = [SqlValue::from(&bound.owner), digest.into()];
        let known: Option<(i64, i64)> = transaction.row(IS_KEPT, &values).await?;
        // All of them are, if the run is there from an earlier commit, whose reply was lost.
        add(&mut added, known.unwrap_or_default(), blob.bytes);
    }
    if added == BlobSums::default() {
        return Ok(());
    }
    let kept: Option<(i64, i64)> = transaction.row(SUMS, &[(&bound.owner).into()]).await?;
    let kept = kept.map(sums).unwrap_or_default();
    Ok(bound.quota.check(kept, added)?)
}

/// Keeps images of a run. Those that are kept already are named. With a bound, they are kept only if they fit it: the
/// transaction that compares them is the one that keeps them.
///
/// # Errors
/// The images do not fit, or the database failed.
pub async fn write(
    transaction: &mut OpenTransaction<'_>,
    run: Uuid,
    blobs: &BTreeMap<String, Blob>,
    bound: Option<&BlobBound>,
) -> Result<(), WriteError> {
    if let Some(bound) = bound {
        ensure_fit(transaction, blobs, bound).await?;
    }
    let name = transaction.choose(NAME);
    for (digest, blob) in blobs {
        let values = [SqlValue::from(run), digest.into()];
        if transaction.execute(name, &values).await? > 0 {
            continue;
        }
        let kept = [
            digest.into(),
            signed(blob.bytes).into(),
            (&*blob.base64).into(),
        ];
        transaction.execute(KEEP, &kept).await?;
        // None if the row is there from an earlier commit, whose reply was lost.
        transaction.execute(name, &values).await?;
    }
    Ok(())
}

const OF_RUN: &str = "SELECT data FROM blobs JOIN run_blobs ON run_blobs.blob = blobs.id \
     WHERE blobs.digest = $2 AND run_blobs.run = $1";

/// The bytes of this digest as base64, if the run names them.
pub async fn of_run_by_digest(
    pool: &AnyPool,
    database: &Database,
    run: Uuid,
    digest: &str,
) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar(OF_RUN)
        .bind(run.to_string())
        .bind(digest)
        .fetch_optional(pool)
        .in_time(database)
        .await
}

/// Fills the images of a run's events with the bytes that are kept.
pub async fn restore(
    pool: &AnyPool,
    database: &Database,
    run: Uuid,
    events: &mut [Event],
) -> Result<(), sqlx::Error> {
    let mut lacking: Vec<&mut Image> = Vec::new();
    for event in events {
        let mut kind = &mut event.kind;
        while let EventKind::Sub { what, .. } = kind {
            kind = what;
        }
        if let EventKind::Run { request, .. } = kind {
            lacking.extend(images(&mut request.context));
        }
    }
    fill(pool, database, run, lacking).await
}

pub fn images(context: &mut [Message]) -> impl Iterator<Item = &mut Image> {
    context.iter_mut().filter_map(|message| match message {
        Message::Image(image) => Some(image),
        _ => None,
    })
}

pub async fn fill(
    pool: &AnyPool,
    database: &Database,
    run: Uuid,
    lacking: Vec<&mut Image>,
) -> Result<(), sqlx::Error> {
    // One by one: results may have brought the run many more bytes.
    let mut restored: BTreeMap<String, Image> = BTreeMap::new();
    for image in lacking {
        // Runs inside of the run are shown the same images: they share the bytes.
        if let Some(equal) = restored.get(&image.digest) {
            image.share(equal);
        } else if let Some(data) = of_run_by_digest(pool, database, run, &image.digest).await? {
            image.restore(&data);
            restored.insert(image.digest.clone(), image.clone());
        }
    }
    Ok(())
}

/// At most $2 blobs after $1 that no run names.
pub const UNNAMED: &str = "SELECT digest FROM blobs WHERE digest > $1 AND NOT EXISTS \
     (SELECT 1 FROM run_blobs WHERE run_blobs.blob = blobs.id) ORDER BY digest LIMIT $2";
const NAMED_BY_RUN: &str =
    "SELECT digest FROM run_blobs JOIN blobs ON blobs.id = run_blobs.blob WHERE run_blobs.run = $1";
const NAMED_BY_SESSION: &str = "SELECT DISTINCT digest FROM run_blobs JOIN blobs ON blobs.id = run_blobs.blob \
     JOIN runs ON runs.id = run_blobs.run WHERE runs.session = $1";

/// The lock of a blob on PostgreSQL: a run that names it waits. A blob of a run that names it now is locked already, and
/// stays. PostgreSQL, SQLite.
const LOCK: [&str; 2] = [
    "SELECT digest FROM blobs WHERE digest = $1 FOR UPDATE SKIP LOCKED",
    "SELECT digest FROM blobs WHERE digest = $1",
];
/// Waits for the lock of a blob, in a transaction that has no other locks.
const WAIT: [&str; 2] = [
    "SELECT digest FROM blobs WHERE digest = $1 FOR UPDATE",
    LOCK[1],
];
/// Only a statement after the lock sees a run that began before it.
const DELETE: &str = "DELETE FROM blobs WHERE digest = $1 AND NOT EXISTS \
     (SELECT 1 FROM run_blobs WHERE run_blobs.blob = blobs.id)";

/// Returns the digests of the blobs that a run names, which is about to be deleted.
pub async fn of_run(
    transaction: &mut OpenTransaction<'_>,
    run: Uuid,
) -> Result<Vec<String>, sqlx::Error> {
    let rows: Vec<(String,)> = transaction.rows(NAMED_BY_RUN, &[run.into()]).await?;
    Ok(rows.into_iter().map(|(digest,)| digest).collect())
}

/// Returns the digests of the blobs that the turns of a session name, which are about to be deleted.
pub async fn of_session(
    transaction: &mut OpenTransaction<'_>,
    session: Uuid,
) -> Result<Vec<String>, sqlx::Error> {
    let rows: Vec<(String,)> = transaction
        .rows(NAMED_BY_SESSION, &[session.into()])
        .await?;
    Ok(rows.into_iter().map(|(digest,)| digest).collect())
}

/// Deletes those of the blobs that no run names any more. Returns the digests of those that other transactions have locked:
/// [`delete_unlocked`] looks at them again, after the commit.
pub async fn delete_unnamed(
    transaction: &mut OpenTransaction<'_>,
    digests: &[String],
) -> Result<Vec<String>, sqlx::Error> {
    let lock = transaction.choose(LOCK);
    let mut locked = Vec::new();
    for digest in digests {
        let held: Option<(String,)> = transaction.row(lock, &[digest.into()]).await?;
        if held.is_some() {
            transaction.execute(DELETE, &[digest.into()]).await?;
        } else if !transaction.is_file() {
            locked.push(digest.clone());
        }
    }
    Ok(locked)
}

/// Deletes a blob that no record names, as soon as no other transaction has locked it. The transaction has no other locks.
pub async fn delete_unlocked(
    transaction: &mut OpenTransaction<'_>,
    digest: &str,
) -> Result<(), sqlx::Error> {
    let wait = transaction.choose(WAIT);
    let held: Option<(String,)> = transaction.row(wait, &[digest.into()]).await?;
    if held.is_some() {
        transaction.execute(DELETE, &[digest.into()]).await?;
    }
    Ok(())
}
