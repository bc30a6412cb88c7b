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
