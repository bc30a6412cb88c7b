//! Extractors: what takes the text out of documents that are not text themselves.
//!
//! An extractor is a function from a [`Document`] to [`Extracted`]; [`crate::export_extractor!`] makes a module of it. It
//! may read that document and log, and reaches nothing else. Documents are hostile: one that makes the function loop,
//! panic or fill its memory is refused with the limit that it met, and nothing else happens.
//!
//! ```ignore
//! use toolhold_guest::extractor::{Document, ExtractError, Extracted, Format, MarkdownText};
//!
//! toolhold_guest::export_extractor!(formats, extract);
//!
//! fn formats() -> Vec<Format> {
//!     vec![Format { media_type: "text/x-shout".into(), endings: vec!["shout".into()] }]
//! }
//!
//! fn extract(document: Document, _media_type: &str) -> Result<Extracted, ExtractError> {
//!     let text = String::from_utf8_lossy(&document.bytes()).to_lowercase();
//!     Ok(Extracted { title: None, text })
//! }
//! ```

use bindings::toolhold::module::document;
use std::io::{self, Read, Seek, SeekFrom};

pub use bindings::exports::toolhold::module::extractors::{ExtractError, Extracted, Format};

/// What `wit-bindgen` makes of the world. Modules touch it through [`crate::export_extractor!`] alone.
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "extractor",
        pub_export_macro: true,
        export_macro_name: "export_world",
        default_bindings_module: "toolhold_guest::extractor::bindings",
    });
}

/// Bytes that are asked for at once.
const PIECE_BYTES: u32 = 64 << 10;

/// The most bytes of text that Toolhold keeps of a document.
pub const MAX_TEXT_BYTES: usize = 16 << 20;

/// The document, as a file that is read: from anywhere, and as often as the module's limit `host_bytes` allows.
#[derive(Debug, Default)]
pub struct Document {
    position: u64,
    /// What was read ahead, from `position` on.
    ahead: Vec<u8>,
    taken: usize,
}

impl Document {
    pub fn size(&self) -> u64 {
        document::size()
    }

    /// All of it.
    pub fn bytes(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(usize::try_from(document::size()).unwrap_or_default());
        loop {
            let piece = document::read(all.len() as u64, u32::MAX);
            if piece.is_empty() {
                return all;
            }
            all.extend_from_slice(&piece);
        }
    }
}

impl Read for Document {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.ahead.len() {
            self.ahead = document::read(self.position, PIECE_BYTES);
            self.taken = 0;
        }
        let left = &self.ahead[self.taken..];
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        self.taken += count;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for Document {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let outside = || io::Error::new(io::ErrorKind::InvalidInput, "before the document's start");
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::End(offset) => document::size().checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        let place = place.ok_or_else(outside)?;
        // Parsers of archives seek a lot within what was read ahead.
        let start = self.position - self.taken as u64;
        match place.checked_sub(start).map(usize::try_from) {
            Some(Ok(taken)) if taken <= self.ahead.len() => self.taken = taken,
            _ => {
                self.ahead.clear();
                self.taken = 0;
            }
        }
        self.position = place;
        Ok(place)
    }
}

/// Markdown that is written piece by piece, of at most [`MAX_TEXT_BYTES`].
#[derive(Debug, Default)]
pub struct MarkdownText(String);

impl MarkdownText {
    /// # Errors
    /// It would be longer than a document's text may be.
    pub fn push(&mut self, text: &str) -> Result<(), ExtractError> {
        if self.0.len().saturating_add(text.len()) > MAX_TEXT_BYTES {
            let most = MAX_TEXT_BYTES >> 20;
            return Err(ExtractError::TooLarge(format!(
                "its text has more than {most} MiB"
            )));
        }
        self.0.push_str(text);
        Ok(())
    }

    /// A paragraph, a heading or a table, with an empty line before it.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn block(&mut self, text: &str) -> Result<(), ExtractError> {
        let text = text.trim_end();
        if text.is_empty() {
            return Ok(());
        }
        if !self.0.is_empty() {
            self.push("\n")?;
        }
        self.push(text)?;
        self.push("\n")
    }

    /// A heading of a level from 1 to 6, in one line.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn heading(&mut self, level: usize, text: &str) -> Result<(), ExtractError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.is_empty() {
            return Ok(());
        }
        let marks = "#".repeat(level.clamp(1, 6));
        self.block(&format!("{marks} {}", words.join(" ")))
    }

    pub fn into_text(self) -> String {
        self.0
    }
}

/// A row of a table in Markdown.
pub fn table_row(cells: &[String]) -> String {
    let mut row = String::from("|");
    for cell in cells {
        let words: Vec<&str> = cell.split_whitespace().collect();
        row.push(' ');
        row.push_str(&words.join(" ").replace('|', "\\|"));
        row.push_str(" |");
    }
    row.push('\n');
    row
}

/// Exports two functions as an extractor: `fn() -> Vec<Format>`, and
/// `fn(Document, &str) -> Result<Extracted, ExtractError>`, which is given one of the formats' media types. Once in a
/// module, which then has no tools.
#[macro_export]
macro_rules! export_extractor {
    ($formats:path, $extract:path) => {
        struct ToolholdExtractor;

        impl $crate::extractor::bindings::exports::toolhold::module::extractors::Guest
            for ToolholdExtractor
        {
            fn formats() -> Vec<$crate::extractor::Format> {
                $formats()
            }

            fn extract(
                media_type: String,
            ) -> Result<$crate::extractor::Extracted, $crate::extractor::ExtractError> {
                $extract($crate::extractor::Document::default(), &media_type)
            }
        }

        $crate::extractor::bindings::export_world!(
            ToolholdExtractor with_types_in $crate::extractor::bindings
        );
    };
}
