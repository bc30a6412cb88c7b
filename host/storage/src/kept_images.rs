//! The images of runs as a server needs them: their bytes for a context, and the sums by which it bounds them.

use crate::blob_quota::{BlobQuota, BlobSums, BlobsFull};
use crate::blobs::{IS_KEPT, SUMS, add, fill, images, restore, sums};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use std::collections::BTreeMap;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::Event;
use uuid::Uuid;

const SUM_OF_RUN: &str = "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM run_blobs \
     JOIN blobs ON blobs.id = run_blobs.blob WHERE run_blobs.run = $1";

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

    /// Fills the images of a run's events with the bytes that are kept.
    pub async fn restore_record(&self, run: Uuid, events: &mut [Event]) -> Result<(), StoreError> {
        restore(&self.pool, &self.database, run, events).await?;
        Ok(())
    }

    /// Counts the bytes of the images that a run names, each once.
    pub async fn image_bytes_of(&self, run: Uuid) -> Result<u64, StoreError> {
        let (bytes,): (i64,) = sqlx::query_as(SUM_OF_RUN)
            .bind(run.to_string())
            .fetch_one(&self.pool)
            .in_time(&self.database)
            .await?;
        Ok(bytes.unsigned_abs())
    }

    /// Counts the bytes of the blobs that are kept.
    pub async fn blob_sums(&self, owner: &str) -> Result<BlobSums, StoreError> {
        let row: (i64, i64) = sqlx::query_as(SUMS)
            .bind(owner)
            .fetch_one(&self.pool)
            .in_time(&self.database)
            .await?;
        Ok(sums(row))
    }

    /// Compares blobs that a run of `owner` would name with a quota: their sizes by their digests. A run that begins later
    /// may find less room, so its images are compared again in the transaction that keeps them
    /// ([`Label::images`](crate::Label::images)).
    pub async fn fit_blobs(
        &self,
        owner: &str,
        blobs: &BTreeMap<&str, u64>,
        quota: BlobQuota,
    ) -> Result<Result<(), BlobsFull>, StoreError> {
        let mut added = BlobSums::default();
        for (digest, bytes) in blobs {
            let known: (i64, i64) = sqlx::query_as(IS_KEPT)
                .bind(owner)
                .bind(*digest)
                .fetch_one(&self.pool)
                .in_time(&self.database)
                .await?;
            add(&mut added, known, *bytes);
        }
        // Those of an earlier turn are kept already.
        if added == BlobSums::default() {
            return Ok(Ok(()));
        }
        let kept = self.blob_sums(owner).await?;
        Ok(quota.check(kept, added))
    }
}
