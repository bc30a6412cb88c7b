//! Reads the bytes of a document as text.
//!
//! Only what is text already is read here. Documents are hostile, so formats that need a parser of their own (PDF, HTML,
//! office documents) are for extractors, which are modules in the sandbox.

use crate::add::{TextDocument, digest};
use crate::split::Structure;
use std::collections::BTreeMap;

/// Why bytes are no text for a collection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoText {
    /// A format that is not read by the host.
    #[error(
        "{what} of this kind is read by an extractor, and none is there for it (`knowledge.extractors`): convert it to \
         text first"
    )]
    NeedsExtractor { what: &'static str },
    /// Its byte order mark says so.
    #[error(
        "it is in {encoding}, and documents are in UTF-8: `iconv -f {encoding} -t UTF-8` converts it"
    )]
    OtherEncoding { encoding: &'static str },
    #[error(
        "it is not UTF-8 (byte {at}): if it is a text in another encoding, `iconv -f WINDOWS-1252 -t UTF-8` or the \
         like converts it"
    )]
    NotUtf8 { at: usize },
    #[error("it is no text: it holds bytes that only programs read")]
    Binary,
}

/// Formats that look like text, or that people take for text, by the ending of their name.
const NEED_EXTRACTOR: &[(&str, &[&str])] = &[
    ("a PDF", &["pdf"]),
    ("a web page", &["html", "htm", "xhtml", "xht", "mhtml"]),
    (
        "an office document",
        &[
            "docx", "doc", "dotx", "odt", "rtf", "xlsx", "xls", "ods", "pptx", "ppt", "odp", "epub",
        ],
    ),
];

/// Characters that terminals and programs obey, of so many at least that a text may hold one: old listings have form
/// feeds and escapes of colours.
const TEXT_CHARS_PER_CONTROL: usize = 50;

impl NoText {
    /// What the name of a document says without its bytes.
    pub fn by_name(source: &str) -> Option<Self> {
        let ending = ending(source)?;
        let format = NEED_EXTRACTOR
            .iter()
            .find(|(_, endings)| endings.contains(&ending.as_str()));
        format.map(|(what, _)| Self::NeedsExtractor { what })
    }
}

impl TextDocument {
    /// Reads a document that is text: Markdown by the ending of its name, and plain otherwise. Its title is the last part
    /// of the source.
    ///
    /// # Errors
    /// It is no text in UTF-8.
    pub fn read(
        source: &str,
        bytes: &[u8],
        labels: BTreeMap<String, String>,
    ) -> Result<Self, NoText> {
        if let Some(other) = NoText::by_name(source) {
            return Err(other);
        }
        let text = text(bytes)?;
        let (media_type, structure) = match ending(source).as_deref() {
            Some("md" | "markdown" | "mdx") => ("text/markdown", Structure::Markdown),
            Some("csv") => ("text/csv", Structure::Plain),
            Some("tsv") => ("text/tab-separated-values", Structure::Plain),
            _ => ("text/plain", Structure::Plain),
        };
        Ok(Self {
            source: source.to_owned(),
            title: last_part(source).to_owned(),
            media_type: media_type.to_owned(),
            structure,
            digest: digest(bytes),
            extractor: None,
            text: text.to_owned(),
            labels,
        })
    }
}

/// The text without its byte order mark.
fn text(bytes: &[u8]) -> Result<&str, NoText> {
    match bytes {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => {
            return Err(NoText::OtherEncoding { encoding: "UTF-32" });
        }
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            return Err(NoText::OtherEncoding { encoding: "UTF-16" });
        }
        [b'%', b'P', b'D', b'F', b'-', ..] => {
            return Err(NoText::NeedsExtractor { what: "a PDF" });
        }
        _ => {}
    }
    if bytes.contains(&0) {
        return Err(NoText::Binary);
    }
    let text = str::from_utf8(bytes).map_err(|error| NoText::NotUtf8 {
        at: error.valid_up_to(),
    })?;
    let obeyed = |c: &char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    let obeyed = text.chars().filter(obeyed).count();
    if obeyed > text.len() / TEXT_CHARS_PER_CONTROL {
        return Err(NoText::Binary);
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

fn last_part(source: &str) -> &str {
    source.rsplit('/').next().unwrap_or(source)
}

/// In small letters.
fn ending(source: &str) -> Option<String> {
    let (name, ending) = last_part(source).rsplit_once('.')?;
    (!name.is_empty()).then(|| ending.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &str, bytes: &[u8]) -> Result<TextDocument, NoText> {
        TextDocument::read(source, bytes, BTreeMap::new())
    }

    #[test]
    fn texts_are_read_by_what_they_are() {
        for (source, media_type, structure) in [
            ("/a/b.MD", "text/markdown", Structure::Markdown),
            ("b.csv", "text/csv", Structure::Plain),
            ("b.rs", "text/plain", Structure::Plain),
            ("Makefile", "text/plain", Structure::Plain),
            (".md", "text/plain", Structure::Plain),
            ("a.pdf/notes", "text/plain", Structure::Plain),
        ] {
            let document = read(source, "# Gr\u{fc}\u{df}e\n".as_bytes()).unwrap();
            assert_eq!(document.media_type, media_type, "{source}");
            assert_eq!(document.structure, structure, "{source}");
        }
        let marked = read("a/b.txt", b"\xef\xbb\xbfone").unwrap();
        assert_eq!(
            (marked.text.as_str(), marked.title.as_str()),
            ("one", "b.txt")
        );
        assert_eq!(marked.digest, digest(b"\xef\xbb\xbfone"));
        assert!(read("listing.txt", format!("{}\u{c}", "x".repeat(60)).as_bytes()).is_ok());
    }

    #[test]
    fn what_is_no_text_in_utf8_is_refused_with_what_it_is() {
        let extractor = |what| NoText::NeedsExtractor { what };
        for (source, bytes, expect) in [
            ("a.pdf", &b"text"[..], extractor("a PDF")),
            ("a.txt", b"%PDF-1.7", extractor("a PDF")),
            ("a.HTML", b"<p>text", extractor("a web page")),
            ("a.docx", b"PK\x03\x04", extractor("an office document")),
            ("a.txt", b"PK\x03\x04\0", NoText::Binary),
            ("a.txt", b"\x01\x02\x03\x04", NoText::Binary),
            (
                "a.txt",
                b"\xff\xfea\0",
                NoText::OtherEncoding { encoding: "UTF-16" },
            ),
            (
                "a.txt",
                b"\xff\xfe\0\0",
                NoText::OtherEncoding { encoding: "UTF-32" },
            ),
            ("a.txt", b"Gr\xfc\xdfe", NoText::NotUtf8 { at: 2 }),
        ] {
            assert_eq!(read(source, bytes).unwrap_err(), expect, "{source}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_read_that_are_not_there(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            if let Ok(document) = read("a.txt", &bytes) {
                let read = document.text.as_bytes();
                proptest::prop_assert!(bytes.ends_with(read) && bytes.len() - read.len() <= 3);
            }
        }
    }
}
