//! Characters that stand for digits, spaces and signs of ASCII, as people and keyboards of all scripts write numbers:
//! `４１１１`, `٤١١١`, `4111\u{a0}1111`, `8（916）…`. What looks for values reads them as ASCII, in a text of its own that knows
//! where each place of it is in the text of before.
//!
//! Digits are those of the general category `Nd`, and spaces those of `Zs` (UAX #44). Of the full-width forms of ASCII
//! (FF01 to FF5E, which NFKC folds to ASCII) there are digits, letters and the signs that values are written with.

use std::borrow::Cow;

/// The zeros of all scripts besides ASCII and its full-width forms. Nine other digits follow each.
const ZEROS: [u32; 74] = [
    0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6,
    0xe50, 0xed0, 0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50,
    0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0x104a0,
    0x10d30, 0x10d40, 0x11066, 0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650,
    0x116c0, 0x116d0, 0x116da, 0x11730, 0x118e0, 0x11950, 0x11bf0, 0x11c50, 0x11d50, 0x11da0,
    0x11f50, 0x16130, 0x16a60, 0x16ac0, 0x16b50, 0x16d70, 0x1ccf0, 0x1d7ce, 0x1d7d8, 0x1d7e2,
    0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e4f0, 0x1e5f1, 0x1e950, 0x1fbf0,
];

/// Signs of full width that values are written with.
const SIGNS: &str = "（）＋－．／：＝＠＿＃";
/// Bytes from the full-width form of a character to its form in ASCII.
const FULL_WIDTH: u32 = 0xfee0;

/// The character of ASCII that `c` stands for in a number or another value; `None` for one of ASCII.
pub fn in_ascii(c: char) -> Option<char> {
    if c.is_ascii() {
        return None;
    }
    let code = u32::from(c);
    match c {
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => {
            Some(' ')
        }
        // A hyphen, one that does not break, the dash of figures, the dash of ranges, a minus, and a small hyphen.
        '\u{2010}'..='\u{2013}' | '\u{2212}' | '\u{fe63}' => Some('-'),
        '０'..='９' | 'Ａ'..='Ｚ' | 'ａ'..='ｚ' => char::from_u32(code - FULL_WIDTH),
        _ if SIGNS.contains(c) => char::from_u32(code - FULL_WIDTH),
        _ => {
            let at = ZEROS.partition_point(|zero| *zero <= code).checked_sub(1)?;
            let digit = code - ZEROS.get(at)?;
            char::from_digit(digit, 10)
        }
    }
}

/// A text in which such characters are of ASCII.
#[derive(Debug)]
pub struct Folded<'t> {
    text: Cow<'t, str>,
    stretches: Vec<Stretch>,
}

/// A part of a text in which each byte stands for as many bytes of the text of before: one where nothing was folded.
#[derive(Debug)]
struct Stretch {
    begin: usize,
    origin: usize,
    width: usize,
}

impl<'t> Folded<'t> {
    pub fn of(text: &'t str) -> Self {
        Self::by(text, in_ascii)
    }

    /// Folds digits, letters and spaces alone, and leaves signs as they are.
    pub fn of_digits(text: &'t str) -> Self {
        Self::by(text, |c| {
            in_ascii(c).filter(|ascii| *ascii == ' ' || ascii.is_ascii_alphanumeric())
        })
    }

    fn by(text: &'t str, in_ascii: impl Fn(char) -> Option<char>) -> Self {
        let mut stretches: Vec<Stretch> = Vec::new();
        if text.is_ascii() || !text.chars().any(|c| in_ascii(c).is_some()) {
            let text = Cow::Borrowed(text);
            return Self { text, stretches };
        }
        let mut folded = String::with_capacity(text.len());
        for (origin, c) in text.char_indices() {
            let ascii = in_ascii(c);
            let width = ascii.map_or(1, |_| c.len_utf8());
            if stretches.last().is_none_or(|last| last.width != width) {
                let begin = folded.len();
                stretches.push(Stretch {
                    begin,
                    origin,
                    width,
                });
            }
            folded.push(ascii.unwrap_or(c));
        }
        let text = Cow::Owned(folded);
        Self { text, stretches }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place in the text of before that this place of [`text`](Self::text) is.
    pub fn origin(&self, at: usize) -> usize {
        let behind = self.stretches.partition_point(|it| it.begin <= at);
        let stretch = behind.checked_sub(1).and_then(|it| self.stretches.get(it));
        stretch.map_or(at, |it| it.origin + (at - it.begin) * it.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use regex_syntax::hir::{Class, HirKind};

    /// All characters of a class, in the syntax of `regex-syntax`.
    fn class(class: &str) -> Vec<char> {
        let parsed = regex_syntax::parse(class).unwrap();
        let HirKind::Class(Class::Unicode(class)) = parsed.kind() else {
            panic!("{class} is no class of characters");
        };
        let ranges = class.ranges().iter();
        ranges
            .flat_map(|range| range.start()..=range.end())
            .collect()
    }

    #[test]
    fn digits_and_spaces_are_those_of_unicode() {
        let mut value = 0;
        for digit in class(r"\p{Nd}").into_iter().filter(|c| !c.is_ascii()) {
            let expected = char::from_digit(value, 10);
            assert_eq!(in_ascii(digit), expected, "{:x}", u32::from(digit));
            value = (value + 1) % 10;
        }
        for space in class(r"\p{Zs}").into_iter().filter(|c| !c.is_ascii()) {
            assert_eq!(in_ascii(space), Some(' '), "{:x}", u32::from(space));
        }
        let folded = ('\u{80}'..=char::MAX).filter(|c| in_ascii(*c).is_some());
        let of_no_class = folded.filter(|c| !c.is_numeric() && !c.is_whitespace());
        // Letters, signs and dashes.
        assert_eq!(of_no_class.count(), 52 + SIGNS.chars().count() + 6);
    }

    #[test]
    fn full_width_forms_are_their_characters() {
        let forms: String = "０９ＡＺａｚ".chars().chain(SIGNS.chars()).collect();
        let folded = Folded::of(&forms);
        assert_eq!(folded.text(), "09AZaz()+-./:=@_#");
        for other in ['，', '。', '“', 'é', '卡', '①', '²', '\u{200b}'] {
            assert_eq!(in_ascii(other), None, "{other}");
        }
    }

    proptest! {
        /// Each place between two characters is that place of the text of before, and nothing else is changed.
        #[test]
        fn every_place_is_found_again(text in "[ a４卡\u{a0}\u{660}𝟎（é]{0,40}") {
            let folded = Folded::of(&text);
            let mut at = 0;
            for (origin, c) in text.char_indices() {
                prop_assert_eq!(folded.origin(at), origin);
                let shown = in_ascii(c).unwrap_or(c);
                prop_assert!(folded.text().get(at..).unwrap().starts_with(shown));
                at += shown.len_utf8();
            }
            prop_assert_eq!(folded.text().len(), at);
            prop_assert_eq!(folded.origin(at), text.len());
        }
    }
}
