//! Documents that come with a task: they are kept in a collection of the session, or of the run, and passages of them are
//! found before the model is asked.

use crate::http::App;
use crate::http::agent::Prepared;
use crate::http::auth::Client;
use crate::http::error::ApiError;
use crate::http::knowledge::{NewDocument, refused};
use crate::http::request_memory::no_room;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use toolhold_admission::{MemoryReservation, Permit};
use toolhold_knowledge::digest;
use toolhold_runtime::document_addresses::AddressError;
use toolhold_sandbox::egress::DocumentError;
use toolhold_storage::{Collection, CollectionCreation, attached_name};
use utoipa::ToSchema;
use uuid::Uuid;

/// Documents of one task.
const MAX_DOCUMENTS: usize = 32;
/// Maximum number of sessions and runs of a key that have documents. They count apart from the key's collections.
const MAX_ATTACHED: u32 = 10_000;
/// Characters of a digest that name a document without a name.
const NAMED_BY: usize = 12;
/// Longest address of a document, in bytes.
const MAX_ADDRESS: usize = 8_192;
/// Endings of the names of documents.
const EXTENSIONS: [&str; 22] = [
    "pdf", "doc", "docx", "odt", "rtf", "txt", "md", "html", "htm", "xls", "xlsx", "ods", "csv",
    "tsv", "ppt", "pptx", "odp", "epub", "json", "xml", "yaml", "log",
];
/// Time in which the addresses of one task are fetched together, waits for permits apart.
pub(super) const FETCH_PATIENCE: Duration = Duration::from_secs(30);
/// Another way to give a document whose address is not fetched.
const NOT_FETCHED: &str = "; the operator grants addresses in knowledge.http. Or send what is there: of a document the text in content or the bytes in data, of an image or a file a data: URL";

/// A document that comes with a task.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TaskDocument {
    /// Its text, or its address (`https://…`), from which it is fetched where the operator granted that.
    content: Option<String>,
    /// Its bytes in base64, in the place of `content`.
    data: Option<String>,
    /// Such as `text/markdown`. Absent: what its server, its name and its bytes say.
    #[serde(alias = "media_type")]
    mime_type: Option<String>,
    /// What it is called where it is cited. A later document of the session with the same name takes its place. Absent: it
    /// is called by its address, or by its digest.
    name: Option<String>,
}

/// A document as the client gave it.
#[derive(Debug, PartialEq, Eq)]
enum GivenDocument<'a> {
    Bytes(Vec<u8>),
    Address(&'a str),
}

/// A document whose bytes are there.
#[derive(Debug, Default)]
pub(super) struct ReadDocument {
    pub bytes: Vec<u8>,
    /// The address that it was fetched from.
    address: Option<String>,
    /// The media type that its server gave; empty if the client sent the document itself.
    pub media_type: String,
    /// The memory of the bytes, if they were fetched. Those that the client sent count with the request's body.
    pub kept: Option<MemoryReservation>,
}

impl TaskDocument {
    fn given(&self) -> Result<GivenDocument<'_>, &'static str> {
        match (&self.content, &self.data) {
            (Some(content), None) if has_addresses_alone(content) => Err(
                "content: one address without spaces (write %20 for each), or a text; give each address a document of its own",
            ),
            (Some(content), None) => match address(content) {
                Some(address) if address.starts_with("data:") => {
                    Err("content: a data: URL is not read; send its bytes in data, and mime_type")
                }
                Some(long) if long.len() > MAX_ADDRESS => {
                    Err("content: an address of at most 8192 bytes")
                }
                Some(address) => Ok(GivenDocument::Address(address)),
                None => Ok(GivenDocument::Bytes(content.clone().into_bytes())),
            },
            (None, Some(data)) => STANDARD
                .decode(data)
                .map(GivenDocument::Bytes)
                .map_err(|_| "data: expected base64 with its padding"),
            _ => Err("expected content (a text, or an address), or data (bytes in base64)"),
        }
    }

    fn named(&self, read: ReadDocument) -> Result<NewDocument, &'static str> {
        let short = |bytes: &[u8]| {
            let digest = digest(bytes);
            digest.get(..NAMED_BY).unwrap_or(&digest).to_owned()
        };
        let source = match (self.name.as_deref(), &read.address) {
            (None, None) => format!("document {}", short(&read.bytes)),
            (None, Some(address)) => {
                let end = address.find(['?', '#']).unwrap_or(address.len());
                match address.split_at(end) {
                    (plain, query) if query.starts_with('?') => {
                        // A query may be a key, and it tells two documents apart.
                        format!("{plain}?{}", short(address.as_bytes()))
                    }
                    (plain, _) => plain.to_owned(),
                }
            }
            (Some(name), _) if name.trim().is_empty() => {
                return Err("name: expected a text, or none");
            }
            (Some(name), _) => name.to_owned(),
        };
        Ok(NewDocument {
            source,
            title: None,
            media_type: self.mime_type.clone().unwrap_or(read.media_type),
            labels: BTreeMap::new(),
            bytes: read.bytes.into(),
        })
    }
}

