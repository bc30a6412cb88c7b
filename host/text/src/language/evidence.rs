//! Weighs the words of a text against the languages of one script.

use super::lexicon::{LanguageSet, Lexicon};
use super::prose::Word;

/// Minimum points of a result: less than one word that no other language has, more than letters that no other has.
const MIN_POINTS: u32 = 9;

/// Minimum points of words that the language has and a rival does not have: one word.
const MIN_LEAD: u32 = 5;

/// Minimum ratio of the points that only the language has to those that only a rival has. Less is a text in two languages.
const MIN_RATIO: u32 = 3;

/// Points that a result needs beside one for each word. A text in a language without a table has a few words that look
/// like those of another.
const MORE_POINTS: usize = 5;

/// Maximum number of words that say nothing, for each word that speaks for the result and is not one of most languages.
/// Among more of them, one word of ten points may be that of a language without a table, or of a command.
const MAX_SILENT: usize = 2;

/// Maximum number of words that are weighed.
const MAX_WORDS: usize = 256;

/// A word, or its letters, that some languages have.
struct Evidence {
    languages: LanguageSet,
    points: u32,
}

/// Tag of the language that all evidence speaks for.
pub(super) fn weigh(family: &'static Lexicon, words: &[&Word<'_>]) -> Option<&'static str> {
    let names = words.iter().filter(|word| word.is_name).count();
    // Where most words have a capital letter, it is a headline.
    let takes_names = names * 2 > words.len();
    let evidence: Vec<Evidence> = words
        .iter()
        .take(MAX_WORDS)
        .filter_map(|word| of_word(family, word, word.is_name && !takes_names))
        .collect();
    let foreign = evidence.iter().filter(|it| it.languages == 0).count();
    if foreign * 2 > evidence.len() {
        return None;
    }
    // Between two languages, each word that only one of them has counts, however many others have it.
    let lead = |has: LanguageSet, lacks: LanguageSet| -> u32 {
        let only = evidence
            .iter()
            .filter(|it| it.languages & has != 0 && it.languages & lacks == 0);
        only.map(|it| it.points.max(MIN_LEAD)).sum()
    };
    let points = |has: LanguageSet| -> u32 {
        let of = evidence.iter().filter(|it| it.languages & has != 0);
        of.map(|it| it.points).sum()
    };
    let best = family.masks().max_by_key(|&mask| points(mask))?;
    let total = points(best);
    let speaking = evidence
        .iter()
        .filter(|it| it.languages & best != 0 && it.points > 1);
    let silent = evidence.iter().filter(|it| it.points == 0).count();
    let is_enough = total >= MIN_POINTS
        && total as usize >= evidence.len() + MORE_POINTS
        && silent <= MAX_SILENT * speaking.count();
    let leads = family.masks().filter(|&rival| rival != best).all(|rival| {
        let own = lead(best, rival);
        own >= MIN_LEAD && own >= MIN_RATIO * lead(rival, best)
    });
    (is_enough && leads).then(|| family.told(best)).flatten()
}

fn of_word(family: &Lexicon, word: &Word<'_>, is_name: bool) -> Option<Evidence> {
    let text = word.text.to_lowercase();
    if let Some(languages) = family.word(&text) {
        let points = match languages.count_ones() {
            // Short words turn up in names, abbreviations and other languages.
            1 if text.chars().count() < 3 => 6,
            1 => 10,
            2 => 6,
            3 => 4,
            4..=6 => 2,
            _ => 1,
        };
        // Weekdays and languages are names, too.
        let points = if is_name { points / 2 } else { points };
        return Some(Evidence { languages, points });
    }
    if is_name {
        return None;
    }
    let spelling = family.spelling(&text);
    let formed = family.ending(&text).map(|ending| spelling & ending);
    let languages = formed.filter(|it| *it != 0).unwrap_or(spelling);
    let points = match languages.count_ones() {
        1 => 8,
        2 => 5,
        3 => 3,
        4..=6 => 2,
        _ => 0,
    };
    Some(Evidence { languages, points })
}
