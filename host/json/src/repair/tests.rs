//! Faults that are repaired, what is refused, and that neither guesses.

use super::*;
use proptest::prelude::*;
use serde_json::json;

#[test]
fn faults_of_form_are_mended() {
    for (text, expect, repairs) in [
        // Around it.
        (
            "Sure!\n```json\n{\"a\": 1}\n```",
            json!({"a": 1}),
            &[RepairKind::TextBefore, RepairKind::CodeFence][..],
        ),
        ("```\n[1]\n```", json!([1]), &[RepairKind::CodeFence]),
        (
            "```json {\"a\": 1}```",
            json!({"a": 1}),
            &[RepairKind::CodeFence],
        ),
        (
            "```json\n{\"a\": 1}",
            json!({"a": 1}),
            &[RepairKind::CodeFence],
        ),
        (
            "{\"a\": 1} Done.",
            json!({"a": 1}),
            &[RepairKind::TextAfter],
        ),
        ("{\"a\": 1}}", json!({"a": 1}), &[RepairKind::TextAfter]),
        (
            "It is {\"a\": 1}",
            json!({"a": 1}),
            &[RepairKind::TextBefore],
        ),
        // Quotes.
        ("{'a': 'b'}", json!({"a": "b"}), &[RepairKind::SingleQuotes]),
        (
            "{'a': 'it\\'s'}",
            json!({"a": "it's"}),
            &[RepairKind::SingleQuotes, RepairKind::EscapedSingleQuote],
        ),
        (
            "{'a': 'say \"x\"'}",
            json!({"a": "say \"x\""}),
            &[RepairKind::SingleQuotes],
        ),
        (
            "{\"a\": \"it's\"} .",
            json!({"a": "it's"}),
            &[RepairKind::TextAfter],
        ),
        ("{“a”: “b”}", json!({"a": "b"}), &[RepairKind::SmartQuotes]),
        ("{‘a’: ‘b’}", json!({"a": "b"}), &[RepairKind::SmartQuotes]),
        ("{„a“: 1}", Value::Null, &[]),
        // Keys and commas.
        ("{a: 1}", json!({"a": 1}), &[RepairKind::BareKey]),
        (
            "{\"a\": [1, 2,],}",
            json!({"a": [1, 2]}),
            &[RepairKind::TrailingComma],
        ),
        (
            "{\"a\": 1 \"b\": 2}",
            json!({"a": 1, "b": 2}),
            &[RepairKind::MissingComma],
        ),
        ("[1 2]", json!([1, 2]), &[RepairKind::MissingComma]),
        (
            "{\"a\": 1, \"a\": 1,}",
            json!({"a": 1}),
            &[RepairKind::DoubledKey, RepairKind::TrailingComma],
        ),
        // Literals and numbers.
        (
            "{\"a\": True, \"b\": None, \"c\": [False]}",
            json!({"a": true, "b": null, "c": [false]}),
            &[RepairKind::PythonLiteral],
        ),
        (
            "{\"a\": .5, \"b\": +1, \"c\": 2.}",
            json!({"a": 0.5, "b": 1, "c": 2}),
            &[RepairKind::OddNumber],
        ),
        (
            "{\u{c}\"a\":\u{a0}1}",
            json!({"a": 1}),
            &[RepairKind::OddSpace],
        ),
        (
            "\u{a0}{\"a\": 1}\u{c}",
            json!({"a": 1}),
            &[RepairKind::OddSpace],
        ),
        // Ends.
        (
            "{\"a\": [{\"b\": \"c\"}",
            json!({"a": [{"b": "c"}]}),
            &[RepairKind::Unclosed],
        ),
        (
            "{\"a\": {\"b\": null}",
            json!({"a": {"b": null}}),
            &[RepairKind::Unclosed],
        ),
        (
            "{\"a\": \"b\"\n",
            json!({"a": "b"}),
            &[RepairKind::Unclosed],
        ),
        // Texts.
        (
            "{\"a\": \"x\ny\"}",
            json!({"a": "x\ny"}),
            &[RepairKind::LineBreakInText],
        ),
        (
            "{\"a\": \"\\d+\"}",
            json!({"a": "\\d+"}),
            &[RepairKind::StrayBackslash],
        ),
        (
            "{\"a\": 1 /* one */, // two\n \"b\": 2}",
            json!({"a": 1, "b": 2}),
            &[RepairKind::Comment],
        ),
        (
            "{\"a\": \"\\ud83d\\ude00\"} ok",
            json!({"a": "😀"}),
            &[RepairKind::TextAfter],
        ),
    ] {
        let repaired = repair(text, TextEnd::Own);
        let Some(repaired) = repaired else {
            assert_eq!(expect, Value::Null, "{text} was refused");
            continue;
        };
        assert_eq!(repaired.value, expect, "{text}");
        assert_eq!(repaired.repairs, repairs, "{text}");
    }
}

