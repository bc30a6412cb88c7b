//! The images of runs as a server needs them: their bytes for a context, and the sums by which it bounds them.

use crate::blobs::{fill, images};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use std::collections::BTreeMap;
use toolhold_protocol::context::Message;
use uuid::Uuid;

/// Bytes of the blobs that are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlobSums {
    /// Bytes that the owner's runs name, each blob once.
    pub owner: u64,
    /// Bytes of all blobs.
    pub all: u64,
}

const SUMS: &str = "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT), CAST(COALESCE(SUM(CASE WHEN blobs.id IN \
     (SELECT blob FROM run_blobs JOIN runs ON runs.id = run_blobs.run WHERE runs.owner = $1) THEN bytes ELSE 0 END), 0) \
     AS BIGINT) FROM blobs";

/// Number of the blobs of a digest, and of those that the owner's runs name: none or one.
const IS_KEPT: &str = "SELECT CAST(COUNT(*) AS BIGINT), CAST(COALESCE(SUM(CASE WHEN blobs.id IN \
     (SELECT blob FROM run_blobs JOIN runs ON runs.id = run_blobs.run WHERE runs.owner = $1) THEN 1 ELSE 0 END), 0) \
     AS BIGINT) FROM blobs WHERE digest = $2";

impl Store {
    /// Fills the images of a run's context with the bytes that are kept.
    pub async fn restore_images(
        &self,
        run: Uuid,
        context: &mut [Message],
    ) -> Result<(), StoreError> {
        let lacking = images(context).filter(|image| image.data().is_none());
        fill(&self.pool, &self.database, run, lacking.collect()).await?;
        Ok(())
    }

    /// Counts the bytes of the blobs that are kept.
    pub async fn blob_sums(&self, owner: &str) -> Result<BlobSums, StoreError> {
        let (all, owned): (i64, i64) = sqlx::query_as(SUMS)
            .bind(owner)
            .fetch_one(&self.pool)
            .in_time(&self.database)
            .await?;
        Ok(BlobSums {
            owner: owned.unsigned_abs(),
            all: all.unsigned_abs(),
        })
    }

    /// Counts the bytes by which blobs would add to these sums: their sizes by their digests.
    pub async fn added_blob_sums(
        &self,
        owner: &str,
        blobs: &BTreeMap<&str, u64>,
    ) -> Result<BlobSums, StoreError> {
        let mut added = BlobSums::default();
        for (digest, bytes) in blobs {
            let (kept, owned): (i64, i64) = sqlx::query_as(IS_KEPT)
                .bind(owner)
                .bind(*digest)
                .fetch_one(&self.pool)
                .in_time(&self.database)
                .await?;
            if owned == 0 {
                added.owner = added.owner.saturating_add(*bytes);
            }
            if kept == 0 {
                added.all = added.all.saturating_add(*bytes);
            }
        }
        Ok(added)
    }
}
