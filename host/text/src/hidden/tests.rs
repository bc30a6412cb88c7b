//! The table against Unicode's data, and texts of many languages.

use super::*;
use proptest::prelude::*;
use regex_syntax::hir::{Class, HirKind};
use serde_json::Value;
use std::fmt::Write as _;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/hidden/table.rs");
/// Texts that stay as they are, and texts in which something is hidden; the page is tested with the same ones.
const TEXTS: &str = include_str!("../../../../tests/fixtures/hidden_characters.json");

/// Name, documentation and class of each set, in the syntax of `regex-syntax`.
const SETS: [(&str, &str, &str); 4] = [
    (
        "HIDDEN",
        "Default ignorable characters of Unicode, controls, marks of direction and other format characters (but not those \
         that are drawn around numbers), separators of lines, noncharacters, private use, and blank characters that \
         Unicode calls symbols or marks: blank Braille, the object replacement character, the Khitan filler and the \
         null notehead.",
        r"[\p{Default_Ignorable_Code_Point}\p{Bidi_Control}\p{Cc}\p{Co}\p{Zl}\p{Zp}\p{Noncharacter_Code_Point}[\p{Cf}--\p{Prepended_Concatenation_Mark}]\x{2800}\x{FFFC}\x{16FE4}\x{1D159}]",
    ),
    (
        "JOINING",
        "Letters and marks of scripts that have joiners, or marks of direction, in ordinary text; not the accents that \
         Latin letters have too.",
        r"[[\p{L}\p{M}]&&[\p{scx=Arabic}\p{scx=Hebrew}\p{scx=Syriac}\p{scx=Thaana}\p{scx=Nko}\p{scx=Mongolian}\p{scx=Mandaic}\p{scx=Manichaean}\p{scx=Adlam}\p{scx=Hanifi_Rohingya}\p{scx=Phags_Pa}\p{scx=Devanagari}\p{scx=Bengali}\p{scx=Gurmukhi}\p{scx=Gujarati}\p{scx=Oriya}\p{scx=Tamil}\p{scx=Telugu}\p{scx=Kannada}\p{scx=Malayalam}\p{scx=Sinhala}\p{scx=Thai}\p{scx=Lao}\p{scx=Tibetan}\p{scx=Myanmar}\p{scx=Khmer}\p{scx=Balinese}\p{scx=Javanese}\p{scx=Tai_Tham}\p{scx=Meetei_Mayek}\p{scx=Chakma}\p{scx=Grantha}\p{scx=Newa}\p{scx=Brahmi}\p{scx=Egyptian_Hieroglyphs}]--[\p{Default_Ignorable_Code_Point}\x{0250}-\x{036F}]]",
    ),
    (
        "EMOJI",
        "Emoji beside digits and signs of ASCII.",
        r"[\p{Emoji}--\p{ASCII}]",
    ),
    (
        "IDEOGRAPHS",
        "Chinese characters, whose variants variation selectors choose.",
        r"[\p{Script=Han}]",
    ),
];

fn ranges(class: &str) -> Vec<(char, char)> {
    let parsed = regex_syntax::parse(class).expect("a class");
    let HirKind::Class(Class::Unicode(class)) = parsed.kind() else {
        panic!("{class} is no class of characters");
    };
    class
        .ranges()
        .iter()
        .map(|it| (it.start(), it.end()))
        .collect()
}

fn generated() -> String {
    let mut out = String::from(
        "//! Sets of characters, as ranges in order. Written by the test `the_table_is_what_unicode_says` with\n\
         //! `TOOLHOLD_UPDATE=1`; the classes are in `tests.rs`.\n",
    );
    for (name, doc, class) in SETS {
        out.push('\n');
        let mut line = String::from("///");
        for word in doc.split(' ') {
            if line.len() + word.len() >= 116 {
                let _ = writeln!(out, "{line}");
                line = String::from("///");
            }
            let _ = write!(line, " {word}");
        }
        let _ = writeln!(
            out,
            "{line}\n#[rustfmt::skip]\npub const {name}: &[(char, char)] = &["
        );
        for four in ranges(class).chunks(4) {
            let each = four.iter().map(|(first, last)| {
                format!(
                    "('\\u{{{:04X}}}', '\\u{{{:04X}}}'),",
                    u32::from(*first),
                    u32::from(*last)
                )
            });
            let _ = writeln!(out, "    {}", each.collect::<Vec<_>>().join(" "));
        }
        out.push_str("];\n");
    }
    out
}

