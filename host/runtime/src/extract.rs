//! Bytes of documents as text: those that are text as they are, and the others by the modules of `knowledge.extractors`,
//! in the sandbox.

use crate::config::Configuration;
use crate::host;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::OnceCell;
use toolhold_admission::WorkKind;
use toolhold_knowledge::{NoText, Structure, TextDocument, UnreadDocument, digest};
use toolhold_sandbox::{DocumentFormat, Extraction, ExtractionError, Module, ModuleKind, Registry};

/// Documents that are read and hashed before a module extracts their text.
const READINGS: WorkKind = WorkKind::new("documents to extract", 16);

/// The extractors that come with the program: none of them reads what is text already.
pub const SHIPPED: [&str; 3] = ["extract_html", "extract_office", "extract_pdf"];

/// Bytes of a document at whose beginning its format is looked for.
const HEAD_BYTES: usize = 512;

/// Reads documents. The modules are loaded for the first document that needs one.
pub struct Extractors {
    config: Configuration,
    registry: OnceCell<Registry>,
    loaded: OnceCell<()>,
}

/// A document that came from outside.
#[derive(Debug, Clone)]
pub struct DocumentBytes {
    /// A path, a URL or a name, whose ending tells the format where the media type does not.
    pub source: String,
    /// What the sender said, if anybody did: `text/html; charset=utf-8`.
    pub media_type: Option<String>,
    pub bytes: Vec<u8>,
    pub labels: BTreeMap<String, String>,
}

/// How a document is read.
#[derive(Debug, Clone)]
pub enum Reading {
    /// It is text, or refused as none.
    AsText,
    By(ChosenExtractor),
}

/// The extractor of a document.
#[derive(Debug, Clone)]
pub struct ChosenExtractor {
    module: Arc<Module>,
    media_type: String,
    /// What the document is recorded with: another version of the extractor may make another text of it.
    name: String,
}

impl ChosenExtractor {
    /// Extractors write Markdown.
    const STRUCTURE: Structure = Structure::Markdown;

    /// What is known of the document, whose bytes have this digest, before its text is taken out: if it was added
    /// before, it need not be.
    pub fn unread<'a>(
        &'a self,
        document: &'a DocumentBytes,
        digest: &'a str,
    ) -> UnreadDocument<'a> {
        UnreadDocument {
            source: &document.source,
            digest,
            extractor: &self.name,
            structure: Self::STRUCTURE,
            labels: &document.labels,
        }
    }
}

/// Why there is no text of a document.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error(transparent)]
    NoText(#[from] NoText),
    /// The extractors that might read it are not there.
    #[error("{source}; {missing}")]
    Missing {
        #[source]
        source: NoText,
        /// Which, each with its reason.
        missing: String,
    },
    #[error("{extractor}: {source}")]
    Extraction {
        extractor: String,
        #[source]
        source: ExtractionError,
    },
    /// Neither the document nor an extractor is to blame.
    #[error("the extractors could not be started: {0:#}")]
    Start(anyhow::Error),
}

impl Unreadable {
    /// Whether it is no document at all, as far as anybody can tell: what a folder has beside documents.
    pub fn is_no_document(&self) -> bool {
        match self {
            Self::NoText(no_text) => !matches!(no_text, NoText::OtherEncoding { .. }),
            Self::Extraction { source, .. } => matches!(source, ExtractionError::Empty),
            Self::Missing { .. } | Self::Start(_) => false,
        }
    }
}

impl std::fmt::Debug for Extractors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extractors")
            .field("names", &self.config.knowledge().extractors)
            .finish_non_exhaustive()
    }
}

impl Extractors {
    /// Loads its modules into a registry of its own.
    pub fn new(config: Configuration) -> Self {
        Self {
            config,
            registry: OnceCell::new(),
            loaded: OnceCell::new(),
        }
    }

    /// Loads its modules into this registry, whose policy holds and whose limits its calls share.
    pub fn within(config: Configuration, registry: Registry) -> Self {
        Self {
            registry: OnceCell::new_with(Some(registry)),
            ..Self::new(config)
        }
    }

