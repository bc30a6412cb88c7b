//! Docs of numeric constants that name neither a unit nor the thing that is counted. A reader of "The most that is kept."
//! has to look for the uses to learn whether it is bytes or entries.

use super::rust::NumericConstant;

/// Units, and nouns for numbers that have none: shares, versions, identifiers. In lower case, singular.
const UNITS: [&str; 86] = [
    "byte",
    "kib",
    "mib",
    "gib",
    "kb",
    "mb",
    "gb",
    "kilobyte",
    "megabyte",
    "gigabyte",
    "bit",
    "character",
    "char",
    "letter",
    "digit",
    "token",
    "word",
    "line",
    "row",
    "column",
    "page",
    "pixel",
    "dpi",
    "fuel",
    "nanosecond",
    "ns",
    "microsecond",
    "µs",
    "millisecond",
    "ms",
    "second",
    "s",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "year",
    "epoch",
    "tick",
    "percent",
    "permille",
    "%",
    "‰",
    "share",
    "ratio",
    "factor",
    "fraction",
    "weight",
    "score",
    "rank",
    "probability",
    "proportion",
    "multiple",
    "quotient",
    "slope",
    "exponent",
    "fold",
    "twice",
    "hertz",
    "cent",
    "dollar",
    "version",
    "format",
    "seed",
    "code",
    "id",
    "identifier",
    "port",
    "flag",
    "mask",
    "magic",
    "tag",
    "errno",
    "signal",
    "index",
    "offset",
    "multiplier",
    "depth",
    "nesting",
    "level",
    "degree",
    "integer",
    "utilization",
    "utilisation",
    "salt",
];

/// Nouns and phrases that name a time, for constants whose type has the unit.
const TIMES: [&str; 24] = [
    "time", "wait", "waits", "waiting", "timeout", "deadline", "interval", "delay", "age",
    "period", "pause", "lifetime", "duration", "latency", "grace", "expiry", "backoff", "long",
    "often", "apart", "silence", "old", "late", "window",
];

/// Ends of names that say in which unit the constant counts time.
const TIME_UNITS: [&str; 6] = ["_MS", "_SECONDS", "_SECS", "_MINUTES", "_HOURS", "_DAYS"];

/// Names of numbers that stand for themselves: the place of something that is absent.
const ABSENT: [&str; 2] = ["NO_", "NONE"];

/// First words after which no noun follows that is counted.
const NO_NOUNS: [&str; 15] = [
    "what", "where", "beyond", "above", "below", "as", "it", "they", "that", "those", "the same",
    "shown", "when", "with", "until",
];

/// Words that end the part of a sentence in which the counted thing is named.
const ENDS: [&str; 16] = [
    "that", "which", "whose", "who", "if", "when", "where", "unless", "until", "beyond", "above",
    "below", "than", "is", "are", "may",
];

/// Words that end with "s" and name nothing that is counted.
const NO_PLURALS: [&str; 23] = [
    "this",
    "does",
    "has",
    "was",
    "always",
    "less",
    "its",
    "is",
    "as",
    "bounds",
    "limits",
    "sizes",
    "counts",
    "others",
    "reasons",
    "lets",
    "means",
    "needs",
    "goes",
    "us",
    "besides",
    "sometimes",
    "perhaps",
];

/// Words of the first sentence among which the counted thing is looked for.
const HEAD_WORDS: usize = 7;

