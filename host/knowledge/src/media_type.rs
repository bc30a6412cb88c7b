//! Documents whose media type is known, and not only their name.

use crate::add::TextDocument;
use crate::read::NoText;
use std::collections::BTreeMap;

/// Media types, and the ending of a name that stands for each.
const ENDINGS: &[(&str, &str)] = &[
    ("text/markdown", "md"),
    ("text/x-markdown", "md"),
    ("text/csv", "csv"),
    ("text/tab-separated-values", "tsv"),
    ("text/html", "html"),
    ("application/xhtml+xml", "xhtml"),
    ("application/pdf", "pdf"),
    ("application/rtf", "rtf"),
    ("text/rtf", "rtf"),
    ("application/msword", "doc"),
    ("application/vnd.ms-excel", "xls"),
    ("application/vnd.ms-powerpoint", "ppt"),
    ("application/epub+zip", "epub"),
    ("application/vnd.oasis.opendocument.text", "odt"),
    ("application/vnd.oasis.opendocument.spreadsheet", "ods"),
    ("application/vnd.oasis.opendocument.presentation", "odp"),
    (
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "docx",
    ),
    (
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "xlsx",
    ),
    (
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "pptx",
    ),
];

/// Media types that say nothing more about a document than that it has bytes, or characters.
const SAY_NOTHING: [&str; 4] = [
    "",
    "application/octet-stream",
    "application/x-www-form-urlencoded",
    "text/plain",
];

impl TextDocument {
    /// Reads a document as what `media_type` says; where it says nothing, as [`Self::read`] does.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_as(
        source: &str,
        media_type: &str,
        bytes: &[u8],
        labels: BTreeMap<String, String>,
    ) -> Result<Self, NoText> {
        let kind = media_type.split(';').next().unwrap_or_default();
        let kind = kind.trim().to_ascii_lowercase();
        if SAY_NOTHING.contains(&&*kind) {
            return Self::read(source, bytes, labels);
        }
        let known = ENDINGS.iter().find(|(it, _)| *it == kind);
        // All others are read if their bytes are text: JSON, source code.
        let ending = known.map_or("txt", |(_, ending)| ending);
        let read = Self::read(&format!("document.{ending}"), bytes, labels)?;
        let title = source.rsplit('/').next().unwrap_or(source).to_owned();
        Ok(Self {
            source: source.to_owned(),
            title,
            media_type: if known.is_some() {
                read.media_type
            } else {
                kind
            },
            ..read
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::Structure;

    #[test]
    fn a_media_type_says_more_than_a_name() {
        let read =
            |source, kind, bytes| TextDocument::read_as(source, kind, bytes, BTreeMap::new());
        for (source, kind, media_type, structure) in [
            (
                "a/notes",
                "Text/Markdown; charset=utf-8",
                "text/markdown",
                Structure::Markdown,
            ),
            (
                "page.html",
                "text/markdown",
                "text/markdown",
                Structure::Markdown,
            ),
            ("a.md", "text/plain", "text/markdown", Structure::Markdown),
            ("a.md", "", "text/markdown", Structure::Markdown),
            (
                "a.md",
                "application/json",
                "application/json",
                Structure::Plain,
            ),
        ] {
            let document = read(source, kind, b"# One").unwrap();
            assert_eq!(
                (&*document.source, &*document.media_type),
                (source, media_type)
            );
            assert_eq!(document.structure, structure, "{source} {kind}");
        }
        assert_eq!(read("a/b.c", "text/markdown", b"x").unwrap().title, "b.c");
        for kind in ["application/pdf", "text/html"] {
            assert!(matches!(
                read("a.txt", kind, b"x"),
                Err(NoText::NeedsExtractor { .. })
            ));
        }
        assert_eq!(
            read("a.txt", "image/png", b"\x89PNG\0").unwrap_err(),
            NoText::Binary
        );
    }
}
