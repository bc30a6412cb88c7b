//! Sums of what the owners of collections hold.
//!
//! Bounds of owners and of shares are checked under the lock of the audit log, which each change takes for its row anyway:
//! transactions that hold it follow each other. A transaction that changes a collection's row, too, does that before it
//! takes the lock, and one that changes shares does that after it, so that none waits in a circle.

use super::attached::PREFIX;
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::statements::OpenTransaction;
use crate::store::Store;
use std::sync::LazyLock;

/// The two kinds of collections, which are counted apart: neither uses up the bounds of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectionKind {
    /// Made and named by its owner, who sees it in lists.
    Named,
    /// Holds the documents that came with the tasks of a session or of a run; in no list.
    Attached,
}

/// Sums over the collections of one kind of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnedSums {
    pub collections: u64,
    pub documents: u64,
    pub passages: u64,
    pub bytes: u64,
}

impl CollectionKind {
    pub(super) fn of_name(name: &str) -> Self {
        if name.starts_with(PREFIX) {
            Self::Attached
        } else {
            Self::Named
        }
    }

    /// The query for the sums of an owner's collections of this kind.
    fn query(self) -> &'static str {
        match self {
            Self::Named => &SUMS_OF_NAMED,
            Self::Attached => &SUMS_OF_ATTACHED,
        }
    }
}

static SUMS_OF_NAMED: LazyLock<String> =
    LazyLock::new(|| sums_query(&format!("name NOT LIKE '{PREFIX}%'")));
static SUMS_OF_ATTACHED: LazyLock<String> =
    LazyLock::new(|| sums_query(&format!("name LIKE '{PREFIX}%'")));

fn sums_query(condition: &str) -> String {
    format!(
        "SELECT CAST(COUNT(*) AS BIGINT) AS collections, CAST(COALESCE(SUM(documents), 0) AS BIGINT) AS documents, \
         CAST(COALESCE(SUM(passages), 0) AS BIGINT) AS passages, CAST(COALESCE(SUM(bytes), 0) AS BIGINT) AS bytes \
         FROM collections WHERE owner = $1 AND deleted_ms IS NULL AND {condition}"
    )
}

impl Store {
    /// The sums of the collections of `owner` of one kind.
    pub async fn owned_sums(
        &self,
        owner: &str,
        kind: CollectionKind,
    ) -> Result<OwnedSums, StoreError> {
        let sums: SumsRow = sqlx::query_as(kind.query())
            .bind(owner)
            .fetch_one(&self.pool)
            .in_time(&self.database)
            .await?;
        Ok(read(sums))
    }
}

/// The sums within a transaction. Where they decide about a bound, the transaction holds the lock of the audit log
/// ([`lock_head`](crate::audit_rows::lock_head)), so that no other adds meanwhile.
pub(super) async fn sums(
    transaction: &mut OpenTransaction<'_>,
    owner: &str,
    kind: CollectionKind,
) -> Result<OwnedSums, sqlx::Error> {
    let sums: Option<SumsRow> = transaction.row(kind.query(), &[owner.into()]).await?;
    sums.map(read).ok_or(sqlx::Error::RowNotFound)
}

/// Collections, documents, passages and bytes.
type SumsRow = (i64, i64, i64, i64);

fn read((collections, documents, passages, bytes): SumsRow) -> OwnedSums {
    let unsigned = |sum: i64| u64::try_from(sum).unwrap_or_default();
    OwnedSums {
        collections: unsigned(collections),
        documents: unsigned(documents),
        passages: unsigned(passages),
        bytes: unsigned(bytes),
    }
}
