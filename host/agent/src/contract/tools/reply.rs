//! Reads a reply: the calls of functions in it, with their arguments, or an answer.

use super::names::{FINISH, function_of_member, given, members};
use super::text_answer::{
    is_beside_sentences, is_failed, is_unread, unread, unreadable, written_output,
    written_output_of_format_4,
};
use crate::contract::leak::CallableNames;
use crate::contract::reader::SolutionPart;
use crate::contract::{ParsedReply, RequestView, lost_arguments};
use serde_json::{Value, json};
use toolhold_json::repair::{RepairKind, Repaired, TextEnd};
use toolhold_json::rules::ReadingRules;
use toolhold_json::scan::SPACE;
use toolhold_json::strict;
use toolhold_protocol::completion::ChatToolCall;
use toolhold_protocol::solution::{Call, Solution};

/// Decided by the presence of tool calls, never by finish_reason, which servers get wrong.
pub fn read(said: &ParsedReply<'_>, view: &RequestView<'_>) -> Result<Solution, String> {
    if let Some(reason) = lost_arguments(said.rules(), said.completion) {
        return Err(reason.to_owned());
    }
    let mut solution = Solution::default();
    for call in &said.completion.tool_calls {
        let Repaired {
            value: arguments,
            repairs,
        } = arguments(call, said)?;
        solution.note(repairs);
        take(&mut solution, &call.name, arguments, view)?;
    }
    if said.completion.tool_calls.is_empty() {
        solution.repairs = said.repairs();
        let said = &said.offering(offer(said, view));
        let leaked = said.leaked().unwrap_or_default();
        solution.note(leaked.repairs);
        solution.is_prose = !leaked.calls.is_empty();
        for call in leaked.calls {
            take(&mut solution, &call.tool, call.arguments.into(), view)?;
        }
    }
    if solution.calls.is_empty() && solution.output.is_none() {
        let text = said.answer.trim();
        if text.is_empty() {
            return Err(match (&solution.meta, &solution.advisors) {
                (None, None) => "the reply is empty; call a tool or answer".into(),
                _ => "the reply holds neither a call of a tool nor an answer; give meta and advisors again, and one \
                      of the two in the same reply"
                    .into(),
            });
        }
        let said = said.offering(offer(said, view));
        if let Some(reason) = unread(&said, text) {
            return Err(reason.into());
        }
        let end = match said.rules() {
            ReadingRules::Format3 => TextEnd::Own,
            ReadingRules::Format4 | ReadingRules::Current => said.end,
        };
        if is_failed(&said, text, end) || is_unread(&said, text, end) {
            return Err(unreadable(text, &said.offer));
        }
        if is_beside_sentences(&said, text) {
            return Err(
                "a call in it is written as text beside other sentences, so that nobody knows whether it is meant; \
                 make the call and write nothing else, or put it between backticks if it is only shown"
                    .into(),
            );
        }
        // A reply that has to call a tool is refused for its text by who demands the call.
        let is_demanded = view.composition.forced && said.rules().are_from_4();
        let output_schema = view.output_schema.filter(|_| !is_demanded);
        solution.output = Some(match output_schema {
            Some(_) => {
                let own = Some(text).filter(|_| said.rules().are_from_4());
                let written = |text: &str| {
                    if said.rules().are_from_5() {
                        written_output(text, &said.offer).transpose()
                    } else {
                        written_output_of_format_4(text).map(Ok)
                    }
                };
                own.and_then(written).transpose()?.ok_or_else(|| {
                    let finish = function_of_member(FINISH, view);
                    format!("the final output must be given by calling {finish}")
                })?
            }
            None => json!(text),
        });
    }
    Ok(solution)
}

fn take(
    solution: &mut Solution,
    function: &str,
    arguments: Value,
    view: &RequestView<'_>,
) -> Result<(), String> {
    let names = view.composition.names.map(|names| &**names);
    match given(function, arguments, names, view.composition.reading)? {
        SolutionPart::Call(call) => {
            solution.calls.push(Call::read(call)?);
            Ok(())
        }
        SolutionPart::Field(member, value) => solution.put(member, value),
    }
}

