//! Shares of collections: the owner offers one to another key, which accepts it, refuses it, or leaves it later.
//!
//! An offered collection may be used by its name, and changes nothing else for the key that it is offered to. So a key
//! gets into the searches of another only if that key agrees.

use super::access::{Access, MembershipState};
use super::collections::Collection;
use crate::audit_rows::{self, Draft};
use crate::column::signed;
use crate::error::StoreError;
use crate::store::Store;
use crate::time::now_ms;
use sqlx::AnyConnection;

/// Maximum number of keys that a collection is shared with.
pub const MAX_KEYS_OF_COLLECTION: u32 = 100;
/// Maximum number of unanswered offers of one owner to one key.
pub const MAX_OFFERS_OF_OWNER: u32 = 10;
/// Maximum number of unanswered offers to one key, of all owners together.
pub const MAX_OFFERS_TO_KEY: u32 = 100;
/// Maximum number of shared collections that a key has accepted: a search that names none looks in all of them.
pub const MAX_ACCEPTED_SHARES: u32 = 100;

/// A share cannot be made or accepted. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    #[error("it is shared with {most} keys, and may be with no more: end a share")]
    Keys { most: u32 },
    #[error(
        "{most} collections of this owner are offered to the key {grantee:?}, which has not answered: it accepts or \
         refuses some first, or end a share with it"
    )]
    OffersOfOwner { grantee: String, most: u32 },
    #[error(
        "{most} collections are offered to the key {grantee:?}, which has not answered: it accepts or refuses some first"
    )]
    OffersToKey { grantee: String, most: u32 },
    #[error("this key has accepted {most} shared collections, and may have no more: leave one")]
    Accepted { most: u32 },
    #[error("the collection was deleted")]
    Gone,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for ShareError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl Store {
    /// Offers a collection to `grantee`, or changes what it may do with one that is shared already, and keeps its answer
    /// then. What the user of the terminal shares counts as accepted, where `grantee` has room for it.
    ///
    /// # Errors
    /// A bound of shares, a deleted collection, or a failure of the database.
    pub async fn share_collection(
        &self,
        collection: &Collection,
        grantee: &str,
        access: Access,
    ) -> Result<MembershipState, ShareError> {
        let work = async {
            let mut transaction = self.pool.begin().await?;
            if !lock_collection(&mut transaction, collection).await? {
                return Err(ShareError::Gone);
            }
            let head = audit_rows::lock_head(&mut transaction).await?;
            let changed: Option<Option<i64>> = sqlx::query_scalar(
                "UPDATE collection_grants SET access = $3 WHERE collection = $1 AND grantee = $2 \
                 RETURNING accepted_ms",
            )
            .bind(collection.id.to_string())
            .bind(grantee)
            .bind(access.name())
            .fetch_optional(&mut *transaction)
            .await?;
            let is_accepted = match changed {
                Some(accepted_ms) => accepted_ms.is_some(),
                None => add(&mut transaction, collection, grantee, access).await?,
            };
            let logged = Some(access.name());
            let draft = Draft::collection_shared(collection.logged_name(), grantee, logged);
            audit_rows::append_after(&mut transaction, head, &[&draft]).await?;
            transaction.commit().await?;
            Ok(if is_accepted {
                MembershipState::Accepted
            } else {
                MembershipState::Offered
            })
        };
        self.database.within(work).await
    }

    /// Ends the share of a collection with `grantee`, on behalf of its owner. Returns whether there was one.
    pub async fn unshare_collection(
        &self,
        collection: &Collection,
        grantee: &str,
    ) -> Result<bool, StoreError> {
        let draft = Draft::collection_shared(collection.logged_name(), grantee, None);
        self.end_share(collection, grantee, draft).await
    }

    /// Accepts a share on behalf of `grantee`. Returns whether there is one; accepting it again changes nothing.
    ///
    /// # Errors
    /// `grantee` has accepted too many, or the database failed.
    pub async fn accept_share(
        &self,
        grantee: &str,
        collection: &Collection,
    ) -> Result<bool, ShareError> {
        let work = async {
            let mut transaction = self.pool.begin().await?;
            let head = audit_rows::lock_head(&mut transaction).await?;
            let accepted_ms: Option<Option<i64>> = sqlx::query_scalar(
                "SELECT accepted_ms FROM collection_grants WHERE collection = $1 AND grantee = $2",
            )
            .bind(collection.id.to_string())
            .bind(grantee)
            .fetch_optional(&mut *transaction)
            .await?;
            match accepted_ms {
                None => return Ok(false),
                Some(Some(_)) => return Ok(true),
                Some(None) => {}
            }
            if accepted(&mut transaction, grantee).await? >= i64::from(MAX_ACCEPTED_SHARES) {
                return Err(ShareError::Accepted {
                    most: MAX_ACCEPTED_SHARES,
                });
            }
            let changed = sqlx::query(
                "UPDATE collection_grants SET accepted_ms = $3 WHERE collection = $1 AND grantee = $2",
            )
            .bind(collection.id.to_string())
            .bind(grantee)
            .bind(signed(now_ms()))
            .execute(&mut *transaction)
            .await?;
            if changed.rows_affected() == 0 {
                return Ok(false);
            }
            let draft = Draft::share_accepted(grantee, collection.logged_name());
            audit_rows::append_after(&mut transaction, head, &[&draft]).await?;
            transaction.commit().await?;
            Ok(true)
        };
        self.database.within(work).await
    }

    /// Ends a share on behalf of `grantee`: it refuses an offer, or leaves what it accepted. Returns whether there was
    /// one. The owner may offer the collection again.
    pub async fn leave_share(
        &self,
        grantee: &str,
        collection: &Collection,
    ) -> Result<bool, StoreError> {
        let draft = Draft::share_left(grantee, collection.logged_name());
        self.end_share(collection, grantee, draft).await
    }

    async fn end_share(
        &self,
        collection: &Collection,
        grantee: &str,
        draft: Draft,
    ) -> Result<bool, StoreError> {
        let work = async {
            let mut transaction = self.pool.begin().await?;
            let head = audit_rows::lock_head(&mut transaction).await?;
            let ended =
                sqlx::query("DELETE FROM collection_grants WHERE collection = $1 AND grantee = $2")
                    .bind(collection.id.to_string())
                    .bind(grantee)
                    .execute(&mut *transaction)
                    .await?;
            if ended.rows_affected() == 0 {
                return Ok(false);
            }
            audit_rows::append_after(&mut transaction, head, &[&draft]).await?;
            transaction.commit().await?;
            Ok(true)
        };
        self.database.within(work).await
    }
}

