//! The sentences of a markdown document. Code, tables' rules, comments and headings are no sentences; each item of a list
//! and each cell of a table is read by itself.

use std::mem;

/// A sentence, and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Line of its first word, from 1.
    pub first_line: usize,
    /// Line of its last word.
    pub last_line: usize,
    /// Its words with one space between them, without the addresses of links.
    pub text: String,
    /// Number of its words; inline code counts as one.
    pub words: usize,
}

/// Ends of words with a full stop that ends no sentence.
const ABBREVIATIONS: [&str; 6] = ["e.g.", "i.e.", "etc.", "vs.", "cf.", "no."];

pub fn sentences(text: &str) -> Vec<Sentence> {
    let mut reader = MarkdownReader::default();
    for (index, line) in text.lines().enumerate() {
        reader.add_line(index + 1, line);
    }
    reader.end_paragraph();
    reader.sentences
}

#[derive(Default)]
struct MarkdownReader {
    /// The fence that ends the code block in which the reader is.
    fence: Option<&'static str>,
    in_comment: bool,
    /// Line number and text of the lines of the paragraph so far.
    paragraph: Vec<(usize, String)>,
    sentences: Vec<Sentence>,
}

impl MarkdownReader {
    fn add_line(&mut self, number: usize, line: &str) {
        let line = line.trim();
        if let Some(fence) = self.fence {
            if line.starts_with(fence) {
                self.fence = None;
            }
            return;
        }
        if self.in_comment || line.starts_with("<!--") {
            self.end_paragraph();
            self.in_comment = !line.contains("-->");
            return;
        }
        let fence = ["```", "~~~"]
            .into_iter()
            .find(|mark| line.starts_with(mark));
        if fence.is_some() {
            self.end_paragraph();
            self.fence = fence;
        } else if line.is_empty() || line.starts_with('#') {
            self.end_paragraph();
        } else if line.starts_with('|') {
            self.end_paragraph();
            for cell in cells(line) {
                self.paragraph.push((number, cell));
                self.end_paragraph();
            }
        } else {
            let line = line.trim_start_matches(['>', ' ']);
            let item = list_item(line);
            if item.is_some() {
                self.end_paragraph();
            }
            let text = item.unwrap_or(line).to_owned();
            self.paragraph.push((number, text));
        }
    }

    fn end_paragraph(&mut self) {
        let lines = mem::take(&mut self.paragraph);
        let mut sentence: Vec<MarkdownWord> = Vec::new();
        for word in words(&lines) {
            let ends = ends_sentence(&word.text);
            sentence.push(word);
            if ends {
                self.sentences.extend(joined(&mem::take(&mut sentence)));
            }
        }
        self.sentences.extend(joined(&sentence));
    }
}

/// The text behind the mark of a list's item.
fn list_item(line: &str) -> Option<&str> {
    let bullet = ["- ", "* ", "+ "];
    if let Some(text) = bullet.iter().find_map(|mark| line.strip_prefix(mark)) {
        return Some(text);
    }
    let text = line.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let is_numbered = text.len() < line.len();
    is_numbered.then(|| text.strip_prefix(". "))?
}

/// The cells of a table's row, divided at each `|` that is neither escaped nor inside of code.
fn cells(row: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let (mut in_code, mut is_escaped) = (false, false);
    for character in row.chars() {
        in_code ^= character == '`' && !is_escaped;
        match cells.last_mut() {
            Some(_) if character == '|' && !in_code && !is_escaped => cells.push(String::new()),
            Some(cell) => cell.push(character),
            None => {}
        }
        is_escaped = character == '\\' && !is_escaped;
    }
    cells
}

struct MarkdownWord {
    text: String,
    line: usize,
}

/// Stands for a space inside of code, at which no word ends.
const CODE_SPACE: char = '\u{a0}';

