//! Bytes in results of calls: kept beside the record of their run, within the quota that images of requests have.

use crate::blob_quota::{BlobBound, BlobQuota};
use crate::blobs::{self, Blob};
use crate::change::Change;
use crate::database::InTime as _;
use crate::error::{StoreError, WriteError};
use crate::store::Store;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;
use toolhold_protocol::blob::{BlobContent, BlobKeeper, BlobRefusal};
use uuid::Uuid;

const OWNER: &str = "SELECT owner FROM runs WHERE id = $1";
/// A later turn has the data of those before it, and may pass on what a run before brought.
const OF_OWNER: &str = "SELECT data FROM blobs WHERE digest = $2 AND EXISTS \
     (SELECT 1 FROM run_blobs JOIN runs ON runs.id = run_blobs.run WHERE run_blobs.blob = blobs.id \
     AND runs.owner = (SELECT owner FROM runs WHERE id = $1))";
const BYTES: &str = "SELECT blobs.bytes FROM blobs JOIN run_blobs ON run_blobs.blob = blobs.id \
     WHERE blobs.digest = $2 AND run_blobs.run = $1";

/// Keeps the bytes of results in a database.
#[derive(Debug, Clone)]
pub struct ResultBlobs {
    store: Store,
    /// Absent: any number of bytes.
    quota: Option<BlobQuota>,
}

impl ResultBlobs {
    pub fn new(store: Store, quota: Option<BlobQuota>) -> Self {
        Self { store, quota }
    }

    /// The quota of the run's owner; `None` if there is none.
    async fn bound(&self, run: Uuid) -> Result<Option<BlobBound>, StoreError> {
        let Some(quota) = self.quota else {
            return Ok(None);
        };
        let store = &self.store;
        let owner: String = sqlx::query_scalar(OWNER)
            .bind(run.to_string())
            .fetch_one(&store.pool)
            .in_time(&store.database)
            .await?;
        Ok(Some(BlobBound { owner, quota }))
    }
}

impl Store {
    /// The number of bytes of an image or a result that a run names; `None` if it names none of this digest.
    pub async fn blob_bytes(&self, run: Uuid, digest: &str) -> Result<Option<u64>, StoreError> {
        let bytes: Option<i64> = sqlx::query_scalar(BYTES)
            .bind(run.to_string())
            .bind(digest)
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
        Ok(bytes.map(i64::unsigned_abs))
    }

    /// The bytes of an image or a result that a run names, as base64; `None` if it names none of this digest.
    pub async fn blob(&self, run: Uuid, digest: &str) -> Result<Option<String>, StoreError> {
        Ok(blobs::of_run_by_digest(&self.pool, &self.database, run, digest).await?)
    }
}

impl BlobKeeper for ResultBlobs {
    fn keep<'a>(
        &'a self,
        run: Uuid,
        contents: &'a [BlobContent],
    ) -> BoxFuture<'a, Result<(), BlobRefusal>> {
        Box::pin(async move {
            let bound = match self.bound(run).await {
                Ok(bound) => bound,
                Err(error) => {
                    tracing::warn!(%run, %error, "bytes of a result were not kept");
                    return Err(BlobRefusal::Failed);
                }
            };
            let blobs: BTreeMap<String, Blob> = contents
                .iter()
                .map(|it| (it.digest.clone(), Blob::new(it.bytes, it.base64.clone())))
                .collect();
            // One change, which compares them with the quota once. The event that names them is written after them, and
            // durably.
            let changes = vec![Change::Blobs { run, blobs, bound }];
            let written = self.store.writer.write(changes, false).await;
            written.map_err(|error| match WriteError::cause_of(&error) {
                Some(WriteError::ImagesFull(full)) => BlobRefusal::Full(full.to_string()),
                _ => {
                    tracing::warn!(%run, %error, "bytes of a result were not kept");
                    BlobRefusal::Failed
                }
            })
        })
    }

    fn read<'a>(&'a self, run: Uuid, digest: &'a str) -> BoxFuture<'a, Option<Arc<str>>> {
        Box::pin(async move {
            let store = &self.store;
            let read: Result<Option<String>, sqlx::Error> = sqlx::query_scalar(OF_OWNER)
                .bind(run.to_string())
                .bind(digest)
                .fetch_optional(&store.pool)
                .in_time(&store.database)
                .await;
            match read {
                Ok(base64) => base64.map(Arc::from),
                Err(error) => {
                    tracing::warn!(%run, %error, "bytes of a result were not read");
                    None
                }
            }
        })
    }
}
