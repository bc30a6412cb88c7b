//! Text from a model or a file, made fit to stand in a line of ours.

use std::fmt::Write as _;

/// At most `max` characters of `text` on one line: what would control, reorder or hide is shown as
/// its escape.
pub(super) fn printable(text: &str, max: usize) -> String {
    let mut line = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == max {
            line.push('…');
            break;
        }
        if c.is_control() || is_invisible(c) {
            let _ = write!(line, "{}", c.escape_unicode());
        } else {
            line.push(c);
        }
    }
    line
}

/// Zero width, direction and line marks.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}'
        | '\u{E0000}'..='\u{E007F}')
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