/// The address that `content` is, if it is one as a whole: a text that only begins with an address has spaces.
fn address(content: &str) -> Option<&str> {
    let text = content.trim();
    if text.contains(char::is_whitespace) {
        return None;
    }
    if text.starts_with("data:") && text.contains(',') {
        return Some(text);
    }
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    (is_scheme && !rest.is_empty()).then_some(text)
}

/// True if `content` is not one address and no text either: several addresses, or one whose path has spaces. A text about an
/// address has words before it, marks within it, or no document's name at its end.
fn has_addresses_alone(content: &str) -> bool {
    let text = content.trim();
    let words = || text.split_whitespace();
    if words().nth(1).is_none() {
        return false;
    }
    let is_address = |word: &str| {
        let word = word.trim_end_matches([',', ';']);
        address(word).is_some_and(|word| !word.starts_with("data:"))
    };
    let is_spaced = text.len() <= MAX_ADDRESS
        && !text.contains(['\n', '\r', '@'])
        && !words().any(|word| word.ends_with([':', ',']))
        && words().next().is_some_and(begins_path)
        && words().next_back().is_some_and(names_document);
    is_spaced || words().all(is_address)
}

/// True for the address of a web server with the beginning of a path behind it, which is no document's name yet.
fn begins_path(word: &str) -> bool {
    let Some((scheme, rest)) = word.split_once("://") else {
        return false;
    };
    let is_web = ["http", "https"]
        .iter()
        .any(|web| web.eq_ignore_ascii_case(scheme));
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    is_web && !path.trim_matches('/').is_empty() && !names_document(path)
}

/// True for a word such as `report.pdf`, perhaps with a query behind it.
fn names_document(word: &str) -> bool {
    let path = word.split(['?', '#']).next().unwrap_or(word);
    path.rsplit_once('.').is_some_and(|(stem, extension)| {
        let mut known = EXTENSIONS.iter();
        !stem.is_empty() && known.any(|known| known.eq_ignore_ascii_case(extension))
    })
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
        let mut left = FETCH_PATIENCE;
        for (index, document) in documents.iter().enumerate() {
            let at = |reason: &str| ApiError::invalid(format!("documents[{index}]: {reason}"));
            let (mut read, permit) = match document.given().map_err(at)? {
                GivenDocument::Bytes(bytes) => (ReadDocument::of(bytes), None),
                GivenDocument::Address(address) => {
                    self.fetched(client, address, &mut left)
                        .await
                        .map_err(|error| error.at(&format!("documents[{index}]: content")))?
                }
            };
            let _kept = read.kept.take();
            let document = document.named(read).map_err(at)?;
            self.add_attached(client, &collection, document, permit)
                .await
                .map_err(|error| error.at(&format!("documents[{index}]")))?;
        }
        prepared.request.retrieval = prepared.agent.config.retrieval(Some(name));
        Ok(())
    }

    /// Fetches what a task names by its address, within what is `left` of the time that the task has for that.
    pub(super) async fn fetched(
        &self,
        client: &Client,
        address: &str,
        left: &mut Duration,
    ) -> Result<(ReadDocument, Option<Permit<String>>), ApiError> {
        let served = &self.knowledge;
        let permit = served.may_fetch(&client.name).await.map_err(refused)?;
        if left.is_zero() {
            return Err(ApiError::invalid(format!(
                "it was not asked for, because the addresses of a task are fetched within {} s; send fewer, or their texts",
                FETCH_PATIENCE.as_secs()
            )));
        }
        let most = served.configured.knowledge.settings().document_bytes;
        let mut kept = client.memory.for_a_while()?;
        let began = Instant::now();
        let fetched = served
            .configured
            .addresses
            .fetch_into(address, most, *left, Some(&mut kept))
            .await;
        *left = left.saturating_sub(began.elapsed());
        // The fetch may have taken half a minute.
        client.right.look().await?;
        let fetched = fetched.map_err(|error| not_fetched(&error))?;
        let read = ReadDocument {
            bytes: fetched.bytes,
            address: Some(address.to_owned()),
            media_type: fetched.media_type,
            kept: Some(kept),
        };
        Ok((read, Some(permit)))
    }

    async fn add_attached(
        &self,
        client: &Client,
        collection: &Collection,
        document: NewDocument,
        permit: Option<Permit<String>>,
    ) -> Result<(), ApiError> {
        let (app, client, collection) = (self.clone(), client.clone(), collection.clone());
        // Not ended by a client that leaves.
        let adding = tokio::spawn(async move {
            let added = app.add_document(&client, &collection, document).await;
            drop(permit);
            added.map(drop)
        });
        adding.await.map_err(|error| ApiError::internal(&error))?
    }
}