/// True if the doc of the constant leaves open what its number is of.
pub fn is_missing(constant: &NumericConstant) -> bool {
    let lines = constant.doc.lines.iter();
    let text: Vec<_> = lines.map(|line| line.text.to_lowercase()).collect();
    let text = text.join(" ");
    let words: Vec<_> = words(&text).collect();
    let is_unit = |word: &&str| {
        let singular = word.strip_suffix('s').unwrap_or(word);
        UNITS.contains(word) || UNITS.contains(&singular)
    };
    let name = constant.name.as_str();
    let has_time_unit = constant.is_duration || TIME_UNITS.iter().any(|unit| name.ends_with(unit));
    let is_time = |word: &&str| has_time_unit && TIMES.contains(word);
    let is_absent = ABSENT.iter().any(|begin| name.starts_with(begin));
    // `errSecItemNotFound`: the doc is the name that others gave the number.
    let is_foreign_name = text.starts_with('`');
    let names_one = words.iter().any(|word| is_unit(word) || is_time(word));
    !is_absent
        && !is_foreign_name
        && !names_one
        && !has_fraction(&text)
        && !names_counted_thing(&text)
}

/// True if the beginning of the first sentence has a noun in the plural: "Maximum entries of…", "Number of calls…".
fn names_counted_thing(text: &str) -> bool {
    let ends = [". ", ": ", "; "];
    let end = ends.iter().filter_map(|end| text.find(end)).min();
    let first = text.get(..end.unwrap_or(text.len())).unwrap_or(text);
    let is_without_noun = NO_NOUNS.iter().any(|begin| {
        first
            .strip_prefix(begin)
            .is_some_and(|rest| rest.starts_with(' '))
    });
    if is_without_noun {
        return false;
    }
    if first.starts_with("how many") || words(first).any(|word| word == "often") {
        return true;
    }
    let head = words(first).take_while(|word| !ENDS.contains(word));
    head.take(HEAD_WORDS).any(is_plural)
}

/// True for a text with "1/4".
fn has_fraction(text: &str) -> bool {
    let mut parts = text.split('/').peekable();
    while let Some(part) = parts.next() {
        let after = parts.peek().copied().unwrap_or_default();
        let is_digit = |letter: char| letter.is_ascii_digit();
        if part.ends_with(is_digit) && after.starts_with(is_digit) {
            return true;
        }
    }
    false
}

fn is_plural(word: &str) -> bool {
    let is_like_one = word.len() > 3 && word.ends_with('s') && !word.ends_with("ss");
    is_like_one && !word.ends_with("us") && !NO_PLURALS.contains(&word)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphabetic() && !matches!(letter, '%' | '‰'))
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prose::rust;

    fn is_missing_in(doc: &str, name: &str, kind: &str) -> bool {
        let text = format!("/// {doc}\nconst {name}: {kind} = X;\n");
        let prose = rust::read(&text).unwrap();
        is_missing(&prose.constants[0])
    }

    #[test]
    fn docs_without_a_noun_are_found() {
        for doc in [
            "The most that is kept.",
            "What the library allows.",
            "As for our own section.",
            "Shown unless the call says otherwise.",
            "A pattern beyond this is refused: it holds entries.",
            "Maximum time of a call.",
        ] {
            assert!(is_missing_in(doc, "MAX", "u64"), "{doc}");
        }
        assert!(is_missing_in("Bound of one export.", "MAX", "Duration"));
    }

    #[test]
    fn units_and_counted_things_are_enough() {
        for doc in [
            "Maximum body size in bytes.",
            "Room for 64 KiB.",
            "Files of more lines than this are listed.",
            "Most entries that are kept.",
            "How often a text may be encoded.",
            "llama.cpp refuses grammars that repeat more often.",
            "Capacity of the channel, in events.",
            "The summary may take 1/4 of the window.",
            "Version of the record.",
            "Maximum nesting.",
            "`errSecItemNotFound`.",
        ] {
            assert!(!is_missing_in(doc, "MAX", "usize"), "{doc}");
        }
    }

    #[test]
    fn times_have_their_unit_in_the_type_or_the_name() {
        let doc = "Longest wait for an answer.";
        assert!(!is_missing_in(doc, "WAIT", "Duration"));
        assert!(!is_missing_in(doc, "WAIT_MS", "u64"));
        assert!(is_missing_in(doc, "WAIT", "u64"));
        assert!(!is_missing_in("In the place of a name.", "NO_NAME", "u32"));
    }
}