/// Holds the collection until the transaction ends. Returns whether it exists.
async fn lock_collection(
    connection: &mut AnyConnection,
    collection: &Collection,
) -> Result<bool, sqlx::Error> {
    // An update that changes nothing locks the row.
    let held = sqlx::query(
        "UPDATE collections SET version = version WHERE id = $1 AND deleted_ms IS NULL",
    )
    .bind(collection.id.to_string())
    .execute(connection)
    .await?;
    Ok(held.rows_affected() > 0)
}

/// Adds a share that is not there yet. Returns whether it is accepted at once.
async fn add(
    connection: &mut AnyConnection,
    collection: &Collection,
    grantee: &str,
    access: Access,
) -> Result<bool, ShareError> {
    let keys: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM collection_grants WHERE collection = $1")
            .bind(collection.id.to_string())
            .fetch_one(&mut *connection)
            .await?;
    if keys >= i64::from(MAX_KEYS_OF_COLLECTION) {
        return Err(ShareError::Keys {
            most: MAX_KEYS_OF_COLLECTION,
        });
    }
    let is_accepted = collection.owner.is_empty()
        && accepted(connection, grantee).await? < i64::from(MAX_ACCEPTED_SHARES);
    if !is_accepted {
        check_offers(connection, collection, grantee).await?;
    }
    sqlx::query(
        "INSERT INTO collection_grants (collection, grantee, access, accepted_ms) VALUES ($1, $2, $3, $4)",
    )
    .bind(collection.id.to_string())
    .bind(grantee)
    .bind(access.name())
    .bind(is_accepted.then(|| signed(now_ms())))
    .execute(connection)
    .await?;
    Ok(is_accepted)
}

/// The number of shared collections that `grantee` has accepted.
async fn accepted(connection: &mut AnyConnection, grantee: &str) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT COUNT(*) FROM collection_grants JOIN collections ON collections.id = collection_grants.collection \
         WHERE grantee = $1 AND accepted_ms IS NOT NULL AND deleted_ms IS NULL",
    )
    .bind(grantee)
    .fetch_one(connection)
    .await
}

async fn check_offers(
    connection: &mut AnyConnection,
    collection: &Collection,
    grantee: &str,
) -> Result<(), ShareError> {
    let (all, of_owner): (i64, i64) = sqlx::query_as(
        "SELECT COUNT(*), COUNT(CASE WHEN owner = $2 THEN 1 END) FROM collection_grants \
         JOIN collections ON collections.id = collection_grants.collection \
         WHERE grantee = $1 AND accepted_ms IS NULL AND deleted_ms IS NULL",
    )
    .bind(grantee)
    .bind(&collection.owner)
    .fetch_one(connection)
    .await?;
    if of_owner >= i64::from(MAX_OFFERS_OF_OWNER) {
        return Err(ShareError::OffersOfOwner {
            grantee: grantee.to_owned(),
            most: MAX_OFFERS_OF_OWNER,
        });
    }
    if all >= i64::from(MAX_OFFERS_TO_KEY) {
        return Err(ShareError::OffersToKey {
            grantee: grantee.to_owned(),
            most: MAX_OFFERS_TO_KEY,
        });
    }
    Ok(())
}
