//! Characters that stand for digits, spaces and signs of ASCII, as people and keyboards of all scripts write numbers:
//! `４１１１`, `٤١١١`, `4111\u{a0}1111`, `8（916）…`. What looks for values reads them as ASCII, in a text of its own that knows
//! where each place of it is in the text of before.
//!
//! Digits are those of the general category `Nd`, and spaces those of `Zs` (UAX #44). Of the full-width forms of ASCII
//! (FF01 to FF5E, which NFKC folds to ASCII) there are digits, letters and the signs that values are written with.
//!
//! A model is shown texts without hidden characters. So a value that they divide is looked for in such a text, too:
//! [`Folded::without_hidden`].

use crate::hidden;
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

/// Form of a character in a text that is searched.
enum FoldedForm {
    Same,
    As(char),
    Absent,
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
        Self::by(text, |c| {
            in_ascii(c).map_or(FoldedForm::Same, FoldedForm::As)
        })
    }

    /// Folds digits, letters and spaces alone, and leaves signs as they are.
    pub fn of_digits(text: &'t str) -> Self {
        Self::by(text, |c| {
            let ascii = in_ascii(c);
            let ascii = ascii.filter(|ascii| *ascii == ' ' || ascii.is_ascii_alphanumeric());
            ascii.map_or(FoldedForm::Same, FoldedForm::As)
        })
    }

    /// Folds a text as [`Self::of`], and leaves hidden characters out but for controls: all of them, and those alone that a
    /// model is not shown either, where that is another text. An icon that stays may be all that divides a value from a word
    /// beside it. No text where none is left out. Separators of lines and paragraphs become spaces, as a model is shown them.
    pub fn without_hidden(text: &'t str) -> Vec<Self> {
        let is_left_out = |c: char| !c.is_control() && hidden::is_hidden(c);
        if text.is_ascii() || !text.chars().any(is_left_out) {
            return Vec::new();
        }
        let mut forms = vec![Self::without(
            text,
            text.chars().map(|c| (c, is_left_out(c))),
        )];
        let shown =
            || hidden::characters(text).map(|(c, is_hidden)| (c, is_hidden && !c.is_control()));
        let stays = |(c, is_left_out_there): (char, bool)| is_left_out(c) && !is_left_out_there;
        if shown().any(stays) && shown().any(|(_, is_left_out)| is_left_out) {
            forms.push(Self::without(text, shown()));
        }
        forms
    }

    /// Folds a text without characters that are `true`.
    fn without(text: &str, characters: impl Iterator<Item = (char, bool)>) -> Self {
        let forms = characters.map(|(c, is_left_out)| {
            let form = match in_ascii(c) {
                Some(ascii) => FoldedForm::As(ascii),
                None if is_left_out && c.is_whitespace() => FoldedForm::As(' '),
                None if is_left_out => FoldedForm::Absent,
                None => FoldedForm::Same,
            };
            (c, form)
        });
        Self::of_forms(text.len(), forms)
    }

    fn by(text: &'t str, form: impl Fn(char) -> FoldedForm) -> Self {
        let is_same = |c: char| matches!(form(c), FoldedForm::Same);
        if text.is_ascii() || text.chars().all(is_same) {
            return Self {
                text: Cow::Borrowed(text),
                stretches: Vec::new(),
            };
        }
        Self::of_forms(text.len(), text.chars().map(|c| (c, form(c))))
    }

    /// The text of these characters, each in its form. `capacity`: bytes of the text of before.
    fn of_forms(capacity: usize, characters: impl Iterator<Item = (char, FoldedForm)>) -> Self {
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut folded = String::with_capacity(capacity);
        let mut next = 0;
        for (c, form) in characters {
            let origin = next;
            next += c.len_utf8();
            let (written, width) = match form {
                FoldedForm::Same => (c, 1),
                FoldedForm::As(ascii) => (ascii, c.len_utf8()),
                FoldedForm::Absent => continue,
            };
            let begin = folded.len();
            let goes_on = stretches.last().is_some_and(|last| {
                last.width == width && last.origin + (begin - last.begin) * width == origin
            });
            if !goes_on {
                stretches.push(Stretch {
                    begin,
                    origin,
                    width,
                });
            }
            folded.push(written);
        }
        let text = Cow::Owned(folded);
        Self { text, stretches }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place in the text of before that this place of [`text`](Self::text) is.
    pub fn origin(&self, at: usize) -> usize {
        self.origin_in(self.stretches.partition_point(|it| it.begin <= at), at)
    }

    /// The place in the text of before at which a part ends that ends at this place of [`text`](Self::text): in front of
    /// characters that were left out there.
    pub fn origin_of_end(&self, at: usize) -> usize {
        self.origin_in(self.stretches.partition_point(|it| it.begin < at), at)
    }

    /// The origin of `at`, counted in the last of the first `behind` stretches.
    fn origin_in(&self, behind: usize, at: usize) -> usize {
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

    #[test]
    fn hidden_characters_are_left_out_within_a_part_and_around_it() {
        let text = "a\u{200b}４\u{ad}1\u{2060}\u{feff}1\u{200b}。\u{2028}b";
        let forms = Folded::without_hidden(text);
        let [folded] = forms.as_slice() else {
            panic!("{forms:?}");
        };
        assert_eq!(folded.text(), "a411。 b");
        let (begin, end) = (folded.origin(1), folded.origin_of_end(4));
        assert_eq!(&text[begin..end], "４\u{ad}1\u{2060}\u{feff}1");
        assert_eq!(folded.origin_of_end(folded.text().len()), text.len());
        for plain in ["4111", "４111 卡", "a\u{85}b\n"] {
            assert!(Folded::without_hidden(plain).is_empty(), "{plain:?}");
        }
    }

    /// An icon of a font, and the joiner of an emoji.
    #[test]
    fn hidden_characters_that_a_model_is_shown_stay_in_a_text_of_their_own() {
        let forms = |text| -> Vec<String> {
            let forms = Folded::without_hidden(text);
            forms.iter().map(|form| form.text().to_owned()).collect()
        };
        assert_eq!(
            forms("a\u{e000}4\u{200b}1"),
            ["a41", "a\u{e000}41"],
            "an icon"
        );
        // Nothing is left out of these, and all of it.
        assert_eq!(forms("a\u{e000}41"), ["a41"]);
        assert_eq!(forms("a4\u{200b}1"), ["a41"]);
    }

    proptest! {
        /// Each place between two characters is that place of the text of before, and nothing else is changed.
        #[test]
        fn every_place_is_found_again(text in "[ a４卡\u{a0}\u{660}𝟎（é]{0,40}") {
            let folded = Folded::of(&text);
            let mut at = 0;
            for (origin, c) in text.char_indices() {
                prop_assert_eq!(folded.origin(at), origin);
                prop_assert_eq!(folded.origin_of_end(at), origin);
                let shown = in_ascii(c).unwrap_or(c);
                prop_assert!(folded.text().get(at..).unwrap().starts_with(shown));
                at += shown.len_utf8();
            }
            prop_assert_eq!(folded.text().len(), at);
            prop_assert_eq!(folded.origin(at), text.len());
        }
    }
}
