//! Documents that come with a task: they are kept in a collection of the session, or of the run, and passages of them are
//! found before the model is asked.

use crate::http::App;
use crate::http::agent::Prepared;
use crate::http::auth::Client;
use crate::http::error::ApiError;
use crate::http::knowledge::NewDocument;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toolhold_knowledge::digest;
use toolhold_storage::{Collection, CollectionCreation, attached_name};
use utoipa::ToSchema;
use uuid::Uuid;

/// Documents of one task.
const MAX_DOCUMENTS: usize = 32;
/// Maximum number of sessions and runs of a key that have documents. They count apart from the key's collections.
const MAX_ATTACHED: u32 = 10_000;
/// Characters of a digest that name a document without a name.
const NAMED_BY: usize = 12;

/// A document that comes with a task.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TaskDocument {
    /// Its text.
    content: Option<String>,
    /// Its bytes in base64, in the place of `content`.
    data: Option<String>,
    /// Such as `text/markdown`. Absent: what its name and its bytes say.
    #[serde(alias = "media_type")]
    mime_type: Option<String>,
    /// What it is called where it is cited. A later document of the session with the same name takes its place. Absent: it
    /// is called by its digest.
    name: Option<String>,
}

impl TaskDocument {
    fn read(&self) -> Result<NewDocument, &'static str> {
        let bytes = match (&self.content, &self.data) {
            (Some(content), None) => content.clone().into_bytes(),
            (None, Some(data)) => STANDARD
                .decode(data)
                .map_err(|_| "data: expected base64 with its padding")?,
            _ => return Err("expected content (a text), or data (bytes in base64)"),
        };
        let source = match self.name.as_deref() {
            None => {
                let digest = digest(&bytes);
                format!("document {}", digest.get(..NAMED_BY).unwrap_or(&digest))
            }
            Some(name) if name.trim().is_empty() => return Err("name: expected a text, or none"),
            Some(name) => name.to_owned(),
        };
        Ok(NewDocument {
            source,
            title: None,
            media_type: self.mime_type.clone().unwrap_or_default(),
            labels: BTreeMap::new(),
            bytes: bytes.into(),
        })
    }
}

impl App {
    /// Adds documents to the collection of `of`, a session or a run, and has the run look for passages of it. A session's
    /// later turns find what came with its earlier ones.
    ///
    /// # Errors
    /// A document that cannot be read, or that does not fit. Those before it were added.
    pub async fn attach(
        &self,
        client: &Client,
        of: Uuid,
        documents: &[TaskDocument],
        prepared: &mut Prepared,
    ) -> Result<(), ApiError> {
        if documents.len() > MAX_DOCUMENTS {
            return Err(ApiError::invalid(format!(
                "documents: at most {MAX_DOCUMENTS}; POST /v1/knowledge/collections adds more"
            )));
        }
        let name = attached_name(of);
        let store = self.dispatcher.store();
        if !documents.is_empty() {
            let vectors = self.knowledge.configured.vectors.as_ref();
            let creation = store
                .create_collection(&client.name, &name, vectors, Some(MAX_ATTACHED))
                .await?;
            if creation == CollectionCreation::Full {
                return Err(ApiError::conflict(format!(
                    "{MAX_ATTACHED} sessions and runs of this key have documents, and no more may: delete sessions, or \
                     wait until runs are over"
                )));
            }
        }
        let found = store.collection(&client.name, &client.name, &name).await?;
        let Some((collection, _)) = found else {
            return Ok(());
        };
        for (index, document) in documents.iter().enumerate() {
            let at = |reason: &str| ApiError::invalid(format!("documents[{index}]: {reason}"));
            let document = document.read().map_err(at)?;
            self.add_attached(client, &collection, document)
                .await
                .map_err(|error| error.at(&format!("documents[{index}]")))?;
        }
        prepared.request.retrieval = prepared.agent.config.retrieval(Some(name));
        Ok(())
    }

    async fn add_attached(
        &self,
        client: &Client,
        collection: &Collection,
        document: NewDocument,
    ) -> Result<(), ApiError> {
        let (app, client, collection) = (self.clone(), client.clone(), collection.clone());
        // Not ended by a client that leaves.
        let adding = tokio::spawn(async move {
            app.add_document(&client, &collection, document)
                .await
                .map(drop)
        });
        adding.await.map_err(|error| ApiError::internal(&error))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_document_is_a_text_or_bytes() {
        let read = |document: Value| {
            let document: TaskDocument = serde_json::from_value(document).unwrap();
            document.read()
        };
        let text = read(json!({"content": "a", "mime_type": "text/plain"})).unwrap();
        assert_eq!((&*text.bytes, &*text.media_type), (&b"a"[..], "text/plain"));
        // The same text has the same name.
        assert_eq!(text.source, "document ca978112ca1b");
        let bytes = read(json!({"data": "AGE=", "name": "a.bin"})).unwrap();
        assert_eq!((&*bytes.bytes, &*bytes.source), (&b"\0a"[..], "a.bin"));
        for wrong in [
            json!({}),
            json!({"content": "a", "data": "YQ=="}),
            json!({"data": "?"}),
            json!({"content": "a", "name": " "}),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
        assert!(serde_json::from_value::<TaskDocument>(json!({"text": "a"})).is_err());
    }
}
