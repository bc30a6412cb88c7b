//! A short account of the difference between two texts.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Bound of the lines that are printed for each side.
const MAX_LINES: usize = 12;

/// The lines that only one text has; nothing if the texts are the same.
pub fn between(before: &str, after: &str) -> Option<String> {
    if before == after {
        return None;
    }
    let mut counts: BTreeMap<&str, isize> = BTreeMap::new();
    for line in before.lines() {
        *counts.entry(line).or_default() -= 1;
    }
    for line in after.lines() {
        *counts.entry(line).or_default() += 1;
    }
    let mut text = String::new();
    for (mark, sign) in [('-', -1), ('+', 1)] {
        let only = counts.iter().filter(|(_, count)| **count * sign > 0);
        let only: Vec<&str> = only.map(|(line, _)| *line).collect();
        for line in only.iter().take(MAX_LINES) {
            let _ = writeln!(text, "{mark} {line}");
        }
        if let Some(more @ 1..) = only.len().checked_sub(MAX_LINES) {
            let _ = writeln!(text, "{mark} and {more} more");
        }
    }
    if text.is_empty() {
        text.push_str("the same lines in another order\n");
    }
    Some(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_one_side_are_told() {
        assert_eq!(between("a\nb\n", "a\nb\n"), None);
        assert_eq!(between("a\nb\n", "a\nc\n").unwrap(), "- b\n+ c");
        assert_eq!(
            between("a\nb\n", "b\na\n").unwrap(),
            "the same lines in another order"
        );
        let many = "abcdefghijklmnopqrst".replace("", "\n");
        assert!(between(&many, "").unwrap().ends_with("- k\n- and 9 more"));
    }
}
