//! Documents of a collection: adding, listing, reading and deleting them.

use super::refused;
use crate::http::App;
use crate::http::auth::Client;
use crate::http::body::{Body as JsonBody, PathParam, QueryParams, share};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::runs::{Page, check_limit};
use crate::http::unsent::Counted;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toolhold_admission::MemoryReservation;
use toolhold_connections::{KeptBody, KeptBodyError};
use toolhold_knowledge::Added;
use toolhold_runtime::extract::DocumentBytes;
use toolhold_storage::{Access, Collection, CollectionDocument, Passage, Scope};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(add, list))
        .routes(routes!(show, delete))
}

/// Copies of a document's bytes that adding it makes: its text, the text that is cut, and its passages.
const COPIES: u64 = 3;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"source": "fees.md", "content": "# Fees\n\nA lost card costs 20 euro.", "labels": {"team": "support"}}))]
struct NewDocumentBody {
    /// A path, a URL or a name. What is added later under the same takes its place.
    source: String,
    /// Default: the last part of the source.
    title: Option<String>,
    /// Its text.
    content: String,
    /// Such as `text/markdown`; default: by the ending of the source.
    mime_type: Option<String>,
    /// A search can be narrowed to them.
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// What the body is, if it is the document itself.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
struct RawDocument {
    /// Given: the body is the document, in the format of `Content-Type`, and not JSON that describes it.
    source: Option<String>,
    title: Option<String>,
    /// Labels as JSON: `{"team": "support"}`.
    labels: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct DocumentBody {
    id: Uuid,
    source: String,
    title: String,
    mime_type: String,
    /// SHA-256 of its bytes, in hex.
    digest: String,
    labels: BTreeMap<String, String>,
    /// Of its text.
    bytes: u64,
    passages: u64,
    /// Milliseconds since 1970 (UTC).
    created_ms: u64,
}

impl From<CollectionDocument> for DocumentBody {
    fn from(document: CollectionDocument) -> Self {
        Self {
            id: document.id,
            source: document.source,
            title: document.title,
            mime_type: document.media_type,
            digest: document.digest,
            labels: document.labels,
            bytes: document.bytes,
            passages: document.passages,
            created_ms: document.created_ms,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
struct DocumentList {
    documents: Vec<DocumentBody>,
}

#[derive(Debug, Serialize, ToSchema)]
struct AddedBody {
    /// `added`; `unchanged`: it was there with the same bytes; `labelled`: the same, and it has other labels now.
    result: &'static str,
    document: DocumentBody,
}

/// A passage of a document. Neighbours share a part of their texts.
#[derive(Debug, Serialize, ToSchema)]
struct PassageBody {
    id: i64,
    /// From 0 on.
    number: u64,
    /// Headings that it stands under, outermost first.
    headings: Vec<String>,
    text: String,
    /// Where it begins in the document's text, in bytes of UTF-8.
    starts: u64,
    ends: u64,
}

#[derive(Debug, Serialize, ToSchema)]
struct DocumentWithPassages {
    #[serde(flatten)]
    document: DocumentBody,
    /// A page of its passages, in order.
    content: Vec<PassageBody>,
}

/// Which passages of a document are returned.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct PassagePage {
    /// The number of the first passage.
    #[serde(default)]
    #[param(minimum = 0, maximum = 1_000_000)]
    first: u32,
    /// The most passages; 1 to 1000.
    #[serde(default = "crate::http::runs::usual_limit")]
    #[param(minimum = 1, maximum = 1000)]
    limit: u32,
}

/// A document that is to be added.
#[derive(Debug)]
pub struct NewDocument {
    pub source: String,
    /// Absent: what the document says itself.
    pub title: Option<String>,
    /// Empty: what its name and its bytes say.
    pub media_type: String,
    pub labels: BTreeMap<String, String>,
    pub bytes: Bytes,
}

/// A document that arrived, and the memory that is kept for it.
struct Arrived {
    document: NewDocument,
    kept: MemoryReservation,
}

/// Adds a document, in the place of the one of the same source.
///
/// The body is JSON with the text; or, with `?source=`, the document itself. It is found when this returns. Adding the
/// same again changes nothing. Needs a collection of the key, or one that is shared with it to be written.
#[utoipa::path(
    post, path = "/v1/knowledge/collections/{collection}/documents", tag = "knowledge", security(("key" = [])),
    params(("collection" = String, Path), RawDocument),
    request_body(content((NewDocumentBody = "application/json"), (String = "text/plain"), (String = "text/markdown"))),
    responses(
        (status = 200, description = "It was there already", body = AddedBody), (status = 201, body = AddedBody),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody),
    ),
)]
async fn add(
    State(app): State<App>,
    client: Client,
    PathParam(named): PathParam<String>,
    QueryParams(raw): QueryParams<RawDocument>,
    request: Request,
) -> Result<(StatusCode, Json<AddedBody>), ApiError> {
    client.may(Scope::Run)?;
    let collection = app.collection(&client, &named, Access::Write).await?;
    let arrived = match raw.source.clone() {
        Some(source) => arrived_raw(&app, source, raw, request).await?,
        None => arrived_json(&app, request).await?,
    };
    // Not ended by a client that leaves: what is begun is finished, and its permit given back, in any case.
    let adding = tokio::spawn(async move {
        let Arrived { document, kept } = arrived;
        let added = app.add_document(&client, &collection, document).await;
        drop(kept);
        added
    });
    let (result, found) = adding.await.map_err(|error| ApiError::internal(&error))??;
    let status = match result {
        ADDED => StatusCode::CREATED,
        _ => StatusCode::OK,
    };
    let document = found.into();
    Ok((status, Json(AddedBody { result, document })))
}

/// What became of a document that was not there.
const ADDED: &str = "added";

async fn arrived_raw(
    app: &App,
    source: String,
    raw: RawDocument,
    request: Request,
) -> Result<Arrived, ApiError> {
    let labels = raw.labels.as_deref().unwrap_or("{}");
    let labels = serde_json::from_str(labels)
        .map_err(|error| ApiError::invalid(format!("labels: an object of texts: {error}")))?;
    let (parts, body) = request.into_parts();
    let kind = parts.headers.get(header::CONTENT_TYPE);
    let media_type = kind.map_or("", |kind| kind.to_str().unwrap_or_default());
    let most = app.knowledge.configured.knowledge.settings().document_bytes;
    let share = share(&parts.extensions, app);
    let KeptBody { bytes, mut kept } = KeptBody::read(body, most, &share).await?;
    kept.grow(COPIES * bytes.len() as u64)
        .map_err(KeptBodyError::Full)?;
    Ok(Arrived {
        document: NewDocument {
            source,
            title: raw.title,
            media_type: media_type.to_owned(),
            labels,
            bytes,
        },
        kept,
    })
}

async fn arrived_json(app: &App, request: Request) -> Result<Arrived, ApiError> {
    let share = share(request.extensions(), app);
    let JsonBody { said, .. } = JsonBody::<NewDocumentBody>::from_request(request, app).await?;
    let kept = share.reserve((1 + COPIES) * said.content.len() as u64);
    Ok(Arrived {
        kept: kept.map_err(KeptBodyError::Full)?,
        document: NewDocument {
            source: said.source,
            title: said.title,
            media_type: said.mime_type.unwrap_or_default(),
            labels: said.labels,
            bytes: said.content.into(),
        },
    })
}

impl App {
    /// Adds a document to a collection that the client may write: what became of it, and the document as it is now.
    pub async fn add_document(
        &self,
        client: &Client,
        collection: &Collection,
        document: NewDocument,
    ) -> Result<(&'static str, CollectionDocument), ApiError> {
        let served = &self.knowledge;
        let _permit = served.may_add(&client.name).await.map_err(refused)?;
        check_room(self, collection, document.bytes.len() as u64).await?;
        let NewDocument {
            source,
            title,
            media_type,
            labels,
            bytes,
        } = document;
        if source.trim().is_empty() {
            return Err(ApiError::invalid("source: a path, a URL or a name"));
        }
        let document = DocumentBytes {
            source,
            media_type: Some(media_type).filter(|it| !it.is_empty()),
            bytes: bytes.into(),
            labels,
        };
        let mut document = served.extractors.text(document).await?;
        if let Some(title) = title {
            document.title = title;
        }
        // The body, the wait for a permit and the extraction may each have taken minutes.
        client.right.look().await?;
        let knowledge = &served.configured.knowledge;
        let added = knowledge
            .add(&client.name, collection, &document, &|_, _| {})
            .await?;
        let (result, found) = match added {
            Added::New { .. } => {
                // It may have taken the place of another.
                served.was_deleted();
                let store = self.dispatcher.store();
                (
                    ADDED,
                    store.document_of(collection, &document.source).await?,
                )
            }
            Added::Unchanged(found) => ("unchanged", Some(found)),
            Added::Labelled(found) => ("labelled", Some(found)),
        };
        let found = found.ok_or_else(|| {
            ApiError::conflict("the document was added, and deleted by another request at once")
        })?;
        Ok((result, found))
    }
}

/// Checks, before a document is cut, that the collections of the owner of this kind have room together. Publishing it
/// decides, because others add meanwhile.
async fn check_room(app: &App, collection: &Collection, bytes: u64) -> Result<(), ApiError> {
    let quota = app
        .knowledge
        .configured
        .knowledge
        .settings()
        .quotas
        .collection;
    let store = app.dispatcher.store();
    let sums = store
        .owned_sums(&collection.owner, collection.kind())
        .await?;
    for (what, has, most) in [
        (
            "documents",
            sums.documents.saturating_add(1),
            quota.documents,
        ),
        ("passages", sums.passages, quota.passages),
        ("bytes", sums.bytes.saturating_add(bytes), quota.bytes),
    ] {
        if has > most {
            return Err(ApiError::conflict(format!(
                "the collections of this owner would hold {what}: {has} of at most {most}; delete some"
            )));
        }
    }
    Ok(())
}

/// Lists the documents of a collection, the newest first.
#[utoipa::path(
    get, path = "/v1/knowledge/collections/{collection}/documents", tag = "knowledge", security(("key" = [])),
    params(("collection" = String, Path), Page),
    responses((status = 200, body = DocumentList), (status = "4XX", body = ErrorBody)),
)]
async fn list(
    State(app): State<App>,
    client: Client,
    PathParam(named): PathParam<String>,
    QueryParams(page): QueryParams<Page>,
) -> Result<Json<DocumentList>, ApiError> {
    client.may(Scope::Run)?;
    check_limit(page.limit)?;
    let collection = app.collection(&client, &named, Access::Read).await?;
    let store = app.dispatcher.store();
    let found = store
        .documents(&collection, page.before, page.limit)
        .await?;
    let documents = found.into_iter().map(DocumentBody::from).collect();
    Ok(Json(DocumentList { documents }))
}

