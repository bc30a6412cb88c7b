use super::*;
use samples::{FOUND, FREE};

fn kinds(text: &str) -> Vec<(Kind, &str)> {
    find(text, |_| true)
        .into_iter()
        .map(|finding| (finding.kind, &text[finding.start..finding.end]))
        .collect()
}

#[test]
fn exactly_the_personal_data_is_found() {
    for (kind, text, part) in FOUND {
        assert_eq!(kinds(text), [(*kind, *part)], "{text}");
    }
}

#[test]
fn numbers_and_words_are_left_alone() {
    for text in FREE {
        assert_eq!(kinds(text), [], "{text}");
    }
}

/// A letter of another script beside a value, and no space: as Chinese, Japanese and Thai are written, and as anybody may
/// write who wants a value not to be found.
#[test]
fn statement_000_83_values_are_found_beside_letters_of_all_scripts() {
    let letters = ('\u{80}'..'\u{20000}')
        .filter(|c| c.is_alphabetic() && !toolhold_text::continues_value(*c));
    // Some of each 512 characters.
    let letters: Vec<char> = letters
        .filter(|c| u32::from(*c) % 512 < 2 || "卡のカบ각мЯλאبक".contains(*c))
        .collect();
    assert!(letters.len() > 80, "{}", letters.len());
    let alone = FOUND
        .iter()
        .filter(|(kind, _, part)| kinds(part) == [(*kind, *part)]);
    for (kind, _, part) in alone {
        for letter in &letters {
            let text = format!("{letter}{part}{letter}");
            let found = find(&text, |_| true);
            let size = letter.len_utf8();
            // Letters of any script may be in an address.
            let is_covered = found
                .iter()
                .any(|it| it.kind == *kind && it.start <= size && it.end >= size + part.len());
            assert!(is_covered, "{text}: {found:?}");
        }
    }
}

#[test]
fn long_hostile_texts_take_their_time_and_no_more() {
    for piece in [
        "a@",
        "1 ",
        "+1",
        "0 ",
        "4-",
        "eyJ",
        "-----BEGIN PRIVATE KEY-----",
        "bearer ",
        "a.",
        "<email_",
        "Authorization:",
        "DE89 ",
        "é@é.",
        "\\n",
        "11",
    ] {
        let text = piece.repeat(200_000 / piece.len());
        let started = std::time::Instant::now();
        find(&text, |_| true);
        let took = started.elapsed();
        assert!(took.as_secs() < 20, "{piece:?}: {took:?}");
    }
}