    /// The document's text, as Markdown where an extractor made it.
    ///
    /// # Errors
    /// Why it has none. Other documents can be read all the same.
    pub async fn text(&self, document: DocumentBytes) -> Result<TextDocument, Unreadable> {
        let reading = self.reading(&document).await?;
        self.text_by(&reading, document).await
    }

    /// As [`Self::text`], where it is known how.
    ///
    /// # Errors
    /// As [`Self::text`].
    pub async fn text_by(
        &self,
        reading: &Reading,
        document: DocumentBytes,
    ) -> Result<TextDocument, Unreadable> {
        match reading {
            Reading::By(extractor) => self.extract(extractor, document).await,
            Reading::AsText => match plain(document).await? {
                Ok(text) => Ok(text),
                Err(refused) => Err(self.explain(refused)),
            },
        }
    }

    /// How the document is read: by what the sender said of it, by the ending of its name, or by how it begins.
    ///
    /// # Errors
    /// The extractors cannot be started.
    pub async fn reading(&self, document: &DocumentBytes) -> Result<Reading, Unreadable> {
        let names = &self.config.knowledge().extractors;
        let has_others = names.iter().any(|name| !SHIPPED.contains(&name.as_str()));
        if names.is_empty() || !(has_others || may_need_extractor(document)) {
            return Ok(Reading::AsText);
        }
        let modules = self.modules().await?;
        let of = |fits: &dyn Fn(&DocumentFormat) -> bool| {
            modules.iter().find_map(|module| {
                let format = module.formats.iter().find(|format| fits(format))?;
                Some(Reading::By(ChosenExtractor {
                    media_type: format.media_type.clone(),
                    name: format!("{} {}", module.name, module.digest),
                    module: module.clone(),
                }))
            })
        };
        let by_type = |wanted: &str| of(&|format| format.media_type == wanted);
        let said = document.media_type.as_deref().map(essence);
        let by_said = || said.as_deref().and_then(by_type);
        let by_ending = || {
            let ending = ending(&document.source)?;
            of(&|format| format.endings.contains(&ending))
        };
        let by_head = || by_type(format_by_head(&document.bytes)?);
        Ok(by_said()
            .or_else(by_ending)
            .or_else(by_head)
            .unwrap_or(Reading::AsText))
    }

    /// Takes the text out of the document, in a fresh instance under the limits of its module.
    async fn extract(
        &self,
        extractor: &ChosenExtractor,
        document: DocumentBytes,
    ) -> Result<TextDocument, Unreadable> {
        let ChosenExtractor {
            module,
            media_type,
            name,
        } = extractor;
        let bytes = document.bytes;
        let hashed = READINGS.run(None, move || (digest(&bytes), bytes));
        let (digest, bytes) = hashed
            .await
            .map_err(|error| Unreadable::Start(error.into()))?;
        let extraction = Extraction {
            document: bytes.into(),
            media_type,
            timeout: None,
        };
        let extracted = self.registry().await?.extract(module, &extraction).await;
        let extracted = extracted.map_err(|source| Unreadable::Extraction {
            extractor: module.name.clone(),
            source,
        })?;
        let last = document.source.rsplit('/').next().unwrap_or_default();
        Ok(TextDocument {
            title: extracted.title.unwrap_or_else(|| last.to_owned()),
            source: document.source,
            media_type: media_type.clone(),
            structure: ChosenExtractor::STRUCTURE,
            digest,
            extractor: Some(name.clone()),
            // No database keeps it in a text.
            text: extracted.text.replace('\0', "\u{fffd}"),
            labels: document.labels,
        })
    }

    /// Says of a document that is refused as no text which extractors are not there.
    fn explain(&self, refused: NoText) -> Unreadable {
        let missing = match (&refused, self.registry.get()) {
            (NoText::NeedsExtractor { .. }, Some(registry)) => self.missing(registry),
            _ => Vec::new(),
        };
        if missing.is_empty() {
            return refused.into();
        }
        Unreadable::Missing {
            source: refused,
            missing: missing.join("; "),
        }
    }

    fn missing(&self, registry: &Registry) -> Vec<String> {
        let failures = registry.failures();
        let names = self.config.knowledge().extractors.iter();
        let missing = names.filter_map(|name| match registry.module(name) {
            Some(module) if module.kind == ModuleKind::Extractor => None,
            Some(_) => Some(format!("the module {name} is no extractor")),
            None => {
                let failed = failures.iter().find(|failed| failed.name.raw() == name);
                Some(match failed {
                    Some(failed) => format!("the module {name} was not loaded: {}", failed.error),
                    None => format!("there is no module {name}"),
                })
            }
        });
        missing.collect()
    }