async fn found(
    app: &App,
    collection: &Collection,
    id: Uuid,
) -> Result<CollectionDocument, ApiError> {
    let found = app.dispatcher.store().document(collection, id).await?;
    found.ok_or_else(|| ApiError::not_found(format_args!("document {id} in this collection")))
}

/// Returns a document with a page of its passages.
#[utoipa::path(
    get, path = "/v1/knowledge/collections/{collection}/documents/{document}", tag = "knowledge", security(("key" = [])),
    params(("collection" = String, Path), ("document" = Uuid, Path), PassagePage),
    responses((status = 200, body = DocumentWithPassages), (status = "4XX", body = ErrorBody)),
)]
async fn show(
    State(app): State<App>,
    client: Client,
    PathParam((named, id)): PathParam<(String, Uuid)>,
    QueryParams(page): QueryParams<PassagePage>,
) -> Result<Counted<DocumentWithPassages>, ApiError> {
    client.may(Scope::Run)?;
    check_limit(page.limit)?;
    let collection = app.collection(&client, &named, Access::Read).await?;
    let document = found(&app, &collection, id).await?;
    let store = app.dispatcher.store();
    let bytes = store.passages_bytes(&document, page.first.into(), page.limit);
    let memory = client.room(bytes.await?).await?;
    let passages = store
        .passages_of(&client.name, &document, page.first.into(), page.limit)
        .await?;
    let shown = DocumentWithPassages {
        document: document.into(),
        content: passages.into_iter().map(passage).collect(),
    };
    Ok(Counted::new(shown, memory))
}

fn passage(passage: Passage) -> PassageBody {
    PassageBody {
        id: passage.id,
        number: passage.number,
        headings: passage.heading.lines().map(str::to_owned).collect(),
        text: passage.text,
        starts: passage.starts,
        ends: passage.ends,
    }
}

/// Deletes a document: it is found no more at once, and removed from the database soon after.
#[utoipa::path(
    delete, path = "/v1/knowledge/collections/{collection}/documents/{document}", tag = "knowledge", security(("key" = [])),
    params(("collection" = String, Path), ("document" = Uuid, Path)),
    responses((status = 204), (status = "4XX", body = ErrorBody)),
)]
async fn delete(
    State(app): State<App>,
    client: Client,
    PathParam((named, id)): PathParam<(String, Uuid)>,
) -> Result<StatusCode, ApiError> {
    client.may(Scope::Run)?;
    let collection = app.collection(&client, &named, Access::Write).await?;
    found(&app, &collection, id).await?;
    let store = app.dispatcher.store();
    store.delete_document(&client.name, &collection, id).await?;
    app.knowledge.was_deleted();
    Ok(StatusCode::NO_CONTENT)
}