/// The words of a paragraph: inline code is one word, and the address of a link is left out.
fn words(lines: &[(usize, String)]) -> Vec<MarkdownWord> {
    let mut words = Vec::new();
    let mut text = String::new();
    let (mut in_code, mut address_depth) = (false, 0_usize);
    let mut end_word = |text: &mut String, line| {
        if !text.is_empty() {
            let text = mem::take(text);
            words.push(MarkdownWord { text, line });
        }
    };
    for (number, line) in lines {
        let mut before = ' ';
        for character in line.chars() {
            if address_depth > 0 {
                match character {
                    '(' => address_depth += 1,
                    ')' => address_depth -= 1,
                    _ => {}
                }
            } else if character == '(' && before == ']' && !in_code {
                address_depth = 1;
            } else if character.is_whitespace() && !in_code {
                end_word(&mut text, *number);
            } else {
                in_code ^= character == '`';
                let is_space = character.is_whitespace();
                text.push(if is_space { CODE_SPACE } else { character });
            }
            before = character;
        }
        if in_code {
            text.push(CODE_SPACE);
        } else {
            end_word(&mut text, *number);
        }
    }
    if let Some((number, _)) = lines.last() {
        end_word(&mut text, *number);
    }
    words
}

fn ends_sentence(word: &str) -> bool {
    let word = word.trim_end_matches([')', ']', '"', '*', '_', '”', '’']);
    let is_abbreviated = || {
        let word = word.trim_start_matches(['(', '[', '"']);
        let known = ABBREVIATIONS.iter();
        known
            .into_iter()
            .any(|known| word.eq_ignore_ascii_case(known))
    };
    word.ends_with(['.', '!', '?']) && !is_abbreviated()
}

fn joined(words: &[MarkdownWord]) -> Option<Sentence> {
    let (first, last) = (words.first()?, words.last()?);
    let texts: Vec<_> = words.iter().map(|word| word.text.as_str()).collect();
    let counts = |text: &&&str| text.contains('`') || text.chars().any(char::is_alphanumeric);
    Some(Sentence {
        first_line: first.line,
        last_line: last.line,
        words: texts.iter().filter(counts).count(),
        text: texts.join(" ").replace(CODE_SPACE, " "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(usize, usize, String)> {
        let sentences = sentences(text).into_iter();
        sentences
            .map(|each| (each.first_line, each.words, each.text))
            .collect()
    }

    fn row(line: usize, words: usize, text: &str) -> (usize, usize, String) {
        (line, words, text.to_owned())
    }

    #[test]
    fn sentences_end_at_full_stops_and_paragraphs() {
        let text = "# A heading\n\nOne two, e.g. 1.5\nthree. (Four?) Five:\n\n- six\n- seven. Eight\n2. nine\n";
        assert_eq!(
            read(text),
            [
                row(3, 5, "One two, e.g. 1.5 three."),
                row(4, 1, "(Four?)"),
                row(4, 1, "Five:"),
                row(6, 1, "six"),
                row(7, 1, "seven."),
                row(7, 1, "Eight"),
                row(8, 1, "nine"),
            ]
        );
        let one = sentences("One\ntwo\nthree.\n");
        assert_eq!((one[0].first_line, one[0].last_line), (1, 3));
    }

    #[test]
    fn code_and_comments_are_no_sentences() {
        let text =
            "```sh (run)\nnot this\n```\n<!-- nor\nthat -->\n~~~\nnor ``` this\n~~~\nBut this.\n";
        assert_eq!(read(text), [row(9, 2, "But this.")]);
    }

    #[test]
    fn inline_code_is_one_word_and_addresses_are_none() {
        let text = "Run `cargo xtask. test` and [see the\nmap](docs/a (b).md \"title\"): done.\n";
        assert_eq!(
            read(text),
            [row(
                1,
                7,
                "Run `cargo xtask. test` and [see the map]: done."
            )]
        );
    }

    #[test]
    fn cells_of_a_table_are_read_each() {
        let text = "| a | b |\n|---|---|\n| `x|y` one | two \\| three |\n";
        let texts: Vec<_> = read(text).into_iter().filter(|each| each.1 > 0).collect();
        assert_eq!(
            texts,
            [
                row(1, 1, "a"),
                row(1, 1, "b"),
                row(3, 2, "`x|y` one"),
                row(3, 2, "two \\| three"),
            ]
        );
    }
}
