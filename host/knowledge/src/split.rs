//! Cuts the text of a document into passages, at the ends of sections, paragraphs and sentences.

use pulldown_cmark::{Event, HeadingLevel, Parser, Tag, TagEnd};
use std::ops::Range;
use text_splitter::{Characters, ChunkConfig, ChunkConfigError, MarkdownSplitter, TextSplitter};

/// Changes when the same text is cut otherwise: what is stored is then made anew.
pub const VERSION: u32 = 1;

/// How a text is structured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Structure {
    /// Paragraphs and sentences.
    Plain,
    /// Headings, lists and code, too.
    Markdown,
}

/// The size of passages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassageSize {
    /// Characters of a passage: about four for a token.
    pub characters: usize,
    /// Characters that a passage repeats of the one before it.
    pub overlap: usize,
}

impl Default for PassageSize {
    fn default() -> Self {
        Self {
            characters: 1_200,
            overlap: 150,
        }
    }
}

/// A passage of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextPassage<'a> {
    /// Headings that it stands under, outermost first, each on a line; those of Markdown only.
    pub heading: String,
    pub text: &'a str,
    /// Where it is, in bytes.
    pub range: Range<usize>,
}

/// The longest headings of a passage together, in bytes: a heading can be as long as the text.
const MAX_HEADING_BYTES: usize = 400;

/// Passages of a window. The splitter measures what is left of a section for each passage that it cuts from it, so that
/// a text of one word would cost the square of its length; a window is what it is given at a time.
const WINDOW_PASSAGES: usize = 8;

/// Cuts `text` into passages of at most `size`, lazily.
///
/// # Errors
/// The overlap is not smaller than the passage.
pub fn passages(
    text: &str,
    structure: Structure,
    size: PassageSize,
) -> Result<impl Iterator<Item = TextPassage<'_>> + Send, ChunkConfigError> {
    let config = ChunkConfig::new(size.characters).with_overlap(size.overlap)?;
    let splitter = match structure {
        Structure::Plain => Splitter::Plain(TextSplitter::new(config)),
        Structure::Markdown => Splitter::Markdown(MarkdownSplitter::new(config)),
    };
    let mut outline = HeadingPath::default();
    let windows = windows(text, size.characters.saturating_mul(WINDOW_PASSAGES));
    Ok(windows.flat_map(move |(start, window)| {
        let (pieces, headings) = splitter.cut(window);
        let mut headings = headings.into_iter().peekable();
        let mut found = Vec::with_capacity(pieces.len());
        for (at, piece) in pieces {
            // The headings before the passage, and that which it begins with.
            while let Some(heading) = headings.next_if(|heading| heading.at <= at) {
                outline.enter(heading);
            }
            let at = start + at;
            found.push(TextPassage {
                heading: outline.to_string(),
                text: piece,
                range: at..at + piece.len(),
            });
        }
        // Those within the last passage: what follows in the next window stands under them.
        headings.for_each(|heading| outline.enter(heading));
        found
    }))
}

enum Splitter {
    Plain(TextSplitter<Characters>),
    Markdown(MarkdownSplitter<Characters>),
}

impl Splitter {
    /// The pieces of a window, with where they begin in it, and its headings.
    fn cut<'a>(&self, window: &'a str) -> (Vec<(usize, &'a str)>, Vec<Heading>) {
        match self {
            Self::Plain(splitter) => (splitter.chunk_indices(window).collect(), Vec::new()),
            Self::Markdown(splitter) => {
                (splitter.chunk_indices(window).collect(), headings(window))
            }
        }
    }
}

/// Parts of a text of at most `most` bytes, with where they begin.
fn windows(text: &str, most: usize) -> impl Iterator<Item = (usize, &str)> + Send {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = &text[start..];
        let window = &rest[..window_end(rest, most)];
        let at = start;
        start += window.len();
        (!window.is_empty()).then_some((at, window))
    })
}

/// Where a window ends: before a heading, or else where a paragraph, a line or a word ends in its second half.
fn window_end(text: &str, most: usize) -> usize {
    if text.len() <= most {
        return text.len();
    }
    let end = text.floor_char_boundary(most);
    let half = text.floor_char_boundary(end / 2);
    let borders = ["\n#", "\n\n", "\n", " "];
    let border = borders
        .iter()
        .find_map(|border| text[half..end].rfind(border));
    border.map_or(end, |at| half + at + 1)
}

struct Heading {
    at: usize,
    level: HeadingLevel,
    title: String,
}

/// The headings that a place stands under.
#[derive(Default)]
struct HeadingPath(Vec<Heading>);

impl HeadingPath {
    fn enter(&mut self, heading: Heading) {
        self.0.retain(|above| above.level < heading.level);
        self.0.push(heading);
    }
}