#[test]
fn printable_ascii_is_seen_and_stays_on_its_line() {
    for c in '\0'..='\u{FF}' {
        let text = format!("a{c}b");
        let is_plain = characters(&text).all(|(c, is_hidden)| !is_hidden && !c.is_control());
        assert_eq!(is_printable_ascii(&text), is_plain && c.is_ascii(), "{c:?}");
    }
}

#[test]
fn the_table_is_what_unicode_says() {
    let generated = generated();
    if std::env::var_os("TOOLHOLD_UPDATE").is_some() {
        std::fs::write(TABLE, &generated).unwrap();
        return;
    }
    let written = std::fs::read_to_string(TABLE).unwrap();
    assert!(
        written == generated,
        "host/text/src/hidden/table.rs is not what Unicode says; TOOLHOLD_UPDATE=1 writes it anew"
    );
}

#[test]
fn each_character_of_a_class_is_found() {
    for (set, (_, _, class)) in [
        table::HIDDEN,
        table::JOINING,
        table::EMOJI,
        table::IDEOGRAPHS,
    ]
    .into_iter()
    .zip(SETS)
    {
        for (first, last) in ranges(class) {
            assert!(is_in(set, first) && is_in(set, last), "{first:?} {last:?}");
        }
    }
    for c in [
        'a', 'ß', 'é', '日', '\u{301}', '🦀', '\u{A0}', '\u{3000}', '\u{FFFD}', '\u{600}',
    ] {
        assert!(!is_hidden(c), "{c:?}");
    }
    for c in [
        '\n',
        '\u{85}',
        '\u{2800}',
        '\u{3164}',
        '\u{17B4}',
        '\u{1D173}',
        '\u{E0041}',
        '\u{E01EF}',
        '\u{FFFE}',
        '\u{10FFFF}',
        '\u{E000}',
    ] {
        assert!(is_hidden(c), "{c:?}");
    }
}

fn hidden_of(text: &str) -> String {
    let hidden = characters(text).filter(|(_, is_hidden)| *is_hidden);
    hidden.map(|(c, _)| c).collect()
}

#[test]
fn texts_of_all_languages_stay_and_others_do_not() {
    let texts: Value = serde_json::from_str(TEXTS).unwrap();
    let list = |key: &str| texts[key].as_array().unwrap().clone();
    for text in list("ordinary") {
        assert_eq!(hidden_of(text.as_str().unwrap()), "", "{text}");
    }
    for case in list("hiding") {
        let text = case["text"].as_str().unwrap();
        assert_eq!(
            hidden_of(text),
            case["hidden"].as_str().unwrap(),
            "{text:?}"
        );
    }
}

#[test]
fn hidden_characters_in_a_row_never_stay() {
    for text in [
        "❤\u{fe0f}\u{fe0f}",
        "می\u{200c}\u{200c}\u{200d}خ",
        "日\u{e0100}\u{e0101}",
        "क\u{200d}\u{200d}\u{200c}",
    ] {
        let stays = characters(text)
            .filter(|(c, hidden)| is_hidden(*c) && !hidden)
            .count();
        assert_eq!(stays, 1, "{text:?}");
    }
}

#[test]
fn pieces_come_to_the_same_as_the_whole_text() {
    let texts: Value = serde_json::from_str(TEXTS).unwrap();
    let ordinary = texts["ordinary"].as_array().unwrap();
    let hiding = texts["hiding"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| &case["text"]);
    for text in ordinary.iter().chain(hiding) {
        let text = text.as_str().unwrap();
        let mut reader = PieceReader::default();
        let mut read = Vec::new();
        for c in text.chars() {
            read.extend(reader.push(&c.to_string()));
        }
        read.extend(reader.end());
        assert_eq!(read, characters(text).collect::<Vec<_>>(), "{text:?}");
    }
}

proptest! {
    /// No character is lost, and no hidden one stays where letters of Latin script are its neighbours.
    #[test]
    fn a_hidden_character_between_latin_letters_never_stays(c in any::<char>()) {
        let text = format!("a{c}b");
        let read: Vec<(char, bool)> = characters(&text).collect();
        prop_assert_eq!(read.iter().map(|(c, _)| *c).collect::<String>(), text);
        prop_assert_eq!(read[1].1, is_hidden(c) && !is_private(c));
    }
}