impl ReadDocument {
    /// A document that the client sent.
    fn of(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }
}

fn not_fetched(error: &AddressError) -> ApiError {
    if let AddressError::Document(DocumentError::Memory(full)) = error {
        return no_room(*full);
    }
    let hint = if error.is_refusal() { NOT_FETCHED } else { "" };
    ApiError::invalid(format!("the address is not read: {error}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_document_is_a_text_or_bytes() {
        let read = |document: Value| {
            let document: TaskDocument = serde_json::from_value(document).unwrap();
            match document.given()? {
                GivenDocument::Bytes(bytes) => document.named(ReadDocument::of(bytes)),
                GivenDocument::Address(_) => Err("an address"),
            }
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

    #[test]
    fn an_address_is_no_text() {
        for content in [
            "https://a.example/notes.md",
            "HTTP://a.example",
            " https://a.example/a?b=c\n",
            "ftp://a.example/a",
            "file:///etc/passwd",
            "s3://bucket/key",
        ] {
            assert_eq!(address(content), Some(content.trim()), "{content}");
        }
        for content in [
            "",
            "https://",
            "see https://a.example",
            "https://a.example says so",
            "https://a.example\nhttps://b.example",
            "a : // b",
            "://a",
            "ключ://a",
        ] {
            assert_eq!(address(content), None, "{content}");
        }
        let document = |content: &str| TaskDocument {
            content: Some(content.to_owned()),
            ..TaskDocument::default()
        };
        for content in [
            "https://docs.example.com/My report.pdf",
            "https://docs.example.com/My yearly report.PDF?page=2",
            "https://a.example/x\nhttps://b.example/y",
            "https://a.example/x, ftp://b.example/y",
            " https://a.example https://b.example\n",
        ] {
            let fault = document(content).given().unwrap_err();
            assert!(
                fault.contains("a document of its own"),
                "{content}: {fault}"
            );
        }
        for content in [
            "https://a.example says so.",
            "https://a.example/notes.md is about fees",
            "https://a.example/x: the page of version 1.5",
            "https://a.example/notes.md\nFees are in fees.md",
            "See https://a.example/My report.pdf",
            "https://a.example is a mirror of b.example.com",
            "https://a.example is a mirror of report.pdf",
            "https://a.example/terms says: write to legal@a.com",
            "https://a.example/terms says: read terms.pdf",
            "https://a.example/terms, and then terms.pdf",
            "https://x.example/ describes main.py",
            "https://x.example/code describes main.py",
            "https://a.example/notes.md explains report.pdf",
            &format!(
                "https://a.example/My {} report.pdf",
                "yearly ".repeat(MAX_ADDRESS / 7)
            ),
            "ключ://a.example/My report.pdf",
        ] {
            let given = document(content);
            assert!(
                matches!(given.given(), Ok(GivenDocument::Bytes(_))),
                "{content}"
            );
        }
        let data = document("data:text/plain;base64,YQ==");
        assert!(data.given().unwrap_err().contains("mime_type"));
        let long = format!("https://a.example/{}", "a".repeat(MAX_ADDRESS));
        assert!(document(&long).given().is_err());
    }

    #[test]
    fn a_fetched_document_is_called_by_its_address() {
        let named = |document: TaskDocument, address: &str| {
            let read = ReadDocument {
                bytes: b"a".to_vec(),
                address: Some(address.to_owned()),
                media_type: "text/markdown".to_owned(),
                kept: None,
            };
            document.named(read).unwrap()
        };
        let usual = named(TaskDocument::default(), "https://a.example/n.md#part");
        assert_eq!(usual.source, "https://a.example/n.md");
        assert_eq!(usual.media_type, "text/markdown");
        let keyed = named(TaskDocument::default(), "https://a.example/n.md?key=secret");
        assert!(
            keyed.source.starts_with("https://a.example/n.md?") && !keyed.source.contains("secret")
        );
        let own = TaskDocument {
            name: Some("notes".to_owned()),
            mime_type: Some("text/plain".to_owned()),
            ..TaskDocument::default()
        };
        let own = named(own, "https://a.example/n.md");
        assert_eq!((&*own.source, &*own.media_type), ("notes", "text/plain"));
    }
}
