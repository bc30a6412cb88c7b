//! Numbers, dates and times in other notations than JSON's and RFC 3339's (docs/protocol.md, 7.6).
//!
//! A text is read where its notation leaves one reading. One with two is told as such. What a text does not say, such as a
//! time zone, is never added.

mod names;
#[cfg(test)]
mod tests;

use crate::numbers;
use crate::rules::ReadingRules;
use jiff::civil::{Date, Weekday};
use names::NameRules;
use serde_json::Number;
use std::borrow::Cow;

/// Longest text that is read, in bytes. Dates in words and their time are shorter.
const MAX_BYTES: usize = 64;

/// Longest text in letters that take more than a byte, in bytes.
const MAX_WIDE_BYTES: usize = 128;

/// How a text in another notation can be read.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reading<T> {
    One(T),
    /// In more than one way, or in none because it contradicts itself: for these reasons.
    Unclear(String),
}

/// A number with separators between its thousands, or with a decimal comma.
pub(super) fn number(rules: ReadingRules, text: &str) -> Option<Reading<Number>> {
    let text = text.trim();
    if text.len() > MAX_BYTES {
        return None;
    }
    let (sign, digits) = match text.strip_prefix(['-', '\u{2212}']) {
        Some(rest) => ("-", rest),
        None => ("", text),
    };
    let mut separators = Vec::new();
    for character in digits.chars() {
        match character {
            '0'..='9' => {}
            ',' | '.' | '\'' | '_' | ' ' => separators.push(character),
            '\u{2019}' => separators.push('\''),
            '\u{a0}' | '\u{2009}' | '\u{202f}' => separators.push(' '),
            _ => return None,
        }
    }
    let parts: Vec<&str> = digits.split(|c: char| !c.is_ascii_digit()).collect();
    let (&last, before) = separators.split_last()?;
    let (&fraction, thousands) = parts.split_last()?;
    if parts.iter().any(|part| part.is_empty()) {
        return None;
    }
    let value = |text: String| {
        numbers::check_literal_under(rules, &text).ok()?;
        serde_json::from_str(&text).ok().map(Reading::One)
    };
    let whole = || value(format!("{sign}{}", parts.concat()));
    let decimal = || value(format!("{sign}{}.{fraction}", thousands.concat()));
    let is_decimal_mark = matches!(last, ',' | '.');
    if before.iter().all(|one| *one == last) {
        return match (is_grouped(&parts), before.is_empty() && is_decimal_mark) {
            (true, true) => Some(Reading::Unclear(format!(
                "{text:?} can be read as {sign}{} and as {sign}{}; write the number as JSON does",
                parts.concat(),
                parts.join(".")
            ))),
            (true, false) => whole(),
            (false, true) => decimal(),
            (false, false) => None,
        };
    }
    let group = *before.first()?;
    let is_one_mark = is_decimal_mark && before.iter().all(|one| *one == group);
    (is_one_mark && is_grouped(thousands)).then(decimal)?
}

/// Whether these are thousands: up to three digits, and three each after that.
fn is_grouped(parts: &[&str]) -> bool {
    let Some((first, rest)) = parts.split_first() else {
        return false;
    };
    (1..=3).contains(&first.len())
        && !first.starts_with('0')
        && rest.iter().all(|part| part.len() == 3)
}

/// A text for the JSON Schema format `date`, `time` or `date-time` as RFC 3339 writes it; a text that is written so, or is
/// none of these, is not read.
pub(super) fn moment(rules: ReadingRules, format: &str, text: &str) -> Option<Reading<String>> {
    let written = text.trim();
    let is_wide = rules.are_from_5() && !written.is_ascii();
    let most = if is_wide { MAX_WIDE_BYTES } else { MAX_BYTES };
    if written.len() > most {
        return None;
    }
    let folded: Cow<'_, str> = if is_wide {
        written.chars().map(narrow).collect::<String>().into()
    } else {
        written.into()
    };
    let written = &*folded;
    let read = match format {
        "date" => date(rules, written)?.map(|date| date.to_string()),
        "time" => Reading::One(match time(written)? {
            // What it lacks is not said by another notation of it.
            Clock { is_bare: true, .. } => return None,
            clock => clock.text,
        }),
        "date-time" => date_time(rules, written)?,
        _ => return None,
    };
    (read != Reading::One(text.to_owned())).then_some(read)
}

