//! Keywords of rules: whether a text has a word, written as its script writes words.

use super::TermSplitter;
use super::korean::is_particle;
use super::normal::normal;
use super::script::{ScriptKind, is_part_of_word, runs};
use super::segments::word_ends;
use super::stems::{Language, is_inflected};
use std::cell::OnceCell;
use unicode_normalization::char::is_combining_mark;
use unicode_script::Script;

/// A text in which keywords are looked for. Everything that several keywords need is made once, when the first needs it.
#[derive(Debug)]
pub struct KeywordText<'a> {
    text: &'a str,
    normal: OnceCell<String>,
    /// Ends of words in the normal form, in bytes, ascending.
    word_ends: OnceCell<Vec<usize>>,
    /// The terms, each between two spaces.
    terms: OnceCell<String>,
}

impl<'a> KeywordText<'a> {
    pub fn new(text: &'a str) -> Self {
        Self {
            text,
            normal: OnceCell::new(),
            word_ends: OnceCell::new(),
            terms: OnceCell::new(),
        }
    }

    /// True if the text has the keyword, which may be several words, as words of its own. Small and capital letters,
    /// accents, and spaces of another kind or number make no difference.
    ///
    /// A keyword that is found with spaces around it is found without them where the script writes none: in Chinese and
    /// Japanese beside any other character, in Thai, Lao, Khmer and Burmese where it is neither a part of a syllable nor
    /// leaves a single consonant of the word around it. Korean particles and endings may follow, and a keyword of two syllables
    /// or more may be the last noun of a Korean compound. In Cyrillic, Arabic and Devanagari letters, other forms of the word
    /// count, too.
    pub fn has(&self, keyword: &str) -> bool {
        let keyword = one_spaced(&normal(keyword));
        if keyword.is_empty() {
            return false;
        }
        let mut found = self.normal().match_indices(keyword.as_str());
        let is_word = |(start, found): (usize, &str)| {
            let end = start + found.len();
            let begins = self.begins_word(start) || self.ends_compound(start, end);
            begins && self.ends_word(end) && !self.leaves_consonant(start, end)
        };
        found.any(is_word) || self.has_form_of(&keyword)
    }

    fn normal(&self) -> &str {
        self.normal.get_or_init(|| one_spaced(&normal(self.text)))
    }

    /// True if what begins at this byte does not continue a word.
    fn begins_word(&self, at: usize) -> bool {
        let (before, rest) = self.normal().split_at(at);
        let (Some(left), Some(right)) = (before.chars().next_back(), rest.chars().next()) else {
            return true;
        };
        if !is_part_of_word(left) {
            return true;
        }
        match (ScriptKind::of(left), ScriptKind::of(right)) {
            (left_kind, kind) if left_kind != kind => true,
            (_, ScriptKind::Spaced | ScriptKind::Hangul) => false,
            (_, ScriptKind::Characters) => true,
            (_, ScriptKind::Syllables(_)) => !needs_next(left),
        }
    }

    /// True if a word ends before this byte.
    fn ends_word(&self, at: usize) -> bool {
        let (before, rest) = self.normal().split_at(at);
        let (Some(left), Some(right)) = (before.chars().next_back(), rest.chars().next()) else {
            return true;
        };
        if !is_part_of_word(right) {
            return true;
        }
        if is_combining_mark(right) {
            return false;
        }
        match (ScriptKind::of(left), ScriptKind::of(right)) {
            // A mark takes the script of its letter.
            (left_kind, kind) if left_kind != kind && !is_combining_mark(left) => true,
            (_, ScriptKind::Spaced) => false,
            (_, ScriptKind::Hangul | ScriptKind::Characters) => true,
            (_, ScriptKind::Syllables(_)) => !continues_syllable(rest),
        }
    }

    /// True if the part of the text may be the last noun of a Korean compound, spaces within which may be left out. Before it are
    /// two syllables or more, behind it nothing, a particle or a form of `하다` ("do"). One that ends like a particle may be the
    /// end of another word with its particle: `지도` ("map") in `강아지도` ("the puppy, too").
    fn ends_compound(&self, start: usize, end: usize) -> bool {
        let (before, rest) = self.normal().split_at(start);
        let (keyword, behind) = rest.split_at(end - start);
        let ending = behind.find(|c| !is_hangul(c)).unwrap_or(behind.len());
        let ending = behind.get(..ending).unwrap_or_default();
        let last = keyword.char_indices().next_back();
        let last = last.and_then(|(at, _)| keyword.get(at..));
        let mut around = before.chars().rev().take_while(|c| is_hangul(*c));
        let mut own = keyword.chars().take_while(|c| is_hangul(*c));
        around.nth(1).is_some()
            && own.nth(1).is_some()
            && last.is_none_or(|last| !is_particle(last))
            && (ending.is_empty() || ending.starts_with(['하', '해']) || is_particle(ending))
    }

