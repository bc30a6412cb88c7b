//! Knowledge: documents in collections, cut into passages, and the search for passages by words and by vectors.
//!
//! The crate promises that a document is found as a whole or not at all, whatever interrupts its adding, that adding the
//! same bytes again costs one query, and that a search ends within its time. It reads no files and asks no network:
//! bytes of documents, and what turns text into vectors, are given to it.
//!
//! Read `knowledge` first, which holds the parts; `read` takes bytes for text or refuses them; `add` cuts a text
//! (`split`), divides it into `words`, has vectors made (`embed`, of which `static_model` is one way), and stages the
//! passages in the storage; `search` finds them, among `vectors` that `tables` keeps in memory, and `rank` fuses what was
//! found in different ways. `memory` finds facts, of which there are few, without an index.
#![forbid(unsafe_code)]

mod add;
mod embed;
mod error;
pub mod fuzzing;
mod knowledge;
mod memory;
mod rank;
mod read;
mod search;
mod split;
mod static_model;
mod tables;
mod vectors;
mod words;

pub use add::{Added, TextDocument, digest};
pub use embed::{EmbedError, Embedder, Embedding};
pub use error::{AddError, SearchError};
pub use knowledge::{Knowledge, Settings};
pub use read::NoText;
pub use search::{By, Found, FoundPassage, SearchQuery, WithoutVectors};
pub use split::{PassageSize, Structure};
pub use static_model::{StaticModel, StaticModelError};
pub use vectors::WrongDimensions;
pub use words::Language;
