//! Characters that a person cannot see, or that change how other text looks: one set for all places that show or
//! clean text from outside (`docs/security.md`, promise 10).
//!
//! The set is [`table::HIDDEN`], written from Unicode's data. A few of its characters belong to ordinary text: joiners
//! in Persian and in Indic scripts, variation selectors of emoji and of Chinese characters, flags. [`characters`] tells
//! these by their neighbours. Who decides about a text reads the exact form, in which [`is_hidden`] alone counts.

pub mod table;

use std::str::Chars;

/// Black flag, which the tags of a region's flag follow.
const BLACK_FLAG: char = '\u{1F3F4}';
/// Tags of the regional flags that Unicode recommends: England, Scotland and Wales.
pub const FLAG_TAGS: [&str; 3] = [
    "\u{E0067}\u{E0062}\u{E0065}\u{E006E}\u{E0067}\u{E007F}",
    "\u{E0067}\u{E0062}\u{E0073}\u{E0063}\u{E0074}\u{E007F}",
    "\u{E0067}\u{E0062}\u{E0077}\u{E006C}\u{E0073}\u{E007F}",
];
/// Combining keycap, the end of an emoji such as 1️⃣.
const KEYCAP: char = '\u{20E3}';

/// True for a character of [`table::HIDDEN`]: invisible, blank, a control (line feed and tab too), a mark of direction,
/// or without a meaning that all fonts share.
pub fn is_hidden(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    is_in(table::HIDDEN, c)
}

/// True if all characters are letters, digits, marks and spaces of ASCII. Most texts are, and none of these characters is
/// hidden or breaks a line, so such a text needs no second look.
pub fn is_printable_ascii(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// True for tags and variation selectors, of which each can stand for a letter that no person sees.
pub fn can_spell(c: char) -> bool {
    matches!(c, '\u{FE00}'..='\u{FE0F}' | '\u{E0000}'..='\u{E0FFF}')
}

/// Characters of `text`, each with `true` if it is hidden and its neighbours do not call for it.
pub fn characters(text: &str) -> Characters<'_> {
    characters_after(None, text)
}

/// [`characters`] of a text that continues after `before`, the last character that was not hidden.
pub fn characters_after(before: Option<char>, text: &str) -> Characters<'_> {
    Characters {
        rest: text.chars(),
        before,
        flag_tags: 0,
    }
}

/// Iterator over the characters of a text and whether each is hidden.
#[derive(Debug, Clone)]
pub struct Characters<'t> {
    rest: Chars<'t>,
    /// Character directly before, if it was not hidden.
    before: Option<char>,
    /// Characters still to come of a flag's tags.
    flag_tags: usize,
}

