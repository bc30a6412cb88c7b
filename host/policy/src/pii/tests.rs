use super::*;
use proptest::prelude::*;
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

/// Digits beside a number, with nothing between, and groups as long as its own behind a separator of its own: twelve digits
/// of a longer number are no number of twelve digits, unless its name goes before.
#[test]
fn national_id_is_not_found_within_a_longer_number() {
    let ids = FOUND.iter().filter(|(kind, ..)| *kind == Kind::NationalId);
    let mut checked = 0;
    for (_, text, part) in ids {
        let is_digit = |c: char| c.is_ascii_digit();
        for digits in ["7", "42", "3333", "77777", "202411"] {
            let behind = format!("{part}{digits}");
            let before = format!("{digits}{part}");
            let is_run = [part.ends_with(is_digit), part.starts_with(is_digit)];
            for (run, _) in [behind, before].iter().zip(is_run).filter(|(_, it)| *it) {
                let text = text.replace(part, run);
                let found = find(&text, |kind| kind == Kind::NationalId);
                assert_eq!(found, [], "{text}");
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "{checked}");
    for text in [
        "2341 2341 2346 1111",
        "1111 2341 2341 2346",
        "2341-2341-2346-1111",
        "1 85 05 78 006 084 91 11",
    ] {
        assert_eq!(find(text, |kind| kind == Kind::NationalId), [], "{text}");
    }
}

/// Shields look for some kinds each: one that hides phones leaves the whole of a card to the one that hides cards.
#[test]
fn number_of_a_kind_that_is_not_wanted_is_no_shorter_number_of_another() {
    let texts = [
        (Kind::NationalId, "個人番号は4111 1111 1111 1111"),
        (Kind::NationalId, "個人番号は4111-1111-1111-1111です"),
        (Kind::NationalId, "個人番号は4111111111111111"),
        (Kind::Phone, "IBAN DE89 3704 0044 0532 0130 00"),
    ];
    for (kind, text) in texts {
        assert_eq!(find(text, |wanted| wanted == kind), [], "{text}");
    }
    let has_proof = |kind: &Kind| matches!(kind, Kind::Card | Kind::Iban | Kind::NationalId);
    for (kind, text, part) in FOUND.iter().filter(|(kind, ..)| has_proof(kind)) {
        let others = [Kind::Card, Kind::Iban, Kind::NationalId, Kind::Phone];
        for other in others.iter().filter(|other| *other != kind) {
            let found = find(text, |wanted| wanted == *other);
            assert_eq!(found, [], "{part} in {text} as {other:?}");
        }
    }
}

#[test]
fn national_ids_are_found_beside_each_other_and_a_postal_code() {
    let id = "2341 2341 2346";
    let found = kinds("2341 2341 2346 2341 2341 2346");
    assert_eq!(found, [(Kind::NationalId, id), (Kind::NationalId, id)]);
    let found = kinds("1 85 05 78 006 084 91 75001");
    assert_eq!(found, [(Kind::NationalId, "1 85 05 78 006 084 91")]);
}

#[test]
fn national_id_is_found_beside_dates_and_words_with_digits() {
    for (text, part) in [
        ("паспорт 4508 123456 01.02.2010", "4508 123456"),
        ("паспорт 4508123456 01.02.2010", "4508123456"),
        ("паспорт 4508123456, выдан в 2010", "4508123456"),
        ("01.02.2010 2341 2341 2346", "2341 2341 2346"),
        ("2341 2341 2346 5th", "2341 2341 2346"),
        ("SSN 536-22-1234 2024", "536-22-1234"),
    ] {
        assert_eq!(kinds(text), [(Kind::NationalId, part)], "{text}");
    }
}

proptest! {
    /// Groups of four digits, as cards and national numbers are printed: what is found for one kind is never a part of what
    /// is found for all.
    #[test]
    fn findings_of_one_kind_are_no_parts_of_others(
        groups in prop::collection::vec("[0-9]{1,6}", 1..8),
        separator in "[ -]?",
        name in prop::sample::select(vec!["個人番号", "ИНН", "паспорт", "СНИЛС", "IBAN DE", "+", ""]),
    ) {
        let text = format!("{name}{}", groups.join(separator.as_str()));
        let all = find(&text, |kind| matches!(kind, Kind::Card | Kind::Iban | Kind::NationalId));
        for kind in [Kind::Card, Kind::Iban, Kind::NationalId, Kind::Phone] {
            for finding in find(&text, |wanted| wanted == kind) {
                let is_part = all.iter().any(|other| {
                    other.kind != kind
                        && other.start <= finding.start
                        && finding.end <= other.end
                        && finding.end - finding.start < other.end - other.start
                });
                prop_assert!(!is_part, "{} {:?} in {:?}", text, finding, all);
            }
        }
    }
}

proptest! {
    /// Digits and spaces of any script in a value are those of ASCII, and the place is that of the text itself.
    #[test]
    fn values_are_found_in_digits_and_spaces_of_all_scripts(
        zero in prop::sample::select(vec!['0', '٠', '۰', '०', '๐', '０', '𝟎']),
        space in prop::sample::select(vec![' ', '\u{a0}', '\u{2009}', '\u{202f}', '\u{3000}']),
        sample in prop::sample::select(FOUND.to_vec()),
    ) {
        let (kind, text, part) = sample;
        let written = |c: char| match c.to_digit(10) {
            Some(digit) => char::from_u32(u32::from(zero) + digit).unwrap(),
            None if c == ' ' => space,
            None => c,
        };
        let part_so: String = part.chars().map(written).collect();
        let text = text.replace(part, &part_so);
        prop_assert_eq!(kinds(&text), [(kind, part_so.as_str())], "{}", text);
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
        "４",
        "\u{a0}1",
        "паспорт 4",
        "телефон 8916",
        "4111\t1111\t1111\t1111\t",
        "card 4111  1111  1111  ",
        "DE89\t3704\t",
        "4\u{200b}1",
        "x\u{e000}4\u{ad}",
        "\\\\n4",
    ] {
        let text = piece.repeat(200_000 / piece.len());
        let started = std::time::Instant::now();
        find(&text, |_| true);
        let took = started.elapsed();
        assert!(took.as_secs() < 20, "{piece:?}: {took:?}");
    }
}
