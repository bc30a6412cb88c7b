//! The search for passages.

use super::collections::MAX_COLLECTIONS;
use super::refused;
use crate::http::App;
use crate::http::auth::Client;
use crate::http::body::Body;
use crate::http::error::{ApiError, ErrorBody};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toolhold_knowledge::{By, CollectionPath, Found, FoundPassage, SearchQuery, WithoutVectors};
use toolhold_storage::{Access, Collection, MAX_ACCEPTED_SHARES, Scope};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(search))
}

/// Passages of an answer.
const MAX_PASSAGES: usize = 100;
const USUAL_PASSAGES: usize = 5;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({"text": "What does a lost card cost?", "collections": ["handbook"], "most": 3}))]
struct SearchBody {
    /// Words, or a question. A passage need not have all of its words.
    text: Option<String>,
    /// Several ways to put the question, beside `text`; 8 at most.
    texts: Vec<String>,
    /// `NAME`, or `OWNER/NAME`; 100 at most; default: the key's own, and those of others that it accepted.
    collections: Option<Vec<String>>,
    /// Labels that a document must have.
    labels: BTreeMap<String, String>,
    /// The most passages; 1 to 100; default: 5.
    #[schema(minimum = 1, maximum = 100)]
    most: Option<usize>,
    by: FoundBy,
    /// The most characters of all passages together.
    #[schema(minimum = 1)]
    most_characters: Option<usize>,
    /// The most passages of one document.
    #[schema(minimum = 1)]
    most_of_document: Option<usize>,
}

/// By what passages are found.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum FoundBy {
    Words,
    Vectors,
    /// Both, where there are vectors.
    #[default]
    Both,
}

#[derive(Debug, Serialize, ToSchema)]
struct FoundBody {
    /// The best first.
    passages: Vec<FoundPassageBody>,
    /// Why the vectors of some collections did not count; absent: they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_vectors: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct FoundPassageBody {
    id: i64,
    collection: String,
    document: FoundDocument,
    /// Headings that it stands under, outermost first.
    headings: Vec<String>,
    /// Where it begins in the document's text, in bytes of UTF-8.
    starts: u64,
    ends: u64,
    text: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct FoundDocument {
    id: Uuid,
    source: String,
    title: String,
    labels: BTreeMap<String, String>,
}

/// Finds passages in the collections that the key may read: by their words, and by vectors where the server has a
/// model.
#[utoipa::path(
    post, path = "/v1/knowledge/search", tag = "knowledge", security(("key" = [])),
    request_body = SearchBody,
    responses(
        (status = 200, body = FoundBody),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody),
    ),
)]
async fn search(
    State(app): State<App>,
    client: Client,
    Body { said: wanted, .. }: Body<SearchBody>,
) -> Result<Json<FoundBody>, ApiError> {
    client.may(Scope::Run)?;
    let collections = collections(&app, &client, wanted.collections.as_deref()).await?;
    let question = question(wanted)?;
    let permit = app.knowledge.may_search(&client.name).await;
    let permit = permit.map_err(refused)?;
    client.right.look().await?;
    // Not ended by a client that leaves: a scan of vectors goes on, and so must its permit.
    let searching = tokio::spawn(async move {
        let _permit = permit;
        let knowledge = &app.knowledge.configured.knowledge;
        let found = knowledge.search(&client.name, &collections, &question);
        let found = found.await?;
        Ok::<_, ApiError>(body(&client, &collections, found))
    });
    let found = searching
        .await
        .map_err(|error| ApiError::internal(&error))?;
    found.map(Json)
}

fn question(wanted: SearchBody) -> Result<SearchQuery, ApiError> {
    let mut texts = wanted.texts;
    texts.extend(wanted.text);
    if texts.iter().all(|text| text.trim().is_empty()) {
        return Err(ApiError::invalid("text, or texts: what is looked for"));
    }
    let most = wanted.most.unwrap_or(USUAL_PASSAGES);
    if !(1..=MAX_PASSAGES).contains(&most) {
        return Err(ApiError::member(
            "most",
            format_args!("1 to {MAX_PASSAGES}"),
        ));
    }
    for (what, most) in [
        ("most_characters", wanted.most_characters),
        ("most_of_document", wanted.most_of_document),
    ] {
        if most == Some(0) {
            return Err(ApiError::member(what, "at least 1"));
        }
    }
    Ok(SearchQuery {
        texts,
        by: match wanted.by {
            FoundBy::Words => By::Words,
            FoundBy::Vectors => By::Vectors,
            FoundBy::Both => By::Both,
        },
        labels: wanted.labels,
        most,
        most_characters: wanted.most_characters,
        most_of_document: wanted.most_of_document,
    })
}

/// # Errors
/// There is none of a name, or there are more than a search may have: nothing is left out in silence.
async fn collections(
    app: &App,
    client: &Client,
    named: Option<&[String]>,
) -> Result<Vec<Collection>, ApiError> {
    let most = MAX_COLLECTIONS as usize;
    let Some(named) = named else {
        let store = app.dispatcher.store();
        // As many as a key may have and accept: only a server without keys, whose collections are the terminal's, has more.
        let most = MAX_COLLECTIONS + MAX_ACCEPTED_SHARES;
        let all = store.default_collections(&client.name, most + 1).await?;
        if all.len() > most as usize {
            return Err(ApiError::invalid(format!(
                "collections: there are more than {most}, and a search has no more: name them"
            )));
        }
        return Ok(all);
    };
    if named.len() > most {
        return Err(ApiError::invalid(format!("collections: at most {most}")));
    }
    let mut found: Vec<Collection> = Vec::new();
    for name in named {
        let collection = app.collection(client, name, Access::Read).await?;
        if found.iter().all(|it| it.id != collection.id) {
            found.push(collection);
        }
    }
    Ok(found)
}

fn body(client: &Client, collections: &[Collection], found: Found) -> FoundBody {
    let passages = found.passages.into_iter();
    FoundBody {
        passages: passages
            .map(|it| passage(client, collections, it))
            .collect(),
        without_vectors: found.without_vectors.map(|why| match why {
            WithoutVectors::None => {
                "these collections have no vectors, or those of another model than this server's"
                    .to_owned()
            }
            WithoutVectors::Failed(error) => error.to_string(),
        }),
    }
}

fn passage(client: &Client, collections: &[Collection], found: FoundPassage) -> FoundPassageBody {
    let FoundPassage { passage, document } = found;
    let of = collections.iter().find(|it| it.id == document.collection);
    FoundPassageBody {
        id: passage.id,
        collection: of.map_or_else(String::new, |it| CollectionPath::of(&client.name, it)),
        document: FoundDocument {
            id: document.id,
            source: document.source.clone(),
            title: document.title.clone(),
            labels: document.labels.clone(),
        },
        headings: passage.heading.lines().map(str::to_owned).collect(),
        starts: passage.starts,
        ends: passage.ends,
        text: passage.text,
    }
}
