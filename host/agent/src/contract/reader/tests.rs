//! The pieces of a streamed reply equal the complete reply, however it is cut.

use super::generated::*;
use super::*;
use crate::contract::tests::read_completion;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;
use toolhold_json::repair::RepairKind;
use toolhold_protocol::completion::{ChatToolCall, Completion};
use toolhold_protocol::solution::Call;
use toolhold_protocol::solution::Solution;

fn content(text: &str) -> Delta {
    Delta::Content(text.to_owned())
}

fn function(index: usize, name: Option<&str>, arguments: &str) -> Delta {
    Delta::ToolCall {
        index,
        id: None,
        name: name.map(Into::into),
        arguments: arguments.to_owned(),
    }
}

fn contents(text: &str, cuts: &[Index]) -> Vec<Delta> {
    cut(text, cuts).into_iter().map(content).collect()
}

fn pieces(contract: Contract, deltas: &[Delta]) -> Vec<ReplyPart> {
    let mut reader = ReplyReader::new(contract, &offered());
    let mut pieces: Vec<_> = deltas.iter().flat_map(|delta| reader.push(delta)).collect();
    pieces.extend(reader.finish());
    pieces
}

fn calls(pieces: &[ReplyPart]) -> Vec<Value> {
    let mut calls = Vec::new();
    for piece in pieces {
        if let ReplyPart::Call { index, call } = piece {
            assert_eq!(*index, calls.len());
            assert_eq!(call.as_object().unwrap().keys().next().unwrap(), "_tool");
            calls.push(call.clone());
        }
    }
    calls
}

fn asked(pieces: &[ReplyPart]) -> Vec<Call> {
    let calls = calls(pieces).into_iter();
    calls.map(|call| Call::read(call).unwrap()).collect()
}

fn offered() -> Vec<Arc<Tool>> {
    ["calculator.evaluate", "files.read", "a.b"]
        .map(|name| Arc::new(Tool::new(name)))
        .into()
}

fn read(contract: Contract, completion: &Completion) -> Result<Solution, String> {
    read_completion(contract, completion, &offered())
}

fn read_text(contract: Contract, text: &str) -> Result<Solution, String> {
    let completion = Completion {
        content: text.to_owned(),
        ..Completion::default()
    };
    read(contract, &completion)
}

fn completion(functions: &[(String, String)]) -> Completion {
    let calls = functions.iter().map(|(name, arguments)| ChatToolCall {
        id: String::new(),
        name: name.clone(),
        arguments: arguments.clone(),
        ..ChatToolCall::default()
    });
    Completion {
        content: "Here you are.".into(),
        tool_calls: calls.collect(),
        ..Completion::default()
    }
}