#[test]
fn ambiguous_text_is_refused() {
    for text in [
        "",
        "no JSON at all",
        "{",
        "[",
        "{\"a\": {",
        "{\"a\": [[",
        "{\"a\"",
        "{\"a\":",
        "{\"a\": ,",
        "{\"a\": }",
        "{: 1}",
        "{\"a\" 1}",
        "{\"a\": \"cut in the mid",
        "{'a': 'cut in the mid",
        "{“a”: “cut in the mid",
        "{\"a\": \"ends in a backslash\\",
        "{\"a\": 12",
        "{\"a\": tru",
        "{\"a\": Tru}",
        "{\"a\": 1,",
        "[1,",
        "[\"a\", \"b",
        "{\"a\": 1, \"a\": 2}",
        "{'a': 1, \"a\": 2}",
        "{\"a\": {\"b\": 1}, \"a\": {\"b\": 2}}",
        "{\"a\": NaN}",
        "{\"a\": Infinity}",
        "{\"a\": undefined}",
        "{\"a\": 0x1f}",
        "{\"a\": 1_000}",
        "{\"a\": 1,000}",
        "{\"a\": 007}",
        "{\"a\": 1,, \"b\": 2}",
        "{, \"a\": 1}",
        "{\"a\": [1}",
        "[1}",
        "{\"a\": 1} {\"a\": 2}",
        "{\"a\": 1} or [2]",
        "{\"a\": \"\\ud83d\"}",
        "{\"a\": \"\\u12\"}",
        "{\"a\": yes}",
        "{\"a\": b}",
        "{'a': 'it's'}",
        "{\"a\": \"say \"x\"\"}",
        "{\"a\": 1 /* without an end }",
        "{\"a\": ...}",
        "{<a>: 1}",
        "{x}",
    ] {
        assert_eq!(repair(text, TextEnd::Own), None, "{text}");
    }
    for text in ["{\"a\": [1", "{\"a\": [\"b\"", "{\"a\": 1", "{", "["] {
        assert_eq!(repair(text, TextEnd::Cut), None, "{text}");
    }
    assert_eq!(repair(&"[".repeat(1_000), TextEnd::Own), None);
}

/// Whatever it is made of, twice the text takes about twice the time.
#[test]
fn its_time_grows_with_the_text() {
    const SIZE: usize = 100_000;
    for part in [
        "[",
        "{",
        "{\"a\":",
        "'",
        "\"",
        "\\",
        "/*",
        "//\n",
        "/* */",
        "a",
        " ",
        "1",
        "1,",
        "[1],",
        "{\"a\":1,",
        "\\ud83d",
        "```",
        "```{",
        "“",
        "True,",
        "\n",
        "\u{0}",
        "{'a':'b'},",
    ] {
        for start in ["", "{", "[", "{\"a\": \"", "[\"", "{\"a\": 1, "] {
            let text = start.to_owned() + &part.repeat(SIZE / part.len());
            let begun = std::time::Instant::now();
            let _ = repair(&text, TextEnd::Own);
            // A step for every byte takes milliseconds; for every pair of bytes, minutes.
            let took = begun.elapsed();
            assert!(took.as_secs() < 5, "{start}{part}… took {took:?}");
        }
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec(("[a-z\"'\\\\{}]{0,6}", inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// JSON escapes those below U+0020 and no others.
#[test]
fn control_characters_that_json_allows_are_no_fault() {
    let text = "{\"a\": \"\u{7f}\u{85}\"}";
    let repaired = repair(text, TextEnd::Cut).unwrap();
    assert_eq!(repaired.value, json!({"a": "\u{7f}\u{85}"}));
    assert!(repaired.repairs.is_empty(), "{:?}", repaired.repairs);
}

proptest! {
    #[test]
    fn valid_json_is_read_unchanged(value in value(), pretty in any::<bool>()) {
        let wrapped = json!([value]);
        let text = if pretty { serde_json::to_string_pretty(&wrapped).unwrap() } else { wrapped.to_string() };
        let repaired = repair(&text, TextEnd::Cut).unwrap();
        prop_assert_eq!(repaired.value, wrapped);
        prop_assert!(repaired.repairs.is_empty(), "{:?}", repaired.repairs);
    }

    #[test]
    fn no_text_breaks_it(text in "[\\PC\n]{0,64}", end in prop_oneof![Just(TextEnd::Own), Just(TextEnd::Cut)]) {
        let _ = repair(&text, end);
    }

    /// Of a text that was cut, nothing is read that the whole does not begin with.
    #[test]
    fn closing_brackets_adds_no_values(value in value(), at in 0.0..1.0f64) {
        let text = json!({"k": value, "z": [1, "end"]}).to_string();
        let mut cut = (text.len() as f64 * at) as usize;
        while !text.is_char_boundary(cut) { cut -= 1; }
        if let Some(repaired) = repair(&text[..cut], TextEnd::Own) {
            prop_assert!(begins(&repaired.value, &serde_json::from_str(&text).unwrap()), "{} of {text}", repaired.value);
        }
    }
}

/// Whether every value of `part` stands at its place in `whole`.
fn begins(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => part
            .iter()
            .all(|(key, value)| whole.get(key).is_some_and(|other| begins(value, other))),
        (Value::Array(part), Value::Array(whole)) => {
            part.len() <= whole.len() && part.iter().zip(whole).all(|(a, b)| begins(a, b))
        }
        (part, whole) => part == whole,
    }
}