    /// True if the part of the text is within a longer word of the dictionary, and nothing but one consonant is left of
    /// that word on a side: `แปลก` ("strange") is not `แปล` ("translate") and another word, because `ก` is none.
    fn leaves_consonant(&self, start: usize, end: usize) -> bool {
        let text = self.normal();
        let next = text.get(end..).and_then(|rest| rest.chars().next());
        let before = text.get(..start).and_then(|rest| rest.chars().next_back());
        if ![before, next].into_iter().flatten().any(is_consonant) {
            return false;
        }
        let ends = self.word_ends.get_or_init(|| all_word_ends(text));
        let word = ends.partition_point(|word_end| *word_end <= start);
        let word_start = word.checked_sub(1).and_then(|before| ends.get(before));
        let word_start = word_start.copied().unwrap_or(0);
        let word_end = ends.get(word).copied().unwrap_or(text.len());
        // Where the dictionary ends a word within the keyword, it took other letters together.
        let sides = [text.get(word_start..start), text.get(end..word_end)];
        word_end >= end && sides.into_iter().flatten().any(is_bare_consonant)
    }

    /// True if the text has a form of each word of `keyword`, in letters of [`is_inflected`].
    fn has_form_of(&self, keyword: &str) -> bool {
        let is_word =
            |word: &str| word.starts_with(is_inflected) && word.chars().all(is_part_of_word);
        if !keyword.split(' ').all(is_word) {
            return false;
        }
        let terms = self.terms.get_or_init(|| spaced_terms(self.text));
        let wanted = spaced_terms(keyword);
        wanted.len() > 1 && terms.contains(&wanted)
    }
}

fn is_hangul(c: char) -> bool {
    ScriptKind::of(c) == ScriptKind::Hangul
}

/// With one space between words, and none around them.
fn one_spaced(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !spaced.is_empty() {
            spaced.push(' ');
        }
        spaced.push_str(word);
    }
    spaced
}

/// The terms of a text with a space before and behind each.
fn spaced_terms(text: &str) -> String {
    let mut terms = String::from(" ");
    TermSplitter::new(Language::English).each(text, |term| {
        terms.push_str(term);
        terms.push(' ');
    });
    terms
}

/// Ends of the words of Thai and Lao, and of all stretches of other scripts, in bytes, ascending.
fn all_word_ends(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut start = 0;
    for (kind, run) in runs(text) {
        if matches!(kind, ScriptKind::Syllables(Script::Thai | Script::Lao)) {
            ends.extend(word_ends(run).into_iter().map(|end| start + end));
        } else {
            ends.push(start + run.len());
        }
        start += run.len();
    }
    ends
}

/// True for vowels of Thai and Lao that stand before their consonant, and for the signs of Khmer and Burmese that put the
/// next consonant below.
fn needs_next(c: char) -> bool {
    matches!(c, '\u{e40}'..='\u{e44}' | '\u{ec0}'..='\u{ec4}' | '\u{17d2}' | '\u{1039}')
}

/// True if the text begins with a part of the syllable before it: a vowel of Thai or Lao that stands behind its
/// consonant, or a Burmese consonant with the sign that it has no vowel or that the next one stands below it.
fn continues_syllable(text: &str) -> bool {
    let mut characters = text.chars();
    match characters.next() {
        Some(
            '\u{e30}' | '\u{e32}' | '\u{e33}' | '\u{e45}' | '\u{eb0}' | '\u{eb2}' | '\u{eb3}'
            | '\u{ebd}',
        ) => true,
        Some('\u{1000}'..='\u{1021}') => {
            let sign = characters.find(|c| *c != '\u{1037}');
            matches!(sign, Some('\u{1039}' | '\u{103a}'))
        }
        _ => false,
    }
}

/// True for one consonant of Thai or Lao without a vowel, which is no word.
fn is_bare_consonant(text: &str) -> bool {
    let mut characters = text.chars();
    // Behind it only the sign that it is not spoken.
    characters.next().is_some_and(is_consonant)
        && characters.all(|c| matches!(c, '\u{e4c}' | '\u{ecc}'))
}

/// True for consonants of Thai and Lao.
fn is_consonant(c: char) -> bool {
    matches!(c, '\u{e01}'..='\u{e2e}' | '\u{e81}'..='\u{eae}')
}
