//! Knowledge: documents in collections, cut into passages, and the search for passages by words and by vectors.
//!
//! The crate promises that a document is found as a whole or not at all, whatever interrupts its adding, that adding the
//! same bytes again costs one query, and that a search ends within its time. It reads no files and asks no network:
//! bytes of documents, and what turns text into vectors, are given to it.
//!
//! Read `knowledge` first, which holds the parts; `read` takes bytes for text or refuses them; `add` cuts a text
//! (`split`), divides it into `words`, has vectors made (`embed`, of which `static_model` is one way), and stages the
//! passages in the storage; `search` finds them, among `vectors` that `tables` keeps in memory, and `rank` fuses what was
//! found in different ways. `renewal` makes the words of stored passages anew where they were made by another version.
//! `memory` finds facts, of which there are few, without an index. `transfer` writes a collection as lines and reads
//! them, and `names` says how collections of others are named.
#![forbid(unsafe_code)]

mod add;
mod embed;
mod error;
pub mod fuzzing;
mod knowledge;
mod media_type;
mod memory;
mod names;
mod rank;
mod read;
mod renewal;
mod renewed;
mod search;
mod split;
mod static_model;
mod tables;
mod transfer;
mod vectors;
mod words;

pub use add::{Added, TextDocument, UnreadDocument, digest};
pub use embed::{EmbedError, Embedder, Embedding};
pub use error::{AddError, SearchError};
pub use knowledge::{Knowledge, Settings};
pub use names::CollectionPath;
pub use read::NoText;
pub use search::{By, Found, FoundPassage, SearchQuery, WithoutVectors};
pub use split::{PassageSize, Structure};
pub use static_model::{StaticModel, StaticModelError};
pub use transfer::{ExportReader, ImportCounts, ImportError, Importer, MAX_LINE_BYTES};
pub use vectors::WrongDimensions;
pub use words::Language;
