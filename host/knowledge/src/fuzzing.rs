//! What fuzz targets and tests of cost read documents with.

use crate::split::{PassageSize, Structure, passages};
use crate::words::{Language, WordSplitter};

/// Cuts a text as a plain one and as Markdown, and divides its passages into words. Returns the number of passages.
pub fn found_by(text: &str) -> usize {
    let splitter = WordSplitter::new(Language::default());
    let mut count = 0;
    for structure in [Structure::Plain, Structure::Markdown] {
        let Ok(passages) = passages(text, structure, PassageSize::default()) else {
            continue;
        };
        for passage in passages {
            count += usize::from(!splitter.words(passage.text).is_empty());
        }
    }
    count
}
