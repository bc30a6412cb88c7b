//! Knowledge: collections of documents, sharing them, and the search for passages. A collection is its key's; those
//! of other keys are named `OWNER/NAME`, and found where they are shared: by that name from then on, and without a name
//! once the key accepted the share.

mod collections;
mod documents;
mod search;
mod shares;
mod transfer;

pub use documents::NewDocument;

use crate::http::App;
use crate::http::auth::Client;
use crate::http::error::ApiError;
use toolhold_admission::QueueRefusal;
use toolhold_knowledge::{AddError, CollectionPath, NoText, SearchError};
use toolhold_policy::is_name;
use toolhold_runtime::extract::Unreadable;
use toolhold_storage::{
    Access, Collection, Membership, MembershipState, PublishError, ShareError, StagingError,
};
use utoipa_axum::router::OpenApiRouter;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(collections::routes())
        .merge(documents::routes())
        .merge(shares::routes())
        .merge(search::routes())
        .merge(transfer::routes())
}

/// Seconds after which a request that found the queue full may be sent again.
const RETRY_SECONDS: u32 = 5;

impl App {
    /// The collection, if the client may use it so.
    async fn collection(
        &self,
        client: &Client,
        named: &str,
        needed: Access,
    ) -> Result<Collection, ApiError> {
        let (collection, membership) = self.readable(client, named).await?;
        if membership.access < needed {
            return Err(ApiError::forbidden(format!(
                "{named} is shared with this key to be read; its owner can share it to be written"
            )));
        }
        Ok(collection)
    }

    /// The collection, if it is the client's own: its owner alone deletes and shares it.
    async fn own_collection(&self, client: &Client, named: &str) -> Result<Collection, ApiError> {
        let (collection, _) = self.own_membership(client, named).await?;
        Ok(collection)
    }

    async fn own_membership(
        &self,
        client: &Client,
        named: &str,
    ) -> Result<(Collection, Membership), ApiError> {
        let (collection, membership) = self.readable(client, named).await?;
        if membership.state != MembershipState::Owner {
            return Err(ApiError::forbidden(format!(
                "{named} belongs to another key, which alone can do that"
            )));
        }
        Ok((collection, membership))
    }

    async fn readable(
        &self,
        client: &Client,
        named: &str,
    ) -> Result<(Collection, Membership), ApiError> {
        let path = CollectionPath::read(&client.name, named);
        let is_path = is_name(&path.name) && (path.owner.is_empty() || is_name(&path.owner));
        let found = if is_path {
            let store = self.dispatcher.store();
            store
                .collection(&client.name, &path.owner, &path.name)
                .await?
        } else {
            None
        };
        found.ok_or_else(|| {
            ApiError::not_found(format_args!(
                "collection {named:?}; /v1/knowledge/collections lists them"
            ))
        })
    }
}

fn check_name(name: &str) -> Result<(), ApiError> {
    if is_name(name) {
        return Ok(());
    }
    Err(ApiError::invalid(
        "a collection's name is lower case letters, digits and _, at most 48, starting with a letter",
    ))
}

pub(super) fn refused(refused: QueueRefusal) -> ApiError {
    let message = match refused {
        QueueRefusal::Full => "too many documents and searches wait; try again in a while",
        QueueRefusal::Deadline | QueueRefusal::GroupLimit => {
            "it waited too long behind others of this server or of this key; try again in a while"
        }
    };
    ApiError::too_many(message, RETRY_SECONDS)
}

impl From<NoText> for ApiError {
    fn from(no_text: NoText) -> Self {
        Self::unsupported_media_type(format!("the document is not added: {no_text}"))
    }
}

impl From<Unreadable> for ApiError {
    fn from(error: Unreadable) -> Self {
        let message = format!("the document is not added: {error}");
        match error {
            Unreadable::NoText(no_text) => no_text.into(),
            Unreadable::Missing { .. } => Self::unsupported_media_type(message),
            Unreadable::Extraction { .. } => Self::unprocessable(message),
            Unreadable::Start(_) => Self::unavailable(message),
        }
    }
}

impl From<AddError> for ApiError {
    fn from(error: AddError) -> Self {
        let message = error.to_string();
        match error {
            AddError::TooLong { .. } => Self::payload_too_large(message),
            AddError::Description { .. } => Self::invalid(message),
            AddError::Empty => Self::unprocessable(message),
            AddError::OtherModel { .. }
            | AddError::Publish(PublishError::Quota { .. } | PublishError::Lost)
            | AddError::Staging(StagingError::Lost) => Self::conflict(message),
            AddError::Late { .. } => Self::unavailable(message),
            AddError::Embed(error) if error.is_retryable => Self::unavailable(message),
            AddError::Embed(_) | AddError::Count { .. } => Self::upstream(message),
            AddError::Publish(PublishError::Store(error))
            | AddError::Staging(StagingError::Store(error))
            | AddError::Store(error) => error.into(),
            AddError::Cut(_) | AddError::Dimensions(_) => Self::internal(&message),
        }
    }
}

impl From<ShareError> for ApiError {
    fn from(error: ShareError) -> Self {
        match error {
            ShareError::Store(error) => error.into(),
            ShareError::Keys { .. }
            | ShareError::OffersOfOwner { .. }
            | ShareError::OffersToKey { .. }
            | ShareError::Accepted { .. }
            | ShareError::Gone => Self::conflict(error.to_string()),
        }
    }
}

impl From<SearchError> for ApiError {
    fn from(error: SearchError) -> Self {
        let message = error.to_string();
        match error {
            SearchError::Store(error) => error.into(),
            SearchError::Dimensions(_) => Self::internal(&message),
            SearchError::Late { .. } => Self::unavailable(message),
            SearchError::Question { .. } => Self::invalid(message),
        }
    }
}