    /// The extractors that are there, in their order.
    async fn modules(&self) -> Result<Vec<Arc<Module>>, Unreadable> {
        let registry = self.registry().await?;
        let names = &self.config.knowledge().extractors;
        self.loaded
            .get_or_try_init(|| host::load(registry, &self.config, Some(names), &|_| ()))
            .await
            .map_err(Unreadable::Start)?;
        let modules = names.iter().filter_map(|name| registry.module(name));
        Ok(modules
            .filter(|module| module.kind == ModuleKind::Extractor)
            .collect())
    }

    async fn registry(&self) -> Result<&Registry, Unreadable> {
        self.registry
            .get_or_try_init(async || host::registry(&self.config))
            .await
            .map_err(Unreadable::Start)
    }
}

/// Reads the bytes, of which there may be many, on a thread that serves no others.
async fn plain(document: DocumentBytes) -> Result<Result<TextDocument, NoText>, Unreadable> {
    let DocumentBytes {
        source,
        media_type,
        bytes,
        labels,
    } = document;
    let media_type = media_type.unwrap_or_default();
    let read = move || TextDocument::read_as(&source, &media_type, &bytes, labels);
    let read = READINGS.run(None, read);
    read.await.map_err(|error| Unreadable::Start(error.into()))
}

/// Whether the extractors that come with the program may be asked. They are not started for a folder of texts.
fn may_need_extractor(document: &DocumentBytes) -> bool {
    let is_text = |said: &str| {
        let said = essence(said);
        said.starts_with("text/") && said != "text/html" || said == "application/octet-stream"
    };
    NoText::by_name(&document.source).is_some()
        || document
            .media_type
            .as_deref()
            .is_some_and(|said| !is_text(said))
        || format_by_head(&document.bytes).is_some()
}

/// A media type without its parameters, in small letters.
fn essence(media_type: &str) -> String {
    let essence = media_type.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// The media type of a document that begins as only such documents do.
fn format_by_head(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"%PDF-") {
        return Some("application/pdf");
    }
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let head = head.trim_ascii_start().to_ascii_lowercase();
    let is_page = head.starts_with(b"<!doctype html") || head.starts_with(b"<html");
    is_page.then_some("text/html")
}

/// The ending of a name, in small letters.
fn ending(source: &str) -> Option<String> {
    let name = source.rsplit('/').next().unwrap_or_default();
    let (name, ending) = name.rsplit_once('.')?;
    (!name.is_empty()).then(|| ending.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(source: &str, media_type: Option<&str>, bytes: &[u8]) -> DocumentBytes {
        DocumentBytes {
            source: source.to_owned(),
            media_type: media_type.map(str::to_owned),
            bytes: bytes.to_vec(),
            labels: BTreeMap::new(),
        }
    }

    #[test]
    fn extractors_are_started_for_what_is_no_text() {
        for (source, media_type, bytes, expect) in [
            ("a.md", None, &b"# a"[..], false),
            ("a.rs", Some("text/plain; charset=utf-8"), b"fn", false),
            ("a", Some("application/octet-stream"), b"text", false),
            ("a.PDF", None, b"", true),
            ("a", Some("Application/PDF"), b"", true),
            ("a", Some("text/html;charset=x"), b"", true),
            ("a.txt", None, b"%PDF-1.4", true),
            ("a.txt", None, b"\xef\xbb\xbf\n <!DOCTYPE HTML>", true),
            ("a.txt", None, b"<p>", false),
        ] {
            let document = document(source, media_type, bytes);
            assert_eq!(may_need_extractor(&document), expect, "{document:?}");
        }
    }

    #[test]
    fn an_ending_is_that_of_the_last_part() {
        assert_eq!(
            ending("https://x.example/a.b/c.DOCX").as_deref(),
            Some("docx")
        );
        assert_eq!(ending("a.pdf/notes"), None);
        assert_eq!(ending(".pdf"), None);
    }
}
