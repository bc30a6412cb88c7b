//! Generated replies for property tests, designed to be misread.

use super::call_object;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value};

/// `text` in pieces, cut wherever a character ends.
pub(super) fn cut<'t>(text: &'t str, cuts: &[Index]) -> Vec<&'t str> {
    let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    let mut cuts: Vec<usize> = match ends.len() {
        0 => Vec::new(),
        _ => cuts.iter().map(|cut| *cut.get(&ends)).collect(),
    };
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect()
}

pub(super) fn string() -> impl Strategy<Value = String> {
    let part = select(vec![
        "\"",
        "\\",
        "{",
        "}",
        "[",
        "]",
        "†",
        "††",
        ",",
        ":",
        "\n",
        "\t",
        "é",
        "😀",
        "\u{0}",
        " ",
        "a",
        "u0022",
        "{\"_tool\":\"x.y\"}",
        "{\"tool_name\":\"x.y\"}",
        "calls",
        "_tool",
        "```",
    ]);
    vec(part, 0..6).prop_map(|parts| parts.concat())
}

pub(super) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        string().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((name(), inner), 0..4).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// Names that could be mistaken for structure.
pub(super) fn name() -> impl Strategy<Value = String> {
    let known = select(vec![
        "calls",
        "output",
        "_tool",
        "_outputPath",
        "_scopes",
        "_reasoningForCall",
        "tool_name",
        "final_answer",
        "x",
    ]);
    prop_oneof![known.prop_map(Into::into), string()]
}

pub(super) fn arguments() -> impl Strategy<Value = Map<String, Value>> {
    vec((name(), value()), 0..4).prop_map(|members| {
        let members = members.into_iter().filter(|(name, _)| name != "_tool");
        members.collect()
    })
}

pub(super) fn tool() -> impl Strategy<Value = String> {
    select(vec!["calculator.evaluate", "files.read", "a.b"]).prop_map(Into::into)
}

pub(super) fn call() -> impl Strategy<Value = Value> {
    (tool(), arguments()).prop_map(|(tool, arguments)| call_object(tool, arguments))
}

/// The text of a solution in one of the ways that models write JSON.
pub(super) fn written() -> impl Strategy<Value = fn(&Value) -> String> {
    let compact: fn(&Value) -> String = |value| value.to_string();
    let pretty: fn(&Value) -> String = |value| format!(" \n{value:#}\u{a0}\n");
    let escaped: fn(&Value) -> String = |value| {
        let text = value.to_string();
        let units = text.encode_utf16().map(|unit| match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii() => char::from(byte).to_string(),
            _ => format!("\\u{unit:04x}"),
        });
        units.collect()
    };
    select(vec![compact, pretty, escaped])
}

/// A solution's members, `calls` anywhere among them, and its text.
pub(super) fn solution() -> impl Strategy<Value = (Value, String)> {
    (
        vec(call(), 0..5),
        vec(
            (select(vec!["meta", "advisors", "output", "other"]), value()),
            0..4,
        ),
        any::<Index>(),
        written(),
    )
        .prop_map(|(calls, members, at, write)| {
            let mut solution: Map<String, Value> = members
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect();
            let at = at.index(solution.len() + 1);
            solution.shift_insert(at, "calls".into(), calls.into());
            let solution = Value::from(solution);
            let text = write(&solution);
            (solution, text)
        })
}

/// Function calls, each with its arguments as text, which may be missing where there are none.
pub(super) fn functions() -> impl Strategy<Value = Vec<(String, String)>> {
    let call = (
        tool(),
        arguments(),
        select(vec!["", " ", "{}", "null"]),
        written(),
    )
        .prop_map(|(tool, arguments, none, write)| {
            let text = if arguments.is_empty() {
                none.to_owned()
            } else {
                // Around arguments goes only the white space of JSON.
                write(&arguments.into()).trim().to_owned() + "\n"
            };
            (tool.replace('.', "-"), text)
        });
    vec(call, 0..5)
}

pub(super) fn prose() -> impl Strategy<Value = String> {
    let part = select(vec![
        "Let me see: ",
        "\"",
        "}",
        "{curly}",
        "{ ",
        "{}",
        "{\"a\": 1}",
        "```json\n",
        "\n```",
        "†",
        "'",
        "[",
        "\\",
        "{\"note\": {\"tool_name\": \"x.y\"}}",
    ]);
    vec(part, 0..5).prop_map(|parts| {
        let text = parts.concat();
        // A brace before the object would be its beginning.
        text.replace("{ {", "{ . {")
            .replace("{ \"", "{ . \"")
            .replace("{ }", "{ . }")
            + "."
    })
}

/// Text that is nearly a reply: tokens in any order, or a solution with a part repeated or missing.
pub(super) fn nearly() -> impl Strategy<Value = String> {
    let token = select(vec![
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        ",",
        ":",
        " ",
        "\n",
        "\"calls\":[",
        "\"calls\"",
        "null",
        "17",
        "{\"_tool\":\"a.b\"}",
        "\"_tool\":\"a.b\"",
        "\"output\":",
        "{\"tool_name\":\"a.b\"",
        "†",
        "{\"final_answer\":1}",
        "\"arguments\":{",
        "<think>",
        "</think>\n",
        "\n</think>",
        "<tool_call>{\"name\":\"a.b\",\"arguments\":{}}</tool_call>",
        "<tool_call>",
        "</tool_call>\n",
        "</s>",
        "<|im_end|>\n",
        "<think></think>",
        "<|channel|>analysis<|message|>",
        "<|start|>assistant<|channel|>commentary<|message|>",
        "<|channel|>final<|message|>",
        "<|end|>",
        "{\"name\":\"a.b\",\"arguments\":{}}",
        "so ",
        "truefalse",
        "\u{feff}",
        "{\"calls\":[],\"output\":1}",
    ]);
    let tokens = vec(token, 0..20).prop_map(|tokens| tokens.concat());
    let hurt = (solution(), any::<[Index; 3]>()).prop_map(|((_, text), places)| {
        let chars: Vec<char> = text.chars().collect();
        let [a, b, c] = places.map(|place| place.index(chars.len() + 1));
        let parts = [&chars[..a], &chars[b.min(c)..b.max(c)], &chars[b..]];
        parts.concat().into_iter().collect()
    });
    prop_oneof![tokens, hurt, any::<String>()]
}

pub(super) fn cuts() -> impl Strategy<Value = Vec<Index>> {
    vec(any::<Index>(), 0..12)
}
