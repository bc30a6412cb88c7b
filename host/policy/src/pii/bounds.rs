//! Begin and end of a value in a text: characters beside it that make it a part of a longer one.

use std::ops::Range;
use toolhold_text::{continues_value, ends_in_escaped_character};

/// Separators of groups of digits.
const SEPARATORS: &str = " -.";
/// The most digits of a number that is written in groups: those of the longest card.
const MAX_DIGITS: usize = 19;

pub(super) fn slice(text: &str, range: Range<usize>) -> &str {
    text.get(range).unwrap_or_default()
}

/// The character before `at`, and the one before that. None if `at` is behind an escape such as `\n` or `%20`.
pub(super) fn before(text: &str, at: usize) -> (Option<char>, Option<char>) {
    let before = slice(text, 0..at);
    if ends_in_escaped_character(before) {
        return (None, None);
    }
    let mut all = before.chars().rev();
    (all.next(), all.next())
}

/// The last `most` characters before `at`, in small letters.
pub(super) fn near_before(text: &str, at: usize, most: usize) -> String {
    let before = slice(text, 0..at);
    let begin = before.char_indices().rev().take(most).last();
    slice(before, begin.map_or(at, |(begin, _)| begin)..at).to_lowercase()
}

/// The part of a text behind the last placeholder of a vault, such as `<phone_1>`: the name in it is none of what follows.
pub(super) fn behind_placeholders(text: &str) -> &str {
    let ends = text.match_indices('>').rev();
    let mut ends = ends.filter(|(at, _)| {
        let before = slice(text, 0..*at);
        let unnumbered = before.trim_end_matches(|c: char| c.is_ascii_digit());
        unnumbered.len() < before.len() && unnumbered.ends_with('_')
    });
    match ends.next() {
        Some((at, end)) => slice(text, at + end.len()..text.len()),
        None => text,
    }
}

/// Whether no letter or digit stands directly before or after that makes both one longer value. An underscore does not, as
/// in `card_4111…`.
pub(super) fn is_alone(text: &str, range: &Range<usize>) -> bool {
    let [before, next] = beside(text, range);
    !before.is_some_and(continues_value) && !next.is_some_and(continues_value)
}

/// Whether no letter, digit or underscore stands directly before or after. Some values look like names with underscores.
pub(super) fn is_no_part_of_a_name(text: &str, range: &Range<usize>) -> bool {
    is_alone(text, range) && !beside(text, range).contains(&Some('_'))
}

fn beside(text: &str, range: &Range<usize>) -> [Option<char>; 2] {
    let next = slice(text, range.end..text.len()).chars().next();
    [before(text, range.start).0, next]
}

/// True for characters that join the groups of one number.
fn joins(c: char) -> bool {
    ".-/".contains(c)
}

/// Whether `start` is not in the middle of a number.
pub(super) fn begins_number(text: &str, start: usize) -> bool {
    let (last, other) = before(text, start);
    let goes_before = last.is_some_and(joins) && other.is_some_and(|c| c.is_ascii_digit());
    !goes_before && !last.is_some_and(continues_value)
}

/// True if [`is_alone`] is, and the value is no part of a longer number with separators.
pub(super) fn is_whole_number(text: &str, range: &Range<usize>) -> bool {
    let mut next = slice(text, range.end..text.len()).chars();
    let (first, second) = (next.next(), next.next());
    let goes_on = first.is_some_and(joins) && second.is_some_and(|c| c.is_ascii_digit());
    begins_number(text, range.start) && is_alone(text, range) && !goes_on
}

/// True if a group of digits stands beside a number that may belong to it: behind a separator that is written within the
/// number too, and as long as the group of the number beside it. So twelve digits of `4111 1111 1111 1111` are a part of a
/// longer number, and a year, a postal code or a date beside a number is none, nor is more than fits in one number.
pub(super) fn goes_on_in_groups(text: &str, range: &Range<usize>) -> bool {
    let found = slice(text, range.clone());
    let separates = |c: char| SEPARATORS.contains(c) && found.contains(c);
    let is_digit = |c: char| c.is_ascii_digit();
    let own = found.chars().filter(|c| is_digit(*c)).count();
    let first = found.len() - found.trim_start_matches(is_digit).len();
    let last = found.len() - found.trim_end_matches(is_digit).len();
    let next = slice(text, range.end..text.len()).strip_prefix(separates);
    let is_group_behind = next.is_some_and(|next| {
        let rest = next.trim_start_matches(is_digit);
        let mut after = rest.chars();
        let (sign, second) = (after.next(), after.next());
        let is_other = sign.is_some_and(joins) && second.is_some_and(is_digit);
        let is_alike = last > 0 && next.len() - rest.len() == last;
        let is_one = own + digits_in_groups(next.chars(), separates) <= MAX_DIGITS;
        is_alike && is_one && !is_other && !sign.is_some_and(continues_value)
    });
    let previous = slice(text, 0..range.start).strip_suffix(separates);
    let is_group_before = previous.is_some_and(|previous| {
        let rest = previous.trim_end_matches(is_digit);
        let is_alike = first > 0 && previous.len() - rest.len() == first;
        let is_one = own + digits_in_groups(previous.chars().rev(), separates) <= MAX_DIGITS;
        is_alike && is_one && begins_number(previous, rest.len())
    });
    is_group_behind || is_group_before
}

/// The digits at the begin of a row of groups, or some more than a number has.
fn digits_in_groups(row: impl Iterator<Item = char>, separates: impl Fn(char) -> bool) -> usize {
    row.take(2 * MAX_DIGITS + 2)
        .take_while(|c| c.is_ascii_digit() || separates(*c))
        .filter(char::is_ascii_digit)
        .count()
}
