//! Who may use a collection: its owner, and the keys with which the owner shares it.

use super::Collection;
use super::attached::PREFIX;
use super::collections::{COLUMNS, collection};
use crate::column::is_storable;
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use sqlx::Row as _;
use sqlx::any::AnyRow;

/// What a key may do with a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Search it and read its documents.
    Read,
    /// Add and delete documents, too.
    Write,
}

/// How a reader came to a collection. In the order in which lists have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MembershipState {
    /// The collection is the reader's own.
    Owner,
    /// Its owner shares it, and the reader accepted that.
    Accepted,
    /// Its owner shares it, and the reader has not answered: it may be used by its name, and is in no search that names
    /// no collections.
    Offered,
}

/// The part of a reader in a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    pub access: Access,
    pub state: MembershipState,
}

/// A key that may use a collection which belongs to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedWith {
    /// Name of the key; empty for the user of this machine's terminal.
    pub grantee: String,
    /// Right of the key.
    pub access: Access,
    /// True if the key accepted the share.
    pub is_accepted: bool,
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

impl Membership {
    /// Reads the part of `reader` in the collection `found` from the columns `access` and `accepted_ms` of its share. `None`
    /// without a share.
    fn of(row: &AnyRow, found: &Collection, reader: &str) -> Result<Option<Self>, sqlx::Error> {
        if found.owner == reader {
            return Ok(Some(Self {
                access: Access::Write,
                state: MembershipState::Owner,
            }));
        }
        let access: Option<String> = row.try_get("access")?;
        let accepted: Option<i64> = row.try_get("accepted_ms")?;
        Ok(access.map(|access| Self {
            access: Access::of(&access),
            state: if accepted.is_some() {
                MembershipState::Accepted
            } else {
                MembershipState::Offered
            },
        }))
    }
}

impl Store {
    /// The collection `name` of `owner`, and the part of `reader` in it. `None` if there is none, or if it may not be
    /// read: the two cannot be told apart.
    pub async fn collection(
        &self,
        reader: &str,
        owner: &str,
        name: &str,
    ) -> Result<Option<(Collection, Membership)>, StoreError> {
        if ![reader, owner, name].into_iter().all(is_storable) {
            return Ok(None);
        }
        let row = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS}, access, accepted_ms FROM collections LEFT JOIN collection_grants \
             ON collection = id AND grantee = $1 WHERE owner = $2 AND name = $3 AND deleted_ms IS NULL"
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
        let found = collection(&row)?;
        let membership = Membership::of(&row, &found, reader)?;
        Ok(membership.map(|membership| (found, membership)))
    }

    /// The collections that `reader` may use: its own, then those that it accepted, then those that are offered to it,
    /// each by owner and name; at most `most`. Those of documents that came with a session or a run are not among them.
    pub async fn collections(
        &self,
        reader: &str,
        most: u32,
    ) -> Result<Vec<(Collection, Membership)>, StoreError> {
        self.usable(reader, "access IS NOT NULL", most).await
    }

    /// The collections of a search that names none: those of [`Self::collections`] without the offered ones, so that no
    /// other key changes what is searched. At most `most`.
    pub async fn default_collections(
        &self,
        reader: &str,
        most: u32,
    ) -> Result<Vec<Collection>, StoreError> {
        let listed = self.usable(reader, "accepted_ms IS NOT NULL", most).await?;
        Ok(listed.into_iter().map(|(found, _)| found).collect())
    }

    async fn usable(
        &self,
        reader: &str,
        shared: &'static str,
        most: u32,
    ) -> Result<Vec<(Collection, Membership)>, StoreError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS}, access, accepted_ms FROM collections LEFT JOIN collection_grants \
             ON collection = id AND grantee = $1 \
             WHERE deleted_ms IS NULL AND (owner = $1 OR {shared}) AND name NOT LIKE '{PREFIX}%' \
             ORDER BY CASE WHEN owner = $1 THEN 0 WHEN accepted_ms IS NOT NULL THEN 1 ELSE 2 END, owner, name LIMIT $2"
        )))
        .bind(reader)
        .bind(i64::from(most))
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            let collection = collection(row)?;
            if let Some(membership) = Membership::of(row, &collection, reader)? {
                found.push((collection, membership));
            }
        }
        // PostgreSQL may sort texts by the rules of a language.
        found.sort_by(|(a, left), (b, right)| {
            let by_owner = (left.state, &a.owner).cmp(&(right.state, &b.owner));
            by_owner.then_with(|| a.name.cmp(&b.name))
        });
        Ok(found)
    }

    /// The keys with which a collection is shared.
    pub async fn shared_with(
        &self,
        collection: &Collection,
    ) -> Result<Vec<SharedWith>, StoreError> {
        let rows = sqlx::query(
            "SELECT grantee, access, accepted_ms FROM collection_grants WHERE collection = $1",
        )
        .bind(collection.id.to_string())
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let shared = rows.iter().map(|row| {
            Ok(SharedWith {
                grantee: row.try_get("grantee")?,
                access: Access::of(&row.try_get::<String, _>("access")?),
                is_accepted: row.try_get::<Option<i64>, _>("accepted_ms")?.is_some(),
            })
        });
        let shared: Result<Vec<SharedWith>, sqlx::Error> = shared.collect();
        let mut shared = shared?;
        // PostgreSQL may sort texts by the rules of a language.
        shared.sort_by(|a, b| a.grantee.cmp(&b.grantee));
        Ok(shared)
    }
}