/// The ASCII character of a figure or a mark of full width.
fn narrow(character: char) -> char {
    match character {
        '０'..='９' | '：' | '／' | '．' | '，' | '－' => {
            char::from_u32(u32::from(character) - 0xfee0).unwrap_or(character)
        }
        other => other,
    }
}

/// A time of day as RFC 3339 writes it, also without a zone: for a pattern that demands none.
pub(super) fn clock(text: &str) -> Option<String> {
    let written = text.trim();
    let clock = (written.len() <= MAX_BYTES).then(|| time(written))??;
    Some(clock.text)
}

impl<T> Reading<T> {
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Self::One(value) => Reading::One(change(value)),
            Self::Unclear(why) => Reading::Unclear(why),
        }
    }
}

fn date_time(rules: ReadingRules, text: &str) -> Option<Reading<String>> {
    let places = text.char_indices().filter_map(|(at, character)| {
        let (through, rest) = text.split_at_checked(at + character.len_utf8())?;
        let is_between = character.is_whitespace() || matches!(character, 'T' | 't');
        if names::ends_day(character) {
            return Some((through, rest));
        }
        is_between.then_some((text.get(..at)?, rest))
    });
    for (day, clock) in places {
        let day = day.trim_end().trim_end_matches(',');
        let day = names::without_at(rules, day);
        if let (Some(day), Some(clock)) = (date(rules, day), time(clock.trim_start())) {
            return Some(day.map(|day| format!("{day}T{}", clock.text)));
        }
    }
    None
}

fn date(rules: ReadingRules, text: &str) -> Option<Reading<Date>> {
    let (weekday, read) = match names::in_characters(rules, text) {
        Some((date, weekday)) => (weekday, Reading::One(date)),
        None => {
            let (names, bare) = names::without_year_mark(rules, text);
            in_letters(names, bare)?
        }
    };
    match (weekday, read) {
        (Some(weekday), Reading::One(date)) if date.weekday() != weekday => Some(Reading::Unclear(
            format!("{text:?} names another day of the week than that of {date}"),
        )),
        (_, read) => Some(read),
    }
}

/// A date in figures or with the name of its month, and the day of the week if it has one.
fn in_letters(names: NameRules, text: &str) -> Option<(Option<Weekday>, Reading<Date>)> {
    let rules = names.rules;
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| !word.is_empty() && !names::is_link(rules, word))
        .collect();
    let words = without_openings(rules, &words);
    let (weekday, words) = match words.split_first() {
        Some((first, rest)) if !rest.is_empty() => match names::weekday(rules, first) {
            Some(weekday) => (Some(weekday), without_openings(rules, rest)),
            None => (None, words),
        },
        _ => (None, words),
    };
    let read = match words {
        [one] => in_figures(names, one),
        [a, b, c] => in_words(names, a, b, c).map(Reading::One),
        _ => None,
    }?;
    Some((weekday, read))
}

/// The words without those with which a date begins.
fn without_openings<'w, 't>(rules: ReadingRules, words: &'w [&'t str]) -> &'w [&'t str] {
    let openings = words
        .iter()
        .take_while(|word| names::is_opening(rules, word));
    words.get(openings.count()..).unwrap_or_default()
}

/// A date as one word.
fn in_figures(names: NameRules, text: &str) -> Option<Reading<Date>> {
    if text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // As ISO 8601 writes it. Of a date that begins with the day no month would be left.
        let date = day(text.get(..4)?, text.get(4..6)?, text.get(6..)?)?;
        return (1900..2200)
            .contains(&date.year())
            .then_some(Reading::One(date));
    }
    let separator = text.chars().find(|c| matches!(c, '-' | '/' | '.'))?;
    let parts: Vec<&str> = text.split(separator).collect();
    let [a, b, c] = parts[..] else { return None };
    if names::month(names, b).is_some() {
        return in_words(names, a, b, c).map(Reading::One);
    }
    if a.len() == 4 {
        return day(a, b, c).map(Reading::One);
    }
    let is_figures =
        |part: &str| (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    if is_figures(a) && is_figures(b) && is_figures(c) {
        return Some(Reading::Unclear(format!(
            "{text:?} does not say which of its numbers is the year; write it as 2026-12-31"
        )));
    }
    if c.len() != 4 {
        return None;
    }
    match (day(c, b, a), day(c, a, b)) {
        (Some(one), Some(other)) if one != other => Some(Reading::Unclear(format!(
            "{text:?} can be read as {one} and as {other}; write the one that is meant"
        ))),
        (one, other) => one.or(other).map(Reading::One),
    }
}

