//! Rows of a terminal. A terminal continues a long line at the left edge, where lines of the host begin. So lines that
//! hold text from outside are broken here first, and every row that continues one begins with a mark.

use rustix::termios::tcgetwinsize;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::LazyLock;
use unicode_width::UnicodeWidthChar as _;

/// Begins the rows that continue a line of the host, and those of text between its lines.
const CONTINUED: &str = "  │ ";

/// Cells of a terminal that does not tell how many it has.
const USUAL_CELLS: usize = 80;

/// Least cells of a row behind its mark, on terminals that are narrower too.
const MIN_TEXT_CELLS: usize = 8;

/// Most characters in a row that take no cell, as the marks of a letter do. More of them are counted as cells: a
/// terminal that does not know them shows them in cells.
const MAX_ZERO_WIDTH: usize = 4;

/// Cells in a row of the terminal behind `stream`. Absent if there is none: lines that no terminal shows are not broken.
pub fn width(stream: &(impl AsFd + IsTerminal)) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let told = tcgetwinsize(stream).map_or(0, |size| usize::from(size.ws_col));
    Some(if told == 0 { USUAL_CELLS } else { told })
}

/// Lines of the host for a terminal of `width` cells. They may hold colours of [`style`](super::style), and nothing
/// else that a terminal obeys.
pub fn broken(lines: &str, width: Option<usize>) -> String {
    let row = |line: &str| {
        let mut rows = Rows {
            is_open: true,
            ..Rows::default()
        };
        rows.push(line, width)
    };
    let lines: Vec<String> = lines.split('\n').map(row).collect();
    lines.join("\n")
}

/// Text that arrives in pieces, with a mark before every row.
#[derive(Debug)]
pub struct Rows {
    mark: &'static str,
    /// Whether the last row was not ended by a line break.
    is_open: bool,
    /// Cells of the last row that are taken, the mark's included.
    taken: usize,
    zero_width: usize,
}

impl Default for Rows {
    fn default() -> Self {
        Self::new(CONTINUED)
    }
}

impl Rows {
    pub fn new(mark: &'static str) -> Self {
        Self {
            mark,
            is_open: false,
            taken: 0,
            zero_width: 0,
        }
    }

    /// The piece as it is to be printed.
    pub fn push(&mut self, piece: &str, width: Option<usize>) -> String {
        let mark = cells(self.mark);
        // The last cell stays free: some terminals break a line behind it, and some do not.
        let most = width.map_or(usize::MAX, |width| (width - 1).max(mark + MIN_TEXT_CELLS));
        let mut out = String::with_capacity(piece.len());
        for line in piece.split_inclusive('\n') {
            for word in line.split_inclusive(' ') {
                let length = cells(word.trim_end());
                // A word that fits into a row stands in one row, if all of it is in this piece.
                if self.is_open && self.taken + length > most && mark + length <= most {
                    self.next_row(&mut out);
                }
                self.word(word, most, &mut out);
            }
        }
        out
    }

    /// Ends the last row. Returns `false` if it is ended already.
    pub fn end(&mut self) -> bool {
        self.taken = 0;
        std::mem::take(&mut self.is_open)
    }

    fn word(&mut self, word: &str, most: usize, out: &mut String) {
        let mut is_colour = false;
        for c in word.chars() {
            if c == '\n' {
                self.begin(out);
                out.push(c);
                self.end();
                continue;
            }
            self.begin(out);
            if is_colour || c == '\x1b' {
                is_colour = c != 'm';
                out.push(c);
                continue;
            }
            let mut takes = taken_by(c);
            if takes == 0 {
                self.zero_width += 1;
                takes = usize::from(self.zero_width > MAX_ZERO_WIDTH);
            }
            if self.taken.saturating_add(takes) > most {
                self.next_row(out);
                // The end of a row stands for it.
                if c == ' ' {
                    continue;
                }
            }
            self.taken += takes;
            match c {
                '\t' if most < usize::MAX => out.push_str(TAB),
                c => out.push(c),
            }
        }
    }

    fn begin(&mut self, out: &mut String) {
        if !self.is_open {
            out.push_str(self.mark);
            self.is_open = true;
            self.taken = cells(self.mark);
            self.zero_width = 0;
        }
    }

    fn next_row(&mut self, out: &mut String) {
        out.push('\n');
        self.end();
        self.begin(out);
    }
}

/// A tab as it is shown at a terminal, where its width would depend on its place.
const TAB: &str = "    ";

/// Whether the terminal is one of those whose Greek, Cyrillic, box drawing and the like take two cells: those of East
/// Asian locales.
static HAS_WIDE_LETTERS: LazyLock<bool> = LazyLock::new(|| {
    let mut locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
    let locale = locale.find_map(|name| std::env::var(name).ok().filter(|it| !it.is_empty()));
    locale.is_some_and(|locale| is_east_asian(&locale))
});

fn is_east_asian(locale: &str) -> bool {
    ["zh", "ja", "ko"]
        .iter()
        .any(|language| locale.starts_with(language))
}

/// The most cells that a character takes on usual terminals: a row that ends early is no harm.
fn taken_by(c: char) -> usize {
    taken_where(c, *HAS_WIDE_LETTERS)
}

fn taken_where(c: char, has_wide_letters: bool) -> usize {
    match c {
        '\t' => TAB.len(),
        // It makes the character before it wide, on some terminals.
        '\u{FE0F}' => 1,
        // Pictures, those of later versions of Unicode too, and the letters that flags are made of: a terminal that
        // does not know the flag shows two wide letters.
        '\u{1F000}'..='\u{1FAFF}' => 2,
        // Unicode advises against wide letters, and terminals with old tables have them.
        c if has_wide_letters && !c.is_ascii() && c.width() == Some(1) => 2,
        c => c.width().unwrap_or(0),
    }
}

