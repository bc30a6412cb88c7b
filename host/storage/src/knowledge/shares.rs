//! Shares of collections: the owner offers one to another key, which accepts it, refuses it, or leaves it later.
//!
//! An offered collection may be used by its name, and changes nothing else for the key that it is offered to. So a key
//! gets into the searches of another only if that key agrees.

use super::access::{Access, MembershipState};
use super::collections::Collection;
use super::documents::lock_collection;
use crate::audit_rows::{self, Draft};
use crate::column::signed;
use crate::error::StoreError;
use crate::statements::{OpenTransaction, SqlValue};
use crate::store::Store;
use crate::time::now_ms;

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
        let (collection, grantee) = (collection.clone(), grantee.to_owned());
        let work = self.transact(move |mut transaction| {
            Box::pin(async move {
                if !lock_collection(&mut transaction, collection.id).await? {
                    return Err(ShareError::Gone);
                }
                let head = audit_rows::lock_head(&mut transaction).await?;
                let values = [
                    collection.id.into(),
                    (&grantee).into(),
                    access.name().into(),
                ];
                let changed: Option<(Option<i64>,)> = transaction.row(CHANGE, &values).await?;
                let is_accepted = match changed {
                    Some((accepted_ms,)) => accepted_ms.is_some(),
                    None => add(&mut transaction, &collection, &grantee, access).await?,
                };
                let logged = Some(access.name());
                let draft = Draft::collection_shared(collection.logged_name(), &grantee, logged);
                audit_rows::append_after(transaction, head, &[&draft]).await?;
                Ok(if is_accepted {
                    MembershipState::Accepted
                } else {
                    MembershipState::Offered
                })
            })
        });
        work.await
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
        let (collection, grantee) = (collection.clone(), grantee.to_owned());
        let work = self.transact(move |mut transaction| {
            Box::pin(async move {
                let head = audit_rows::lock_head(&mut transaction).await?;
                let values = [collection.id.into(), (&grantee).into()];
                let share: Option<(Option<i64>,)> = transaction.row(SHARE, &values).await?;
                match share {
                    None => return Ok(false),
                    Some((Some(_),)) => return Ok(true),
                    Some((None,)) => {}
                }
                if accepted(&mut transaction, &grantee).await? >= i64::from(MAX_ACCEPTED_SHARES) {
                    return Err(ShareError::Accepted {
                        most: MAX_ACCEPTED_SHARES,
                    });
                }
                let values = [
                    collection.id.into(),
                    (&grantee).into(),
                    signed(now_ms()).into(),
                ];
                if transaction.execute(ACCEPT, &values).await? == 0 {
                    return Ok(false);
                }
                let draft = Draft::share_accepted(&grantee, collection.logged_name());
                audit_rows::append_after(transaction, head, &[&draft]).await?;
                Ok(true)
            })
        });
        work.await
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
        let values = [SqlValue::from(collection.id), grantee.to_owned().into()];
        let work = self.transact(move |mut transaction| {
            Box::pin(async move {
                let head = audit_rows::lock_head(&mut transaction).await?;
                if transaction.execute(END, &values).await? == 0 {
                    return Ok(false);
                }
                audit_rows::append_after(transaction, head, &[&draft]).await?;
                Ok(true)
            })
        });
        work.await
    }
}

const CHANGE: &str = "UPDATE collection_grants SET access = $3 WHERE collection = $1 AND grantee = $2 RETURNING accepted_ms";
const SHARE: &str =
    "SELECT accepted_ms FROM collection_grants WHERE collection = $1 AND grantee = $2";
const ACCEPT: &str =
    "UPDATE collection_grants SET accepted_ms = $3 WHERE collection = $1 AND grantee = $2";
const END: &str = "DELETE FROM collection_grants WHERE collection = $1 AND grantee = $2";

/// Adds a share that is not there yet. Returns whether it is accepted at once.
async fn add(
    transaction: &mut OpenTransaction<'_>,
    collection: &Collection,
    grantee: &str,
    access: Access,
) -> Result<bool, ShareError> {
    let keys: Option<(i64,)> = transaction
        .row(
            "SELECT COUNT(*) FROM collection_grants WHERE collection = $1",
            &[collection.id.into()],
        )
        .await?;
    if keys.is_some_and(|(keys,)| keys >= i64::from(MAX_KEYS_OF_COLLECTION)) {
        return Err(ShareError::Keys {
            most: MAX_KEYS_OF_COLLECTION,
        });
    }
    let is_accepted = collection.owner.is_empty()
        && accepted(transaction, grantee).await? < i64::from(MAX_ACCEPTED_SHARES);
    if !is_accepted {
        check_offers(transaction, collection, grantee).await?;
    }
    let values = [
        collection.id.into(),
        grantee.into(),
        access.name().into(),
        is_accepted.then(|| signed(now_ms())).into(),
    ];
    transaction.execute(ADD, &values).await?;
    Ok(is_accepted)
}

const ADD: &str = "INSERT INTO collection_grants (collection, grantee, access, accepted_ms) VALUES ($1, $2, $3, $4)";

/// The number of shared collections that `grantee` has accepted.
async fn accepted(
    transaction: &mut OpenTransaction<'_>,
    grantee: &str,
) -> Result<i64, sqlx::Error> {
    let accepted: Option<(i64,)> = transaction.row(ACCEPTED, &[grantee.into()]).await?;
    let (accepted,) = accepted.ok_or(sqlx::Error::RowNotFound)?;
    Ok(accepted)
}

const ACCEPTED: &str = "SELECT COUNT(*) FROM collection_grants JOIN collections ON collections.id = collection_grants.collection \
     WHERE grantee = $1 AND accepted_ms IS NOT NULL AND deleted_ms IS NULL";
const OFFERS: &str = "SELECT COUNT(*), COUNT(CASE WHEN owner = $2 THEN 1 END) FROM collection_grants \
     JOIN collections ON collections.id = collection_grants.collection \
     WHERE grantee = $1 AND accepted_ms IS NULL AND deleted_ms IS NULL";

async fn check_offers(
    transaction: &mut OpenTransaction<'_>,
    collection: &Collection,
    grantee: &str,
) -> Result<(), ShareError> {
    let values = [grantee.into(), (&collection.owner).into()];
    let offers: Option<(i64, i64)> = transaction.row(OFFERS, &values).await?;
    let (all, of_owner) = offers.ok_or(sqlx::Error::RowNotFound)?;
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