impl std::fmt::Display for HeadingPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, heading) in self.0.iter().enumerate() {
            let line = if number == 0 { "" } else { "\n" };
            write!(f, "{line}{}", heading.title)?;
        }
        Ok(())
    }
}

fn headings(text: &str) -> Vec<Heading> {
    let mut headings: Vec<Heading> = Vec::new();
    let mut is_inside = false;
    for (event, range) in Parser::new(text).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                is_inside = true;
                headings.push(Heading {
                    at: range.start,
                    level,
                    title: String::new(),
                });
            }
            Event::End(TagEnd::Heading(_)) => is_inside = false,
            Event::Text(part) | Event::Code(part) if is_inside => {
                if let Some(heading) = headings.last_mut() {
                    // Six levels at most, so that all of them stay within the bound.
                    let room = (MAX_HEADING_BYTES / 6).saturating_sub(heading.title.len());
                    heading
                        .title
                        .push_str(&part[..part.floor_char_boundary(room)]);
                }
            }
            _ => {}
        }
    }
    headings
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: PassageSize = PassageSize {
        characters: 60,
        overlap: 20,
    };

    fn cut(text: &str, structure: Structure) -> Vec<TextPassage<'_>> {
        passages(text, structure, SMALL).unwrap().collect()
    }

    #[test]
    fn passages_stand_under_their_headings() {
        let text = "# Fees\n\nAll fees are in euro.\n\n## Cards\n\nA new `card` costs 5 euro, and a lost one costs 20.\n\n## Accounts\n\nAn account is free for whoever is younger than 26.\n\n# Limits\n\nNone.\n";
        let found = cut(text, Structure::Markdown);
        let headings: Vec<(&str, &str)> = found
            .iter()
            .map(|it| (it.heading.as_str(), it.text.lines().last().unwrap()))
            .collect();
        assert!(
            headings.contains(&(
                "Fees\nCards",
                "A new `card` costs 5 euro, and a lost one costs 20."
            )),
            "{headings:?}"
        );
        assert!(headings.contains(&("Limits", "None.")), "{headings:?}");
        for passage in &found {
            assert_eq!(&text[passage.range.clone()], passage.text);
        }
    }

    #[test]
    fn a_long_text_is_cut_at_sentences_and_overlaps() {
        let text = "One stands here. Another follows it. A third one is it. And a fourth. Five. Six is the last of them all.";
        let found = cut(text, Structure::Plain);
        assert!(found.len() > 1);
        assert!(found[0].text.ends_with('.'), "{found:?}");
        assert!(found[1].range.start < found[0].range.end, "{found:?}");
    }

    #[test]
    fn a_long_text_is_read_in_windows() {
        // Windows of 480 bytes.
        let section = |n| format!("# Part {n}\n\n{}\n\n", "A word and another. ".repeat(15));
        let text: String = (0..9).map(section).collect();
        let found = cut(&text, Structure::Markdown);
        for passage in &found {
            let part = text[..passage.range.end].matches("# Part").count() - 1;
            assert_eq!(passage.heading, format!("Part {part}"), "{passage:?}");
        }
        for (text, ends) in [
            ("one two", vec![7]),
            ("aaaa aaaa aaaa", vec![10, 14]),
            ("aaaaaa\n\naa aa", vec![7, 13]),
            ("aaaaaaa\n# b\ncc", vec![8, 14]),
            ("aaaaaaaaaaaaaaa", vec![12, 15]),
            ("ääääääää", vec![12, 16]),
        ] {
            let found = windows(text, 12).map(|(at, window)| at + window.len());
            assert_eq!(found.collect::<Vec<_>>(), ends, "{text:?}");
        }
    }

    #[test]
    fn no_overlap_is_as_large_as_its_passage() {
        let size = PassageSize {
            characters: 10,
            overlap: 10,
        };
        assert!(passages("text", Structure::Plain, size).is_err());
    }

    proptest::proptest! {
        #[test]
        fn every_letter_is_in_a_passage(text in "[#\\n a-zä東.`*-]{0,400}", is_markdown: bool) {
            let structure = if is_markdown { Structure::Markdown } else { Structure::Plain };
            let mut covered = vec![false; text.len()];
            for passage in cut(&text, structure) {
                proptest::prop_assert_eq!(&text[passage.range.clone()], passage.text);
                proptest::prop_assert!(passage.text.chars().count() <= SMALL.characters);
                proptest::prop_assert!(passage.heading.len() <= MAX_HEADING_BYTES + 6);
                covered[passage.range].fill(true);
            }
            for (at, letter) in text.char_indices() {
                if letter.is_alphanumeric() {
                    proptest::prop_assert!(covered[at], "{} of {:?}", at, text);
                }
            }
        }
    }
}
