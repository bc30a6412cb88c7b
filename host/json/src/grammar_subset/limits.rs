//! Limits of lengths and numbers, and patterns of texts, for keywords that all grammars keep.

use super::joined::Joined;
use super::{FORMATS, MAX_REPETITIONS};
use serde_json::{Map, Value, json};

/// Numbers up to this one are whole in JSON readers that know no integers.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Keywords of a text. `max_string` bounds those that have no bound.
pub(super) fn put_text(joined: &Joined<'_>, max_string: Option<u32>, out: &mut Map<String, Value>) {
    let mut patterns = joined.each("pattern").filter_map(Value::as_str);
    // A pattern together with a length is ignored by two of three.
    if let Some(pattern) = patterns.find(|pattern| is_safe_pattern(pattern)) {
        out.insert("pattern".into(), json!(pattern));
        return;
    }
    let mut formats = joined.each("format").filter_map(Value::as_str);
    if let Some(format) = formats.find(|format| FORMATS.contains(format)) {
        out.insert("format".into(), json!(format));
        return;
    }
    put_bounds(joined, "minLength", "maxLength", None, out);
    if let (Some(max), None) = (max_string, joined.each("maxLength").next()) {
        let least = extreme(joined, "minLength", true).and_then(Value::as_u64);
        let most = u64::from(max).max(least.unwrap_or(0));
        if most <= u64::from(MAX_REPETITIONS) {
            out.insert("maxLength".into(), json!(most));
        }
    }
}

/// The greatest or the smallest number under `keyword`.
fn extreme<'s>(joined: &Joined<'s>, keyword: &str, is_greatest: bool) -> Option<&'s Value> {
    let mut found: Option<(f64, &'s Value)> = None;
    for value in joined.each(keyword) {
        let Some(number) = value.as_f64() else {
            continue;
        };
        let is_further = found.is_none_or(|(before, _)| {
            if is_greatest {
                number > before
            } else {
                number < before
            }
        });
        if is_further {
            found = Some((number, value));
        }
    }
    found.map(|(_, value)| value)
}

fn is_beyond_grammars(bound: &Value) -> bool {
    bound
        .as_f64()
        .is_some_and(|bound| bound > f64::from(MAX_REPETITIONS))
}

/// Bounds of a length, wider than what the author said and never narrower. `limit` is one that follows from other keywords.
pub(super) fn put_bounds(
    joined: &Joined<'_>,
    least: &str,
    most: &str,
    limit: Option<u64>,
    out: &mut Map<String, Value>,
) {
    let lower = extreme(joined, least, true).map(|bound| {
        if is_beyond_grammars(bound) {
            json!(MAX_REPETITIONS)
        } else {
            bound.clone()
        }
    });
    let limit = limit.map(Value::from);
    let upper = extreme(joined, most, false).cloned();
    let upper = match (upper, limit) {
        (Some(own), Some(limit)) if own.as_f64() <= limit.as_f64() => Some(own),
        (own, None) => own,
        (_, limit) => limit,
    };
    let upper = upper.filter(|bound| !is_beyond_grammars(bound));
    // Nothing fits both: a server would refuse the whole grammar.
    let is_empty = match (&lower, &upper) {
        (Some(lower), Some(upper)) => lower.as_f64() > upper.as_f64(),
        _ => false,
    };
    out.extend(lower.map(|bound| (least.to_owned(), bound)));
    if !is_empty {
        out.extend(upper.map(|bound| (most.to_owned(), bound)));
    }
}

/// Limits of a number, wider than what the author said and never narrower.
pub(super) fn put_limits(joined: &Joined<'_>, is_whole: bool, out: &mut Map<String, Value>) {
    let mut lowest: Option<f64> = None;
    for (keyword, is_lower) in [
        ("minimum", true),
        ("exclusiveMinimum", true),
        ("maximum", false),
        ("exclusiveMaximum", false),
    ] {
        let Some(limit) = extreme(joined, keyword, is_lower) else {
            continue;
        };
        let limit = if is_whole {
            match whole(limit, matches!(keyword, "minimum" | "exclusiveMaximum")) {
                Some(limit) => limit,
                None => continue,
            }
        } else {
            limit.clone()
        };
        let Some(number) = limit.as_f64() else {
            continue;
        };
        if is_lower {
            lowest = Some(lowest.map_or(number, |before| before.max(number)));
        } else if lowest.is_some_and(|lowest| number < lowest) {
            // Nothing fits both: a server would refuse the whole grammar.
            continue;
        }
        out.insert(keyword.to_owned(), limit);
    }
}

/// Returns a limit for whole numbers that allows what `limit` allows; `None` if servers cannot read such a number.
fn whole(limit: &Value, is_rounded_up: bool) -> Option<Value> {
    if limit.as_i64().is_some() {
        return Some(limit.clone());
    }
    let number = limit.as_f64().filter(|number| number.abs() <= MAX_EXACT)?;
    let number = if is_rounded_up {
        number.ceil()
    } else {
        number.floor()
    };
    Some(json!(number as i64))
}

/// Anchored at both ends, without an alternative that is not, and without the classes that llama.cpp reads as letters.
/// Repetitions are as few as grammars allow.
fn is_safe_pattern(pattern: &str) -> bool {
    let inner = pattern
        .strip_prefix('^')
        .and_then(|rest| rest.strip_suffix('$'));
    let Some(inner) = inner.filter(|inner| !inner.contains('\\') && !inner.contains("(?")) else {
        return false;
    };
    let (mut groups, mut is_class, mut before) = (0_usize, false, '^');
    for c in inner.chars() {
        match c {
            ']' if is_class && before != '[' => is_class = false,
            _ if is_class => {}
            '[' => is_class = true,
            '(' => groups += 1,
            ')' => groups = groups.saturating_sub(1),
            '|' if groups == 0 => return false,
            '^' | '$' => return false,
            _ => {}
        }
        before = c;
    }
    let counts = inner.split('{').skip(1);
    let counts = counts.filter_map(|rest| rest.split('}').next());
    let mut numbers = counts.flat_map(|count| count.split(','));
    // What is no count is a brace in a text or a class.
    numbers.all(|number| {
        let number = number.trim();
        let is_count = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        !is_count
            || number
                .parse::<u32>()
                .is_ok_and(|number| number <= MAX_REPETITIONS)
    })
}
