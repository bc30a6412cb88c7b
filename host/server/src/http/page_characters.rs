//! Holds the page's sets of hidden characters to the host's, or writes them with `TOOLHOLD_UPDATE=1`.

use std::fmt::Write as _;
use toolhold_text::hidden::{FLAG_TAGS, table};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/page");

/// A regular expression without flag `u`, which JavaScript compares by units of UTF-16.
fn units(ranges: &[(char, char)]) -> String {
    let mut class = String::new();
    let mut pairs = String::new();
    for (first, last) in ranges {
        // Tabs and lines stay: the page shows them as what they are.
        if *first == '\0' {
            class.push_str("\\u0000-\\u0008\\u000b-\\u001f");
            continue;
        }
        let (first, last) = (u32::from(*first), u32::from(*last));
        if last <= 0xFFFF {
            push_range(&mut class, first, last);
            continue;
        }
        assert!(first > 0xFFFF, "no range crosses the first plane's end");
        let (lead, trail) = (|c: u32| 0xD7C0 + (c >> 10), |c: u32| 0xDC00 + (c & 0x3FF));
        let (mut from, to) = (first, last);
        while from <= to {
            // The rest of this lead unit, or as many whole ones as the range has.
            let is_whole = trail(from) == 0xDC00;
            let whole_end = (to + 1) / 0x400 * 0x400;
            let end = if is_whole && whole_end > from {
                whole_end - 1
            } else {
                to.min(from | 0x3FF)
            };
            pairs.push('|');
            class_of(&mut pairs, lead(from), lead(end));
            class_of(&mut pairs, trail(from), trail(end));
            from = end + 1;
        }
    }
    format!("/[{class}]{pairs}/g")
}

fn class_of(out: &mut String, first: u32, last: u32) {
    if first == last {
        let _ = write!(out, "\\u{first:04x}");
    } else {
        let _ = write!(out, "[\\u{first:04x}-\\u{last:04x}]");
    }
}

fn push_range(out: &mut String, first: u32, last: u32) {
    let _ = write!(out, "\\u{first:04x}");
    if first < last {
        let _ = write!(out, "-\\u{last:04x}");
    }
}

/// A regular expression for one whole character.
fn class(ranges: &[(char, char)]) -> String {
    let mut class = String::new();
    for (first, last) in ranges {
        let _ = write!(class, "\\u{{{:x}}}", u32::from(*first));
        if first < last {
            let _ = write!(class, "-\\u{{{:x}}}", u32::from(*last));
        }
    }
    format!("/[{class}]/u")
}

fn flags() -> String {
    let escaped = |tags: &&str| {
        let each: Vec<_> = tags
            .chars()
            .map(|c| format!("\\u{{{:x}}}", u32::from(c)))
            .collect();
        format!("\"{}\"", each.concat())
    };
    format!(
        "[{}]",
        FLAG_TAGS.iter().map(escaped).collect::<Vec<_>>().join(", ")
    )
}

#[test]
fn the_page_hides_the_same_characters_as_the_host() {
    let sets = [
        ("dom.js", "HIDDEN", units(table::HIDDEN)),
        ("characters.js", "JOINING", class(table::JOINING)),
        ("characters.js", "EMOJI", class(table::EMOJI)),
        ("characters.js", "IDEOGRAPHS", class(table::IDEOGRAPHS)),
        ("characters.js", "FLAG_TAGS", flags()),
    ];
    for (file, name, value) in sets {
        let path = format!("{PAGE}/{file}");
        let text = std::fs::read_to_string(&path).unwrap();
        let line = format!("const {name} = {value};");
        if text.lines().any(|each| each == line) {
            continue;
        }
        let begin = format!("const {name} = ");
        assert!(
            std::env::var_os("TOOLHOLD_UPDATE").is_some(),
            "{file}: {name} is not the host's table; TOOLHOLD_UPDATE=1 writes it"
        );
        let lines = text.lines().map(|each| {
            if each.starts_with(&begin) {
                line.as_str()
            } else {
                each
            }
        });
        let written: Vec<&str> = lines.collect();
        std::fs::write(path, written.join("\n") + "\n").unwrap();
    }
}
