//! Text from a model or a file, made fit to stand in a line of ours.

use std::fmt::Write as _;
use toolhold_policy::text::is_escaped;

/// At most `max` characters of `text` on one line: what would control, reorder or hide is shown as
/// its escape.
pub(super) fn printable(text: &str, max: usize) -> String {
    let mut line = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == max {
            line.push('…');
            break;
        }
        if is_escaped(c) {
            let _ = write!(line, "{}", c.escape_unicode());
        } else {
            line.push(c);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_the_line() {
        assert_eq!(
            printable("a\nb\u{1b}[2J\u{202E}c\u{2028}", 99),
            "a\\u{a}b\\u{1b}[2J\\u{202e}c\\u{2028}"
        );
        assert_eq!(printable("größer", 3), "grö…");
        assert_eq!(printable("abc", 3), "abc");
    }
}