proptest! {
    #[test]
    fn a_solution_gives_its_calls_and_members((solution, text) in solution(), cuts in cuts()) {
        let given = pieces(Contract::Schema, &contents(&text, &cuts));
        prop_assert_eq!(json!(calls(&given)), solution["calls"].clone());
        let fields: Map<String, Value> = given
            .iter()
            .filter_map(|piece| match piece {
                ReplyPart::Field { name, value } => Some((name.clone(), value.clone())),
                ReplyPart::Call { .. } => None,
            })
            .collect();
        let mut expected = solution.as_object().unwrap().clone();
        expected.shift_remove("calls");
        prop_assert_eq!(fields, expected);
        match read_text(Contract::Schema, &text) {
            Ok(solution) => prop_assert_eq!(asked(&given), solution.calls),
            // Nothing to do is a fault of the reply and none of its form.
            Err(reason) => prop_assert!(reason.contains("neither a call nor an output")),
        }
    }

    #[test]
    fn function_calls_give_calls(functions in functions(), cuts in cuts(), output in proptest::option::of(value())) {
        let mut functions = functions;
        if let Some(output) = output.filter(|output| !output.is_null()) {
            functions.insert(functions.len() / 2, ("finish".into(), json!({"output": output}).to_string()));
        }
        let mut deltas = Vec::new();
        for (index, (name, arguments)) in functions.iter().enumerate() {
            deltas.push(function(index, Some(name), ""));
            let pieces = cut(arguments, &cuts).into_iter();
            deltas.extend(pieces.map(|piece| function(index, None, piece)));
        }
        let given = pieces(Contract::Tools, &deltas);
        let solution = read(Contract::Tools, &completion(&functions)).unwrap();
        prop_assert_eq!(asked(&given), solution.calls);
        if functions.iter().any(|(name, _)| name == "finish") {
            let output = solution.output.unwrap();
            prop_assert!(given.contains(&ReplyPart::field("output", output)));
        }
    }

    #[test]
    fn function_calls_that_grow_side_by_side_stay_in_order(arguments in vec(arguments(), 1..5)) {
        let texts: Vec<String> = arguments.into_iter().map(|a| Value::from(a).to_string()).collect();
        let mut deltas: Vec<_> = (0..texts.len()).map(|index| function(index, Some("a-b"), "{")).collect();
        let longest = texts.iter().map(|text| text.chars().count()).max().unwrap();
        for at in 1..longest {
            for (index, text) in texts.iter().enumerate() {
                let piece: String = text.chars().skip(at).take(1).collect();
                deltas.push(function(index, None, &piece));
            }
        }
        let functions: Vec<_> = texts.iter().map(|text| ("a-b".into(), text.clone())).collect();
        let solution = read(Contract::Tools, &completion(&functions)).unwrap();
        prop_assert_eq!(asked(&pieces(Contract::Tools, &deltas)), solution.calls);
    }

    #[test]
    fn the_first_object_of_a_reply_is_the_call(
        tool in tool(), arguments in arguments(), around in (prose(), prose()), write in written(), cuts in cuts(),
    ) {
        let object = json!({"tool_name": tool, "arguments": arguments});
        let text = [around.0, write(&object), around.1].concat();
        let given = pieces(Contract::Simple, &contents(&text, &cuts));
        prop_assert_eq!(calls(&given), [call_object(tool, arguments)]);
        prop_assert_eq!(asked(&given), read_text(Contract::Simple, &text).unwrap().calls);
    }

    /// For any text: no panic, no matter where it is cut; no more memory than text; what a part of
    /// it gave the whole of it gives too; and where the contract finds a solution its calls are
    /// those that were given.
    #[test]
    fn any_text_is_read(text in nearly(), cuts in cuts()) {
        for contract in Contract::ALL {
            let deltas = match contract {
                Contract::Schema | Contract::Simple => contents(&text, &cuts),
                Contract::Tools => {
                    let pieces = cut(&text, &cuts).into_iter();
                    pieces.map(|piece| function(0, Some("a-b"), piece)).collect()
                }
            };
            let mut reader = ReplyReader::new(contract, &offered());
            let whole = pieces(contract, &deltas);
            let mut given = Vec::new();
            let mut pushed = 0;
            for delta in &deltas {
                if let Delta::Content(text) | Delta::ToolCall { arguments: text, .. } = delta {
                    pushed += text.len();
                }
                given.extend(reader.push(delta));
                // The name of a member that has no value yet is there twice.
                prop_assert!(reader.held() <= 2 * pushed);
                prop_assert_eq!(&given[..], &whole[..given.len()]);
            }
            given.extend(reader.finish());
            prop_assert_eq!(reader.held(), 0);
            let solution = match contract {
                Contract::Tools => read(contract, &completion(&[("a-b".into(), text.clone())])),
                _ => {
                    prop_assert_eq!(&given, &pieces(contract, &[content(&text)]));
                    read_text(contract, &text)
                }
            };
            if let Ok(mut solution) = solution {
                if !solution.repairs.is_empty() {
                    // From a reply that had to be repaired, the calls before the fault were taken.
                    solution.calls.truncate(asked(&given).len());
                }
                prop_assert_eq!(asked(&given), solution.calls);
            }
        }
    }
}

#[test]
fn a_call_is_given_at_its_last_brace() {
    let text = r#"{"calls":[{"_tool":"a.b","x":{"y":"}"}},{"_tool":"c.d"}],"output":null}"#;
    let mut reader = ReplyReader::new(Contract::Schema, &offered());
    let mut given = Vec::new();
    for (at, c) in text.char_indices() {
        for piece in reader.push(&content(&c.to_string())) {
            given.push((at, piece));
        }
    }
    let call = |index, call| ReplyPart::Call { index, call };
    assert_eq!(
        given,
        [
            (
                text.find("}},{").unwrap() + 1,
                call(0, json!({"_tool": "a.b", "x": {"y": "}"}}))
            ),
            (text.find("}]").unwrap(), call(1, json!({"_tool": "c.d"}))),
            (text.len() - 1, ReplyPart::field("output", Value::Null)),
        ]
    );
}

