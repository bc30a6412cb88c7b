//! Cuts the text of a document into passages, at the ends of sections, paragraphs and sentences.

use pulldown_cmark::{Event, HeadingLevel, Parser, Tag, TagEnd};
use std::ops::Range;
use text_splitter::{Characters, ChunkConfig, ChunkConfigError, MarkdownSplitter, TextSplitter};

/// Changes when the same text is cut otherwise: what is stored is then made anew.
pub const VERSION: u32 = 3;

/// Characters of white space between two windows, or fewer within one: the splitter takes the square of a long run, and
/// nothing is found in it.
const LONG_BLANK: usize = 256;

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
    /// Whether the text begins with the last of them.
    pub begins_with_heading: bool,
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
    let windows = windows(
        text,
        structure,
        size.characters.saturating_mul(WINDOW_PASSAGES),
    );
    Ok(windows.flat_map(move |window| {
        let (pieces, headings) = splitter.cut(&window);
        let mut headings = headings.into_iter().peekable();
        let mut found = Vec::with_capacity(pieces.len());
        for (at, piece) in pieces {
            let at = window.start + at;
            // The headings before the passage, and that which it begins with.
            while let Some(heading) = headings.next_if(|heading| heading.at <= at) {
                outline.enter(heading);
            }
            found.push(TextPassage {
                heading: outline.to_string(),
                begins_with_heading: outline.0.last().is_some_and(|last| last.at == at),
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
    fn cut<'a>(&self, window: &TextWindow<'a>) -> (Vec<(usize, &'a str)>, Vec<Heading>) {
        match self {
            Self::Plain(splitter) => (splitter.chunk_indices(window.text).collect(), Vec::new()),
            Self::Markdown(splitter) => (
                splitter.chunk_indices(window.text).collect(),
                headings(window),
            ),
        }
    }
}

/// A part of a text that is cut at a time.
struct TextWindow<'a> {
    /// Where it begins.
    start: usize,
    text: &'a str,
    /// Bytes at its beginning that have no headings: front matter, and code that began before it.
    without_headings: usize,
}

/// Parts of a text of at most `most` bytes.
fn windows(
    text: &str,
    structure: Structure,
    most: usize,
) -> impl Iterator<Item = TextWindow<'_>> + Send {
    let (mut start, mut open) = (0, None);
    std::iter::from_fn(move || {
        // Within its first characters, so that the rest of the text is not looked at for each window.
        if first_chars(&text[start..]).chars().all(char::is_whitespace) {
            start = text.len() - text[start..].trim_start().len();
        }
        let rest = &text[start..];
        let (mut without_headings, mut code) = (0, Vec::new());
        if structure == Structure::Markdown {
            let head = &rest[..rest.floor_char_boundary(most)];
            code = fences(head, open).0;
            if start == 0 {
                without_headings = front_matter(head);
            } else if open.is_some() {
                without_headings = code.first().map_or(0, |code| code.end);
            }
        }
        let window = &rest[..window_end(rest, most, &code)];
        let window = &window[..long_blank(window).unwrap_or(window.len())];
        if structure == Structure::Markdown {
            open = fences(window, open).1;
        }
        let at = start;
        start += window.len();
        (!window.is_empty()).then_some(TextWindow {
            start: at,
            text: window,
            without_headings: without_headings.min(window.len()),
        })
    })
}

/// As many characters as a long run of white space has.
fn first_chars(text: &str) -> &str {
    let end = text.char_indices().nth(LONG_BLANK);
    &text[..end.map_or(text.len(), |(at, _)| at)]
}

/// Where the first run of so much white space begins that it is in no window.
fn long_blank(text: &str) -> Option<usize> {
    let (mut start, mut length) = (0, 0);
    for (at, letter) in text.char_indices() {
        if !letter.is_whitespace() {
            length = 0;
            continue;
        }
        if length == 0 {
            start = at;
        }
        length += 1;
        if length == LONG_BLANK {
            return Some(start);
        }
    }
    None
}

/// Where a window ends: before a heading, or else where a paragraph, a line or a word ends in its second half. What
/// looks like a heading in `code` is none.
fn window_end(text: &str, most: usize, code: &[Range<usize>]) -> usize {
    if text.len() <= most {
        return text.len();
    }
    let end = text.floor_char_boundary(most);
    let half = text.floor_char_boundary(end / 2);
    let tail = &text[half..end];
    let is_code = |at: usize| {
        let next = code.partition_point(|code| code.end <= at);
        code.get(next).is_some_and(|code| code.start <= at)
    };
    let heading = tail
        .rmatch_indices("\n#")
        .find(|(at, _)| !is_code(half + at + 1));
    let border = heading.map(|(at, _)| at).or_else(|| {
        let borders = ["\n\n", "\n", " "];
        borders.iter().find_map(|border| tail.rfind(border))
    });
    border.map_or(end, |at| half + at + 1)
}

/// What stands before and after code.
#[derive(Clone, Copy)]
struct Fence {
    letter: char,
    length: usize,
}

impl Fence {
    /// The fence that a line begins with, and what follows it.
    fn of(line: &str) -> Option<(Self, &str)> {
        let letter = line.chars().next().filter(|it| matches!(it, '`' | '~'))?;
        let rest = line.trim_start_matches(letter);
        let length = line.len() - rest.len();
        (length >= 3).then_some((Self { letter, length }, rest))
    }

    /// The fence of code that begins with a line, also in a quotation or in a list.
    fn opened(line: &str) -> Option<Self> {
        let is_mark = |c: char| c.is_ascii_digit() || " \t>-*+.)".contains(c);
        let (fence, rest) = Self::of(line.trim_start_matches(is_mark))?;
        // What ends in the line where it begins is no block.
        (fence.letter == '~' || !rest.contains('`')).then_some(fence)
    }

    fn is_closed_by(self, line: &str) -> bool {
        let line = line.trim_start_matches([' ', '\t', '>']);
        Self::of(line).is_some_and(|(it, rest)| {
            it.letter == self.letter && it.length >= self.length && rest.trim().is_empty()
        })
    }
}

/// Where code is in a text that may begin within some, and the fence that is open at its end.
fn fences(text: &str, mut open: Option<Fence>) -> (Vec<Range<usize>>, Option<Fence>) {
    let (mut code, mut start, mut at) = (Vec::new(), 0, 0);
    for line in text.split_inclusive('\n') {
        let line_start = at;
        at += line.len();
        match open {
            Some(fence) if fence.is_closed_by(line) => {
                code.push(start..at);
                open = None;
            }
            Some(_) => {}
            None => {
                open = Fence::opened(line);
                start = line_start;
            }
        }
    }
    if open.is_some() {
        code.push(start..at);
    }
    (code, open)
}

/// The length of what stands before a document for programs, between lines of `---` or `+++`; 0 for none.
fn front_matter(text: &str) -> usize {
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    let mark = first.trim_end();
    if !matches!(mark, "---" | "+++") {
        return 0;
    }
    let mut at = first.len();
    for (number, line) in lines.enumerate() {
        at += line.len();
        match line.trim_end() {
            // A rule, and no front matter.
            "" if number == 0 => return 0,
            "..." if mark == "---" => return at,
            end if end == mark => return at,
            _ => {}
        }
    }
    0
}

struct Heading {
    /// Where it is in the document's text.
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

fn headings(window: &TextWindow<'_>) -> Vec<Heading> {
    let mut headings: Vec<Heading> = Vec::new();
    let mut is_inside = false;
    let text = &window.text[window.without_headings..];
    let start = window.start + window.without_headings;
    for (event, range) in Parser::new(text).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                is_inside = true;
                headings.push(Heading {
                    at: start + range.start,
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

    #[test]
    fn long_white_space_is_in_no_passage() {
        for blank in [
            " ".repeat(3_000),
            "\r\n".repeat(900),
            "\u{3000}".repeat(700),
        ] {
            let text = format!("{blank}# First\n\none{blank}two\n\n## Second{blank}");
            for structure in [Structure::Plain, Structure::Markdown] {
                let found = cut(&text, structure);
                let texts: Vec<&str> = found.iter().map(|it| it.text.trim()).collect();
                assert_eq!(
                    texts,
                    ["# First\n\none", "two\n\n## Second"],
                    "{structure:?}"
                );
                for passage in &found {
                    assert_eq!(&text[passage.range.clone()], passage.text);
                }
            }
        }
        assert!(cut(&"\n".repeat(100_000), Structure::Markdown).is_empty());
    }

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
            let found = windows(text, Structure::Plain, 12);
            let found = found.map(|window| window.start + window.text.len());
            assert_eq!(found.collect::<Vec<_>>(), ends, "{text:?}");
        }
    }

    #[test]
    fn front_matter_has_no_headings() {
        let text = "A card costs five euro. ".repeat(5);
        let real = format!("# Fees\n\n{text}\n");
        for front in [
            "---\ntitle: Draft\n---\n",
            "---\r\n# a comment\r\ntitle: Draft\r\n---\r\n",
            "---\ntitle: Draft\n# a comment\n...\n",
            "+++\n# a comment\ntitle = 'Draft'\n+++\n",
        ] {
            let text = format!("{front}\n{real}");
            let found = cut(&text, Structure::Markdown);
            let headings: Vec<&str> = found.iter().map(|it| it.heading.as_str()).collect();
            assert_eq!(headings.last(), Some(&"Fees"), "{front:?} {headings:?}");
            let others = headings.iter().all(|it| it.is_empty() || *it == "Fees");
            assert!(others, "{front:?} {headings:?}");
        }
        // A rule is none, and neither is what does not end.
        for text in [
            format!("---\n\n{real}\n---\nText.\n"),
            format!("---\na\n\n{real}"),
        ] {
            let found = cut(&text, Structure::Markdown);
            assert_eq!(found.last().unwrap().heading, "Fees", "{text:?}");
        }
    }

    #[test]
    fn comments_in_code_are_no_headings_also_where_a_window_ends() {
        // Windows of 480 bytes; code of four of them.
        for fence in ["```", "~~~~", "> ```", "- ```"] {
            let (inside, end) = match fence {
                "> ```" => ("> ", "> ```"),
                "- ```" => ("  ", "  ```"),
                other => ("", other),
            };
            let line = format!("{inside}# a comment\n{inside}command --option value\n");
            let code = line.repeat(60);
            let limits = "None of them. ".repeat(10);
            let text = format!("# Steps\n\n{fence}\n{code}{end}\n\n# Limits\n\n{limits}\n");
            let limits = text.find("# Limits").unwrap();
            let found = cut(&text, Structure::Markdown);
            for passage in &found {
                let is_later = passage.range.start >= limits;
                let expected = if is_later { "Limits" } else { "Steps" };
                assert_eq!(passage.heading, expected, "{fence} {passage:?}");
            }
            assert_eq!(found.last().unwrap().heading, "Limits", "{fence}");
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