impl Characters<'_> {
    /// Last character that was returned, if it was not hidden.
    pub fn before(&self) -> Option<char> {
        self.before
    }

    /// True if `c`, a hidden character, belongs to the text around it.
    fn stays(&mut self, c: char, from: &str) -> bool {
        if self.flag_tags > 0 {
            self.flag_tags -= 1;
            return true;
        }
        if self.before == Some(BLACK_FLAG)
            && let Some(tags) = FLAG_TAGS.iter().find(|tags| from.starts_with(**tags))
        {
            self.flag_tags = tags.chars().count() - 1;
            return true;
        }
        let before = |set| self.before.is_some_and(|before| is_in(set, before));
        let next = || self.rest.clone().next();
        match c {
            // Icons of fonts. They are seen, although only the font says as what.
            c if is_private(c) => true,
            '\u{200D}' => {
                let is_emoji = before(table::EMOJI) || self.before == Some('\u{FE0F}');
                before(table::JOINING)
                    || is_emoji && next().is_some_and(|next| is_in(table::EMOJI, next))
            }
            // Ends of words in Thai, Lao, Khmer and Burmese, which have no spaces.
            '\u{200B}' => {
                before(table::JOINING) && next().is_some_and(|next| is_in(table::JOINING, next))
            }
            // Persian joins endings to words and numbers of other scripts without a space.
            '\u{200C}' => {
                before(table::JOINING)
                    || self.before.is_some_and(char::is_alphanumeric)
                        && next().is_some_and(|next| is_in(table::JOINING, next))
            }
            '\u{034F}' | '\u{180B}'..='\u{180F}' | '\u{13430}'..='\u{1343F}' => {
                before(table::JOINING)
            }
            // Marks of direction, in texts that have both directions. They do not reorder letters.
            '\u{200E}' | '\u{200F}' | '\u{061C}' => {
                before(table::JOINING) || next().is_some_and(|next| is_in(table::JOINING, next))
            }
            '\u{FE0E}' | '\u{FE0F}' => {
                let is_keycap = self
                    .before
                    .is_some_and(|before| before.is_ascii_digit() || matches!(before, '#' | '*'))
                    && next() == Some(KEYCAP);
                is_keycap || before(table::EMOJI) || before(table::IDEOGRAPHS)
            }
            // The space of texts in Braille.
            '\u{2800}' => {
                let is_cell = |c: char| matches!(c, '\u{2800}'..='\u{28FF}');
                self.before.is_some_and(is_cell)
                    || next().is_some_and(|next| next != c && is_cell(next))
            }
            '\u{FE00}' => before(table::IDEOGRAPHS) || before(table::JOINING),
            '\u{FE01}'..='\u{FE0D}' | '\u{E0100}'..='\u{E01EF}' => before(table::IDEOGRAPHS),
            _ => false,
        }
    }
}

impl Iterator for Characters<'_> {
    type Item = (char, bool);

    fn next(&mut self) -> Option<Self::Item> {
        let from = self.rest.as_str();
        let c = self.rest.next()?;
        let is_hidden = is_hidden(c) && !self.stays(c, from);
        self.before = (!is_hidden).then_some(c);
        Some((c, is_hidden))
    }
}

/// True for private use, whose characters have no meaning in Unicode.
fn is_private(c: char) -> bool {
    matches!(c, '\u{E000}'..='\u{F8FF}' | '\u{F0000}'..='\u{FFFFD}' | '\u{100000}'..='\u{10FFFD}')
}

/// True if a range of `set`, whose ranges are in order, has `c`.
fn is_in(set: &[(char, char)], c: char) -> bool {
    let after = set.partition_point(|(first, _)| *first <= c);
    let range = after.checked_sub(1).and_then(|at| set.get(at));
    range.is_some_and(|(_, last)| c <= *last)
}

/// The readable form of a text that arrives in pieces: a hidden character at the end of a piece waits for the next one,
/// which may call for it.
#[derive(Debug, Default)]
pub struct PieceReader {
    before: Option<char>,
    /// Hidden characters at the end of the last piece; at most [`MAX_HELD_CHARS`].
    held: String,
}

/// Maximum hidden characters that wait for the next piece: the tags of a flag.
const MAX_HELD_CHARS: usize = 6;

impl PieceReader {
    /// Characters that are decided now, each with `true` if it is hidden.
    pub fn push(&mut self, piece: &str) -> Vec<(char, bool)> {
        let mut text = std::mem::take(&mut self.held);
        text.push_str(piece);
        let trailing = text.chars().rev().take(MAX_HELD_CHARS);
        let waiting: usize = trailing
            .take_while(|c| is_hidden(*c) && !c.is_control())
            .map(char::len_utf8)
            .sum();
        self.held = text.split_off(text.len() - waiting);
        self.read(&text)
    }

    /// Characters that still wait, where no further piece comes.
    pub fn end(&mut self) -> Vec<(char, bool)> {
        let held = std::mem::take(&mut self.held);
        let rest = self.read(&held);
        self.before = None;
        rest
    }

    fn read(&mut self, text: &str) -> Vec<(char, bool)> {
        let mut characters = characters_after(self.before, text);
        let read = characters.by_ref().collect();
        self.before = characters.before();
        read
    }
}

#[cfg(test)]
mod tests;