#[test]
fn a_function_call_is_given_when_it_ends() {
    let mut reader = ReplyReader::new(Contract::Tools, &offered());
    let mut push = |index, name, arguments| {
        let pieces = reader.push(&function(index, name, arguments));
        calls(&pieces.into_iter().map(renumbered).collect::<Vec<_>>())
    };
    let call = |tool: &str| json!({"_tool": tool});
    assert!(push(0, Some("a-b"), "{\"x\":").is_empty());
    assert_eq!(push(0, None, "1}"), [json!({"_tool": "a.b", "x": 1})]);
    assert!(push(1, Some("c-d"), "").is_empty(), "arguments may follow");
    assert!(push(2, Some("e-f"), "{}").is_empty(), "also after the next");
    let last: Vec<Value> = reader.finish().into_iter().map(call_of).collect();
    assert_eq!(last, [call("c.d"), call("e.f")]);
}

/// The record of a run of format 3 has it so.
#[test]
fn a_function_call_without_arguments_was_given_when_the_next_one_began() {
    let mut reader = ReplyReader::new(Contract::Tools, &offered()).under(ReadingRules::Format3);
    for (index, arguments, given) in [(0, "", vec![]), (1, "{}", vec!["a.b", "a.b"])] {
        let parts = reader.push(&function(index, Some("a-b"), arguments));
        let tools: Vec<Value> = parts
            .into_iter()
            .map(|part| call_of(part)["_tool"].clone())
            .collect();
        assert_eq!(tools, given, "{index}");
    }
}

/// A reply that lost arguments makes only the calls with their own arguments.
#[test]
fn a_call_whose_arguments_may_be_lost_is_not_given() {
    let named = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
    let lost = completion(&[named("a-b", "{\"x\":1}"), named("files-read", "")]);
    for (reply, given) in [
        (
            Completion {
                unplaced: 1,
                ..lost.clone()
            },
            1,
        ),
        (
            Completion {
                finish_reason: Some("length".into()),
                ..lost.clone()
            },
            1,
        ),
        (lost, 2),
    ] {
        let mut reader = ReplyReader::new(Contract::Tools, &offered());
        let mut parts = reader.push(&function(0, Some("a-b"), "{\"x\":1}"));
        parts.extend(reader.push(&function(1, Some("files-read"), "")));
        parts.extend(reader.finish_of(&reply, &Provenance::default()));
        assert_eq!(parts.len(), given, "{reply:?}");
        let read = read(Contract::Tools, &reply);
        assert_eq!(read.is_ok(), given == 2, "{read:?}");
        let words = read.err().unwrap_or_default();
        assert!(given == 2 || words.contains("arguments"), "{words}");
    }
}

fn call_of(part: ReplyPart) -> Value {
    match part {
        ReplyPart::Call { call, .. } => call,
        ReplyPart::Field { .. } => panic!("{part:?}"),
    }
}

/// As if it were the first, which `calls` expects.
fn renumbered(piece: ReplyPart) -> ReplyPart {
    match piece {
        ReplyPart::Call { call, .. } => ReplyPart::Call { index: 0, call },
        field @ ReplyPart::Field { .. } => field,
    }
}