/// Names that may be called: the tools, and the functions for the members that are asked for.
fn offer(said: &ParsedReply<'_>, view: &RequestView<'_>) -> CallableNames {
    let asked = members(view).into_iter();
    let asked =
        asked.filter_map(|(name, _, _, schema)| schema.map(|_| function_of_member(name, view)));
    said.offer.clone().with(asked)
}

/// The arguments of a function call, repaired where they are not quite JSON.
fn arguments(call: &ChatToolCall, said: &ParsedReply<'_>) -> Result<Repaired, String> {
    let text = call.arguments.trim_matches(SPACE);
    let read = match text {
        "" => Ok(Value::Null),
        text => strict::parse_under(said.rules(), text),
    };
    match read {
        Ok(Value::String(inner)) if said.rules().are_from_4() => decoded(&inner, said)
            .map_err(|error| format!("the arguments of {} cannot be taken: {error}", call.name)),
        Ok(value) => Ok(Repaired {
            value,
            repairs: Vec::new(),
        }),
        Err(error) => said.repaired(text).ok_or_else(|| {
            // Two values for a key, or a number that would lose digits.
            let fault = if error.is_data() && said.rules().are_from_4() {
                "cannot be taken"
            } else {
                "are not JSON"
            };
            format!("the arguments of {} {fault}: {error}", call.name)
        }),
    }
}

