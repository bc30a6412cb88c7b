//! Dates and times whose notation a pattern demands, as `^\d{4}-\d{2}-\d{2}$` does: with or without a format beside it.

use super::notation::{self, Reading};
use crate::rules::ReadingRules;
use toolhold_schema::SmallPattern;

/// A text that is a date or a time, with the notations of it that a pattern may demand.
#[derive(Debug)]
pub(super) struct DemandedNotation<'a> {
    text: &'a str,
    /// True if a format says that it is a date or a time. Otherwise the pattern has to say so.
    has_format: bool,
    readings: Vec<Reading<String>>,
}

/// Texts of which a pattern for dates, or for dates with a time, accepts one: for a text that has two readings itself.
const EXAMPLES: [&str; 3] = ["2026-05-03", "2026-05-03T14:30:00", "2026-05-03T14:30:00Z"];

impl<'a> DemandedNotation<'a> {
    /// `None` if the text is no date or time of this format; without a format, none at all.
    pub(super) fn of(rules: ReadingRules, format: Option<&str>, text: &'a str) -> Option<Self> {
        let mut readings = Vec::new();
        if let Some(format) = format {
            readings.extend(notation::moment(rules, format, text));
        } else {
            let known = ["date", "date-time"].iter();
            readings.extend(known.filter_map(|format| notation::moment(rules, format, text)));
        }
        // A time that lacks a zone is none of the format; a pattern may want it without.
        if format.is_none_or(|format| format == "time") {
            readings.extend(notation::clock(text).map(Reading::One));
        }
        (!readings.is_empty()).then_some(Self {
            text,
            has_format: format.is_some(),
            readings,
        })
    }

    /// The text as `pattern` demands it; `None` if it is written so already, or if the pattern demands something else.
    pub(super) fn by(self, pattern: &SmallPattern) -> Option<Reading<String>> {
        if pattern.matches(self.text) {
            return None;
        }
        let (has_format, given) = (self.has_format, self.text);
        let is_told = |text: &str| !is_loose(pattern, text) && !may_be_length(pattern, given, text);
        let is_demanded = |text: &String| pattern.matches(text) && (has_format || is_told(text));
        self.readings.into_iter().find_map(|reading| match reading {
            Reading::One(text) => {
                let written = notations(&text).into_iter().find(is_demanded);
                written.map(Reading::One)
            }
            Reading::Unclear(why) => {
                let mut examples = EXAMPLES.iter().flat_map(|text| notations(text));
                (has_format || examples.any(|text| is_demanded(&text)))
                    .then_some(Reading::Unclear(why))
            }
        })
    }
}

/// A date or a time as RFC 3339 writes it, then with a space between date and time, and without seconds that are 0.
fn notations(text: &str) -> Vec<String> {
    let spaced = text.replacen('T', " ", 1);
    let mut all = vec![text.to_owned(), spaced];
    for index in 0..all.len() {
        let short = all.get(index).and_then(|text| {
            let (before, zone) = text.rsplit_once(":00")?;
            let has_more = before.contains(':') && (zone.is_empty() || zone == "Z");
            has_more.then(|| format!("{before}{zone}"))
        });
        all.extend(short);
    }
    all
}

/// True if `given`, such as `9:05`, may be minutes and seconds: `written` has seconds that it lacks, and the pattern accepts
/// more than times of day.
fn may_be_length(pattern: &SmallPattern, given: &str, written: &str) -> bool {
    let is_bare = given.trim().chars().all(|c| c.is_ascii_digit() || c == ':');
    let has_more = written.matches(':').count() > given.matches(':').count();
    let beyond = written.replace(|c: char| c.is_ascii_digit(), "9");
    is_bare && has_more && pattern.matches(&beyond)
}

/// True if the pattern accepts what is no date or time, too: then it does not say that the text is one.
fn is_loose(pattern: &SmallPattern, text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let others = [
        text.replace(|c: char| c.is_ascii_digit(), "a"),
        text.replace(['-', ':'], "/"),
        digits,
        text.chars().skip(1).collect(),
    ];
    others.iter().any(|other| pattern.matches(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: Option<&str>, pattern: &str, text: &str) -> Option<Reading<String>> {
        DemandedNotation::of(ReadingRules::Current, format, text)?
            .by(&SmallPattern::new(pattern).unwrap())
    }

    #[test]
    fn a_pattern_that_demands_a_date_or_a_time_is_met() {
        for (pattern, text, expect) in [
            (r"^\d{4}-\d{2}-\d{2}$", "25.09.2025", "2025-09-25"),
            (r"^\d{4}-\d{2}-\d{2}$", "1 September 2025", "2025-09-01"),
            (r"^\d{4}-\d{2}-\d{2}$", "25 сентября 2025", "2025-09-25"),
            (r"^\d{4}-\d{2}-\d{2}$", "25.09.2025 г.", "2025-09-25"),
            (r"^\d{4}-\d{2}-\d{2}$", "2025年9月25日", "2025-09-25"),
            (r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "2025/9/1", "2025-09-01"),
            (
                r"^20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$",
                "Sep 1, 2025",
                "2025-09-01",
            ),
            (
                r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$",
                "3 May 2026, 2:30 PM UTC",
                "2026-05-03T14:30:00Z",
            ),
            (
                r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}$",
                "3 May 2026, 2:30 PM",
                "2026-05-03 14:30",
            ),
            (r"^\d{2}:\d{2}$", "2:30 PM", "14:30"),
            (r"^\d{2}:\d{2}$", "9:05", "09:05"),
            (r"^\d{2}:\d{2}:\d{2}$", "9:05:07", "09:05:07"),
            (r"^\d{2}:\d{2}:\d{2}$", "2:30 PM", "14:30:00"),
            (r"^([01]\d|2[0-3]):[0-5]\d:[0-5]\d$", "9:05", "09:05:00"),
        ] {
            assert_eq!(
                read(None, pattern, text),
                Some(Reading::One(expect.to_owned())),
                "{pattern}: {text}"
            );
        }
        let found = read(Some("date"), r"^[0-9-]+$", "25.09.2025");
        assert_eq!(found, Some(Reading::One("2025-09-25".to_owned())));
    }

    #[test]
    fn a_date_with_two_readings_is_unclear_under_a_pattern() {
        for format in [None, Some("date")] {
            let found = read(format, r"^\d{4}-\d{2}-\d{2}$", "05/03/2026");
            let Some(Reading::Unclear(why)) = found else {
                panic!("{found:?}");
            };
            assert!(
                why.contains("2026-03-05") && why.contains("2026-05-03"),
                "{why}"
            );
        }
    }

    #[test]
    fn a_pattern_that_does_not_demand_a_date_changes_nothing() {
        for (pattern, text) in [
            (r"^[0-9-]+$", "25.09.2025"),
            (r"^\S+$", "1 September 2025"),
            (r"^\d+-\d+-\d+$", "25.09.2025"),
            (r"^[A-Z]{3}$", "25.09.2025"),
            // It wants what the text does not say: the zone.
            (
                r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$",
                "3 May 2026, 2:30 PM",
            ),
            // It may be a time of day, or nine minutes and five seconds.
            (r"^\d{2}:\d{2}:\d{2}$", "9:05"),
            // It is written as it is wanted.
            (r"^\d{2}\.\d{2}\.\d{4}$", "25.09.2025"),
            (r"^\d{4}-\d{2}-\d{2}$", "tomorrow"),
        ] {
            assert_eq!(read(None, pattern, text), None, "{pattern}: {text}");
        }
    }
}