#[test]
fn only_calls_of_the_solution_count() {
    let a = json!({"_tool": "a.b"});
    for (contract, text, expected) in [
        (
            Contract::Schema,
            r#"{"meta":{"calls":[{"_tool":"x.y"}]},"calls":[{"_tool":"a.b"}]}"#,
            vec![a.clone()],
        ),
        (
            Contract::Schema,
            r#"{"output":[{"_tool":"x.y"}],"calls":[]}"#,
            vec![],
        ),
        (
            Contract::Schema,
            r#"{"calls":[{"_tool":"a.b"}]}{"calls":[{"_tool":"x.y"}]}"#,
            vec![a.clone()],
        ),
        (
            Contract::Schema,
            r#"{"calls":[{"_tool":"a.b"}],"calls":[{"_tool":"x.y"}]}"#,
            vec![a.clone()],
        ),
        (Contract::Schema, r#"{"calls":[[{"_tool":"x.y"}]]}"#, vec![]),
        (
            Contract::Schema,
            r#"{"calls":{"0":{"_tool":"x.y"}}}"#,
            vec![],
        ),
        (
            Contract::Schema,
            r#"{"calls":"[{\"_tool\":\"x.y\"}]"}"#,
            vec![],
        ),
        (Contract::Schema, r#"[{"calls":[{"_tool":"x.y"}]}]"#, vec![]),
        (
            Contract::Schema,
            r#"I call: {"calls":[{"_tool":"x.y"}]}"#,
            vec![],
        ),
        (
            Contract::Schema,
            r#"{"calls":[{"_tool":"a.b"},{"tool":"x.y"},{"_tool":"x.y"}]}"#,
            vec![a.clone()],
        ),
        (
            Contract::Schema,
            r#"{"calls":[{"_tool":"a.b"} {"_tool":"x.y"}]}"#,
            vec![a.clone()],
        ),
        (
            Contract::Schema,
            r#"{"calls":[{"_tool":"a.b"},]}"#,
            vec![a.clone()],
        ),
        (
            Contract::Schema,
            r#"{"c\u0061lls":[{"_tool":"a.b"}]}"#,
            vec![a.clone()],
        ),
        (
            Contract::Simple,
            r#"{"note":{"tool_name":"x.y"}} {"tool_name":"a.b"}"#,
            vec![a.clone()],
        ),
        (
            Contract::Simple,
            r#"{"tool_name":"a.b"} {"tool_name":"x.y"}"#,
            vec![a.clone()],
        ),
        (
            Contract::Simple,
            r#"{"final_answer":{"tool_name":"x.y"}}"#,
            vec![],
        ),
        (
            Contract::Simple,
            r#"{"say": "he said "no"", "x": {"tool_name":"x.y"}}"#,
            vec![],
        ),
        (
            Contract::Simple,
            r#"{"tool_name":"a.b","final_answer":"made up"}"#,
            vec![],
        ),
        (Contract::Tools, r#"{"calls":[{"_tool":"x.y"}]}"#, vec![]),
    ] {
        assert_eq!(
            calls(&pieces(contract, &[content(text)])),
            expected,
            "{text}"
        );
    }
}

/// A thought is kept apart in every contract, wherever the stream is cut; a call after it starts as soon
/// as without one.
#[test]
fn a_thought_before_the_reply_changes_nothing() {
    let a = json!({"_tool": "a.b", "x": 1});
    for (contract, reply) in [
        (
            Contract::Schema,
            r#"{"calls":[{"_tool":"a.b","x":1}],"output":null}"#,
        ),
        (
            Contract::Simple,
            r#"{"tool_name":"a.b","arguments":{"x":1}}"#,
        ),
        (
            Contract::Schema,
            "<tool_call>{\"name\":\"a-b\",\"arguments\":{\"x\":1}}</tool_call>\n",
        ),
        (
            Contract::Simple,
            "<tool_call>{\"name\":\"a-b\",\"arguments\":{\"x\":1}}</tool_call>\n",
        ),
    ] {
        for thought in [
            "",
            "<think>I call {\"tool_name\":\"x.y\"} or not.</think>\n",
            "<reasoning>\n{\"calls\":[{\"_tool\":\"x.y\"}]}\n</reasoning>",
            "I write {\"tool_name\":\"x.y\"}, no.\n</think>\n\n",
            "I write\n<tool_call>{\"name\":\"files.read\"}</tool_call>\n, no.\n</think>\n\n",
            "</think>",
        ] {
            let text = thought.to_owned() + reply;
            for size in [1, 3, text.len()] {
                let chars: Vec<char> = text.chars().collect();
                let deltas: Vec<_> = chars
                    .chunks(size)
                    .map(|chunk| content(&chunk.iter().collect::<String>()))
                    .collect();
                let given = pieces(contract, &deltas);
                assert_eq!(
                    calls(&given),
                    std::slice::from_ref(&a),
                    "{contract:?} {text}"
                );
                // The last character completes it, not the end.
                let mut reader = ReplyReader::new(contract, &offered());
                let early: Vec<_> = deltas.iter().flat_map(|delta| reader.push(delta)).collect();
                assert!(size == text.len() || early.len() == given.len(), "{text}");
            }
            let solution = read_text(contract, &text).unwrap();
            assert_eq!(
                asked(&[ReplyPart::Call {
                    index: 0,
                    call: a.clone()
                }]),
                solution.calls
            );
            assert_eq!(
                solution.repairs.contains(&RepairKind::Thought),
                !thought.is_empty()
            );
        }
    }
}

/// Which object of a text is the reply is known at its end, if a thought may end before it.
#[test]
fn a_draft_in_a_thought_without_a_beginning_is_not_called() {
    let text = "Maybe {\"tool_name\":\"a.b\"}? No.\n</think>\n{\"final_answer\":7}";
    let given = pieces(Contract::Simple, &[content(text)]);
    assert_eq!(given, [ReplyPart::field("output", json!(7))]);
    let solution = read_text(Contract::Simple, text).unwrap();
    assert_eq!((solution.calls, solution.output), (vec![], Some(json!(7))));
}

#[test]
fn thoughts_alone_are_no_reply() {
    for contract in Contract::ALL {
        for text in [
            "<think>It is 7.</think>",
            "<think>It is 7.",
            "It is 7.\n</think>\n",
            "analysisIt is 7.assistantfinal",
        ] {
            let reason = read_text(contract, text).unwrap_err();
            assert!(reason.contains("thoughts and nothing else"), "{reason}");
        }
    }
    let solution = read_text(Contract::Tools, "<think>2+5</think>\n\nIt is 7.").unwrap();
    assert_eq!(solution.output, Some(json!("It is 7.")));
    assert_eq!(solution.repairs, [RepairKind::Thought]);
}

/// gpt-oss behind a server that drops the marks of its messages.
#[test]
fn a_harmony_without_its_marks_is_taken_apart() {
    for (contract, answer) in [
        (Contract::Schema, r#"{"calls": [], "output": "7"}"#),
        (Contract::Tools, "7"),
        (Contract::Simple, r#"{"final_answer": "7"}"#),
    ] {
        let text = format!("analysisOr {{\"final_answer\": \"8\"}}?assistantfinal{answer}");
        let solution = read_text(contract, &text).unwrap();
        assert_eq!(solution.output, Some(json!("7")), "{contract:?}");
        assert_eq!(solution.repairs, [RepairKind::Thought], "{contract:?}");
        if contract != Contract::Tools {
            let chars: Vec<Delta> = text.chars().map(|c| content(&c.to_string())).collect();
            let given = pieces(contract, &chars);
            assert_eq!(
                given,
                [ReplyPart::field("output", json!("7"))],
                "{contract:?}"
            );
        }
        let call = "analysisI look.assistantcommentary to=functions.a.b json{\"x\": 1}";
        let solution = read_text(contract, call).unwrap();
        let called: Vec<&str> = solution.calls.iter().map(|call| &*call.tool).collect();
        assert_eq!((called, solution.output), (vec!["a.b"], None));
    }
}

#[test]
fn function_calls_that_are_none_give_nothing() {
    let f = function;
    for (deltas, given) in [
        (vec![f(0, Some("a-b"), "[1]")], 0),
        (vec![f(0, Some("a-b"), "{\"x\":")], 0),
        (vec![f(0, Some("a-b"), "{}"), f(2, Some("c-d"), "{}")], 0),
        (
            vec![
                f(0, Some("a-b"), "{}"),
                f(0, None, "{}"),
                f(1, Some("c-d"), "{}"),
            ],
            0,
        ),
        (
            vec![f(0, Some("a-b"), "{'x':1}"), f(1, Some("c-d"), "{}")],
            0,
        ),
        (vec![f(0, Some("finish"), "{}"), f(1, Some("c-d"), "{}")], 0),
    ] {
        assert_eq!(pieces(Contract::Tools, &deltas).len(), given, "{deltas:?}");
    }
}

#[test]
fn a_long_prose_is_not_kept() {
    let mut reader = ReplyReader::new(Contract::Simple, &offered());
    for _ in 0..1_000 {
        reader.push(&content(
            "so {I think} that it is better to think {} again, ",
        ));
    }
    assert_eq!(reader.held(), 0);
}

#[test]
fn thoughts_are_not_a_reply() {
    let thought = Delta::Reasoning(r#"{"tool_name":"a.b"}"#.into());
    for contract in Contract::ALL {
        assert_eq!(pieces(contract, std::slice::from_ref(&thought)), []);
    }
}