/// A date whose month is a word.
fn in_words(names: NameRules, a: &str, b: &str, c: &str) -> Option<Date> {
    let of = |year: &str, month_name: &str, number: &str| {
        let number = names::without_ordinal(names.rules, number);
        let month = names::month(names, month_name)?;
        day(year, &month.to_string(), number)
    };
    of(c, b, a).or_else(|| of(c, a, b)).or_else(|| of(a, b, c))
}

/// The day of a year of four digits, if there is one.
fn day(year: &str, month: &str, day: &str) -> Option<Date> {
    let is_short = |text: &str| (1..=2).contains(&text.len());
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_date = year.len() == 4 && is_short(month) && is_short(day);
    if !is_date || ![year, month, day].into_iter().all(is_number) {
        return None;
    }
    Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok()
}

/// A time of day.
struct Clock {
    /// As RFC 3339 writes it, but for a zone that it lacks.
    text: String,
    /// It has neither a zone nor "am" or "pm".
    is_bare: bool,
}

fn time(text: &str) -> Option<Clock> {
    let (clock, zone) = zoned(text);
    let lower = clock.trim_end().to_lowercase();
    let lower = lower.replace("a.m.", "am").replace("p.m.", "pm");
    let (figures, half) = match (lower.strip_suffix("am"), lower.strip_suffix("pm")) {
        (Some(figures), _) => (figures.trim_end(), Some(0)),
        (_, Some(figures)) => (figures.trim_end(), Some(12)),
        _ => (lower.as_str(), None),
    };
    let parts: Vec<&str> = figures.split(':').collect();
    let (hour, minute, second) = match (&parts[..], half) {
        ([hour], Some(_)) => (*hour, "00", "00"),
        ([hour, minute], _) => (*hour, *minute, "00"),
        ([hour, minute, second], _) => (*hour, *minute, *second),
        _ => return None,
    };
    let (whole, fraction) = second.split_once('.').unwrap_or((second, "0"));
    let is_number =
        |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let lengths = (1..=2).contains(&hour.len()) && minute.len() == 2 && whole.len() == 2;
    if !lengths || ![hour, minute, whole, fraction].iter().all(is_number) {
        return None;
    }
    let (hour, minute_number): (u8, u8) = (hour.parse().ok()?, minute.parse().ok()?);
    let hour = match half {
        Some(half) if (1..=12).contains(&hour) => hour % 12 + half,
        Some(_) => return None,
        None => hour,
    };
    // 60: a leap second.
    if hour > 23 || minute_number > 59 || whole.parse::<u8>().ok()? > 60 {
        return None;
    }
    Some(Clock {
        is_bare: half.is_none() && zone.is_none(),
        text: format!("{hour:02}:{minute}:{second}{}", zone.unwrap_or_default()),
    })
}

/// A time and its zone as RFC 3339 writes it, if it has one.
fn zoned(text: &str) -> (&str, Option<String>) {
    for name in ["UTC", "GMT", "Z", "z"] {
        if let Some(clock) = text.strip_suffix(name) {
            return (clock, Some("Z".to_owned()));
        }
    }
    let Some((clock, offset)) = text.rfind(['+', '-']).map(|at| text.split_at(at)) else {
        return (text, None);
    };
    let (sign, figures) = offset.split_at(1);
    let (hours, minutes) = match figures.len() {
        2 => (figures, "00"),
        4 => match figures.split_at_checked(2) {
            Some(parts) => parts,
            None => return (text, None),
        },
        5 => match figures.split_once(':') {
            Some(parts) => parts,
            None => return (text, None),
        },
        _ => return (text, None),
    };
    let is_below = |text: &str, end: u8| text.len() == 2 && text.parse().is_ok_and(|n: u8| n < end);
    if is_below(hours, 24) && is_below(minutes, 60) {
        (clock, Some(format!("{sign}{hours}:{minutes}")))
    } else {
        (text, None)
    }
}