/// Arguments that were encoded once more: a JSON text that holds their JSON text. A text that holds something else stays
/// one, and is refused as arguments.
///
/// # Errors
/// It is JSON with two values for a key, or with a number that would lose digits.
fn decoded(text: &str, said: &ParsedReply<'_>) -> Result<Repaired, serde_json::Error> {
    let inner = text.trim_matches(SPACE);
    let read = match inner {
        "" => Some(Repaired {
            value: Value::Null,
            repairs: Vec::new(),
        }),
        _ => match strict::parse(inner) {
            Ok(value) => Some(Repaired {
                value,
                repairs: Vec::new(),
            }),
            Err(error) if error.is_data() && inner.starts_with('{') => return Err(error),
            Err(_) => said.repaired(inner),
        },
    };
    let read = read.filter(|read| read.value.is_object() || read.value.is_null());
    Ok(match read {
        Some(Repaired { value, mut repairs }) => {
            repairs.insert(0, RepairKind::JsonAsText);
            Repaired { value, repairs }
        }
        None => Repaired {
            value: text.into(),
            repairs: Vec::new(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_protocol::completion::Completion;
    use toolhold_protocol::compose::Composition;
    use toolhold_protocol::contract::Contract;
    use toolhold_protocol::settings::Settings;

    fn reply(calls: &[(&str, &str)], output_schema: Option<&Value>) -> Result<Solution, String> {
        let tool_calls = calls.iter().map(|(name, arguments)| ChatToolCall {
            id: String::new(),
            name: (*name).into(),
            arguments: (*arguments).into(),
            ..ChatToolCall::default()
        });
        let completion = Completion {
            tool_calls: tool_calls.collect(),
            ..Completion::default()
        };
        let view = RequestView {
            model: "m",
            instructions: "",
            turns: &[],
            tools: &[],
            output_schema,
            settings: &Settings::default(),
            composition: Composition::default(),
        };
        crate::contract::read(Contract::Tools, &completion, &view)
    }

    #[test]
    fn functions_are_tools_and_finish_is_the_output() {
        let solution = reply(
            &[
                ("a-b", r#"{"_reasoningForCall":"why","_tool":"c.d","x":1}"#),
                ("c-d", " "),
                ("e-f", "null"),
                ("finish", r#"{"output":{"n":7}}"#),
            ],
            None,
        )
        .unwrap();
        let calls: Vec<_> = solution
            .calls
            .iter()
            .map(|call| (call.tool.as_str(), call.arguments.clone()))
            .collect();
        assert_eq!(
            calls,
            [
                ("a.b", json!({"x": 1})),
                ("c.d", json!({})),
                ("e.f", json!({}))
            ]
        );
        assert_eq!(solution.calls[0].reason.as_deref(), Some("why"));
        assert_eq!(solution.output, Some(json!({"n": 7})));
    }

    #[test]
    fn arguments_with_faults_of_form_are_mended() {
        let solution = reply(
            &[("a-b", "{'x': 1,}"), ("c-d", "{}"), ("e-f", "{'y': [True]")],
            None,
        )
        .unwrap();
        let arguments: Vec<_> = solution.calls.iter().map(|call| &call.arguments).collect();
        assert_eq!(
            arguments,
            [&json!({"x": 1}), &json!({}), &json!({"y": [true]})]
        );
        assert_eq!(
            solution.repairs,
            [
                RepairKind::SingleQuotes,
                RepairKind::TrailingComma,
                RepairKind::PythonLiteral,
                RepairKind::Unclosed
            ]
        );
    }

    #[test]
    fn arguments_that_were_encoded_twice_are_read() {
        for (written, arguments) in [
            (json!("{\"x\":1}").to_string(), json!({"x": 1})),
            (json!(" {'x': 1,}\n").to_string(), json!({"x": 1})),
            (json!("").to_string(), json!({})),
            (json!("null").to_string(), json!({})),
        ] {
            let solution = reply(&[("a-b", &written)], None).unwrap();
            assert_eq!(solution.calls[0].arguments, arguments, "{written}");
            assert_eq!(solution.repairs[0], RepairKind::JsonAsText, "{written}");
        }
        for other in ["\"[1]\"", "\"a text\"", "\"\\\"{}\\\"\""] {
            let error = reply(&[("a-b", other)], None).unwrap_err();
            assert!(error.contains("must be a JSON object"), "{other}: {error}");
        }
    }

    #[test]
    fn members_leak_like_tools() {
        let schema = json!({"type": "object"});
        let said =
            r#"<tool_call>{"name": "finish", "arguments": {"output": {"n": 7}}}</tool_call>"#;
        let read = |output_schema: Option<&Value>| {
            let completion = Completion {
                content: said.into(),
                ..Completion::default()
            };
            let view = RequestView {
                model: "m",
                instructions: "",
                turns: &[],
                tools: &[],
                output_schema,
                settings: &Settings::default(),
                composition: Composition::default(),
            };
            crate::contract::read(Contract::Tools, &completion, &view)
        };
        let solution = read(Some(&schema)).unwrap();
        assert_eq!(solution.output, Some(json!({"n": 7})));
        assert_eq!(solution.repairs, [RepairKind::LeakedCall]);
        let error = read(None).unwrap_err();
        assert!(error.contains("looks like a call"), "{error}");
    }

    #[test]
    fn every_fault_says_what_to_do() {
        let schema = json!({"type": "integer"});
        let output = r#"{"output":7}"#;
        for (calls, expect) in [
            (vec![], "the reply is empty"),
            (
                vec![("a-b", r#"{"x":"#)],
                "the arguments of a-b are not JSON",
            ),
            (
                vec![("a-b", "{'x': 'y'"), ("c-d", "{'x': 1} {'y': 2}")],
                "the arguments of c-d are not JSON",
            ),
            (
                vec![("a-b", r#"{"x":1,"x":2}"#)],
                "\"x\" is there twice, with different values",
            ),
            (
                vec![("a-b", r#"{"x":123456789012345678901234567890}"#)],
                "cannot be taken: the number 123456789012345678901234567890 would lose digits",
            ),
            (
                vec![("a-b", "[1]")],
                "the arguments of a-b must be a JSON object",
            ),
            (vec![("finish", r#"{"answer":7}"#)], "give it as \"output\""),
            (vec![("finish", output), ("finish", output)], "given twice"),
        ] {
            let error = reply(&calls, Some(&schema)).unwrap_err();
            assert!(error.contains(expect), "{calls:?} gave {error}");
        }
    }
}