/// The begin of a text without colours, of at most `most` cells.
pub fn beginning(text: &str, most: usize) -> &str {
    let mut taken: usize = 0;
    let too_much = |c: char| {
        // One that takes none may be shown as one that takes a cell.
        taken = taken.saturating_add(taken_by(c).max(1));
        taken > most
    };
    let end = text.find(too_much).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// Cells that a line takes. Colours take none.
pub fn cells(text: &str) -> usize {
    let mut is_colour = false;
    let taken = |c: char| {
        let is_part = is_colour || c == '\x1b';
        is_colour = is_part && c != 'm';
        if is_part { 0 } else { taken_by(c) }
    };
    text.chars().map(taken).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORGED: &str = "approve? files.read {}";

    /// `text` in pieces of `size` characters, as rows.
    fn rows(text: &str, size: usize, width: usize) -> Vec<String> {
        let mut rows = Rows::new("│ ");
        let chars: Vec<char> = text.chars().collect();
        let out: String = chars
            .chunks(size)
            .map(|piece| rows.push(&piece.iter().collect::<String>(), Some(width)))
            .collect();
        out.lines().map(str::to_owned).collect()
    }

    #[test]
    fn each_row_of_a_terminal_begins_with_the_mark() {
        let texts = [
            " ".repeat(238) + FORGED,
            "x".repeat(238) + FORGED,
            "日".repeat(119) + FORGED,
            format!("one\n\n{}{FORGED}", "\t".repeat(60)),
            "e\u{301}".repeat(300) + FORGED,
            "\u{301}".repeat(300) + FORGED,
            "❤\u{fe0f}".repeat(100) + FORGED,
            "🇩🇪".repeat(100) + FORGED,
        ];
        for text in &texts {
            for width in [1, 40, 48, 60, 80, 120, 240] {
                for size in [1, 7, usize::MAX] {
                    let rows = rows(text, size, width);
                    let most = width.max("│ ".chars().count() + MIN_TEXT_CELLS + 1);
                    for row in &rows {
                        assert!(row.starts_with("│ "), "{width} {row:?}");
                        assert!(cells(row) < most, "{width} {row:?}");
                    }
                }
            }
        }
    }

    /// Texts of strangers of any length and content, whole and in pieces.
    #[test]
    fn rows_of_a_long_text_take_its_own_length_only() {
        const BYTES: usize = 1 << 17;
        for piece in [
            "x", " ", "\t", "\n", "a b ", "日", "e\u{301}", "\u{301}", "🇩🇪",
        ] {
            let text = piece.repeat(BYTES / piece.len());
            let begun = std::time::Instant::now();
            for width in [None, Some(1), Some(80)] {
                let bytes = broken(&text, width).len();
                assert!(bytes <= text.len() * 12, "{piece:?} {width:?}: {bytes}");
            }
            let pieces = rows(&text, 1, 80);
            let bytes: usize = pieces.iter().map(String::len).sum();
            assert!(bytes <= text.len() * 12, "{piece:?}: {bytes}");
            assert!(begun.elapsed().as_secs() < 10, "{piece:?}");
        }
    }

    #[test]
    fn a_character_takes_the_most_cells_that_a_terminal_may_give_it() {
        for (c, usual, east_asian) in [
            ('a', 1, 1),
            ('日', 2, 2),
            ('Ж', 1, 2),
            ('│', 1, 2),
            ('\u{301}', 0, 0),
            // A flag's letter, and a picture that is not defined yet.
            ('🇩', 2, 2),
            ('\u{1FAF9}', 2, 2),
        ] {
            assert_eq!(taken_where(c, false), usual, "{c}");
            assert_eq!(taken_where(c, true), east_asian, "{c}");
        }
        for (locale, expect) in [
            ("ja_JP.UTF-8", true),
            ("zh_TW", true),
            ("de_DE.UTF-8", false),
        ] {
            assert_eq!(is_east_asian(locale), expect, "{locale}");
        }
    }

    #[test]
    fn words_are_kept_and_nothing_is_lost() {
        assert_eq!(
            rows("one two three", usize::MAX, 12),
            ["│ one two ", "│ three"]
        );
        assert_eq!(
            rows("abcdefghijklmnop", usize::MAX, 11),
            ["│ abcdefgh", "│ ijklmnop"]
        );
        for size in [1, usize::MAX] {
            assert_eq!(
                rows("abcdefgh ijklmnop", size, 11),
                ["│ abcdefgh", "│ ijklmnop"]
            );
        }
        let mut rows = Rows::new("│ ");
        let long = "a\tb ".repeat(100) + "\nend";
        assert_eq!(
            rows.push(&long, None),
            format!("│ {}\n│ end", "a\tb ".repeat(100)),
            "a pipe has no rows"
        );
        assert!(rows.end() && !rows.end());
    }

    #[test]
    fn lines_of_the_host_keep_their_beginnings_and_colours() {
        let lines = format!(
            "\x1b[1mfirst\x1b[0m {}{FORGED}\n  ✗ second",
            " ".repeat(100)
        );
        let rows = broken(&lines, Some(40));
        let rows: Vec<&str> = rows.lines().collect();
        assert!(rows[0].starts_with("\x1b[1mfirst\x1b[0m "), "{rows:?}");
        assert_eq!(rows.last(), Some(&"  ✗ second"));
        for row in &rows[1..rows.len() - 1] {
            assert!(row.starts_with(CONTINUED), "{rows:?}");
        }
        assert_eq!(broken(&lines, None), lines);
    }
}
