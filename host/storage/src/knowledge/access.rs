//! Who may use a collection: its owner, and the keys with which the owner shares it.

use super::Collection;
use super::attached::PREFIX;
use super::collections::{COLUMNS, collection};
use crate::audit_rows::{self, Draft};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use sqlx::Row as _;

/// What a key may do with a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Search it and read its documents.
    Read,
    /// Add and delete documents, too.
    Write,
}

/// A key that may use a collection which belongs to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedWith {
    /// Name of the key; empty for the user of this machine's terminal.
    pub grantee: String,
    /// What it may do.
    pub access: Access,
}

/// Whether the reader `$1` may read a row of `collections`: a condition for queries that join it.
pub(super) const READABLE: &str = "collections.deleted_ms IS NULL AND (collections.owner = $1 OR EXISTS \
     (SELECT 1 FROM collection_grants \
      WHERE collection_grants.collection = collections.id AND collection_grants.grantee = $1))";

impl Access {
    /// As the column `access` holds it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    fn of(name: &str) -> Self {
        if name == Self::Write.name() {
            Self::Write
        } else {
            Self::Read
        }
    }
}

impl Store {
    /// The collection `name` of `owner`, and what `reader` may do with it. `None` if there is none, or if it may not
    /// be read: the two cannot be told apart.
    pub async fn collection(
        &self,
        reader: &str,
        owner: &str,
        name: &str,
    ) -> Result<Option<(Collection, Access)>, StoreError> {
        let row = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS}, (SELECT access FROM collection_grants WHERE collection = id AND grantee = $1) AS access \
             FROM collections WHERE owner = $2 AND name = $3 AND deleted_ms IS NULL"
        )))
        .bind(reader)
        .bind(owner)
        .bind(name)
        .fetch_optional(&self.pool)
        .in_time(&self.database)
        .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let shared: Option<String> = row.try_get("access")?;
        let found = collection(&row)?;
        let access = if reader == owner {
            Some(Access::Write)
        } else {
            shared.as_deref().map(Access::of)
        };
        Ok(access.map(|access| (found, access)))
    }

    /// The collections that `reader` may use, its own first, then by owner and name; at most `most`. Those of documents
    /// that came with a session or a run are not among them.
    pub async fn collections(
        &self,
        reader: &str,
        most: u32,
    ) -> Result<Vec<(Collection, Access)>, StoreError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS}, access FROM collections LEFT JOIN collection_grants \
             ON collection = id AND grantee = $1 \
             WHERE deleted_ms IS NULL AND (owner = $1 OR access IS NOT NULL) AND name NOT LIKE '{PREFIX}%' \
             ORDER BY CASE WHEN owner = $1 THEN 0 ELSE 1 END, owner, name LIMIT $2"
        )))
        .bind(reader)
        .bind(i64::from(most))
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let found = rows.iter().map(|row| {
            let shared: Option<String> = row.try_get("access")?;
            let found = collection(row)?;
            let access = if found.owner == reader {
                Access::Write
            } else {
                shared.as_deref().map_or(Access::Read, Access::of)
            };
            Ok((found, access))
        });
        let found: Result<_, sqlx::Error> = found.collect();
        Ok(found?)
    }

    /// Lets `grantee` use a collection; `None` ends that. Returns whether there was anything to change.
    pub async fn share_collection(
        &self,
        collection: &Collection,
        grantee: &str,
        access: Option<Access>,
    ) -> Result<bool, StoreError> {
        let work = async {
            let mut transaction = self.pool.begin().await?;
            let changed = match access {
                Some(access) => {
                    sqlx::query(
                        "INSERT INTO collection_grants (collection, grantee, access) VALUES ($1, $2, $3) \
                         ON CONFLICT (collection, grantee) DO UPDATE SET access = excluded.access",
                    )
                    .bind(collection.id.to_string())
                    .bind(grantee)
                    .bind(access.name())
                    .execute(&mut *transaction)
                    .await?
                }
                None => {
                    sqlx::query(
                        "DELETE FROM collection_grants WHERE collection = $1 AND grantee = $2",
                    )
                    .bind(collection.id.to_string())
                    .bind(grantee)
                    .execute(&mut *transaction)
                    .await?
                }
            };
            if changed.rows_affected() == 0 {
                return Ok(false);
            }
            let draft = Draft::collection_shared(
                collection.logged_name(),
                grantee,
                access.map(Access::name),
            );
            audit_rows::append(&mut transaction, &[&draft]).await?;
            transaction.commit().await?;
            Ok(true)
        };
        self.database.within(work).await
    }

    /// The keys with which a collection is shared.
    pub async fn shared_with(
        &self,
        collection: &Collection,
    ) -> Result<Vec<SharedWith>, StoreError> {
        let rows = sqlx::query(
            "SELECT grantee, access FROM collection_grants WHERE collection = $1 ORDER BY grantee",
        )
        .bind(collection.id.to_string())
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let shared = rows.iter().map(|row| {
            Ok(SharedWith {
                grantee: row.try_get("grantee")?,
                access: Access::of(&row.try_get::<String, _>("access")?),
            })
        });
        let shared: Result<_, sqlx::Error> = shared.collect();
        Ok(shared?)
    }
}
