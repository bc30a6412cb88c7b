//! The text of a reply that makes no call: an answer, an output, or a call that was written as text and is not made.

use crate::contract::ParsedReply;
use crate::contract::leak::{self, CallableNames, Leak};
use serde_json::Value;
use toolhold_json::repair::TextEnd;
use toolhold_json::strict;

/// Members of a call that a text may be: those with a name, and those with arguments.
const CALL_NAMES: [&str; 4] = ["name", "tool", "tool_name", "function"];
const CALL_ARGUMENTS: [&str; 3] = ["arguments", "parameters", "args"];

/// The output that a model wrote as its text, where an output of a schema was asked for: JSON, perhaps in one fence. It is
/// checked against the schema as every output. `None` for what looks like a call of a tool that is offered.
///
/// # Errors
/// It is JSON with two values for a key, or with a number that would lose digits.
pub(super) fn written_output(text: &str, offer: &CallableNames) -> Result<Option<Value>, String> {
    let value = match strict::parse(leak::unfenced(text).unwrap_or(text)) {
        Ok(value) => value,
        Err(error) if error.is_data() => {
            return Err(format!("the final output cannot be taken: {error}"));
        }
        Err(_) => return Ok(None),
    };
    let function = value.get("function").filter(|inner| inner.is_object());
    let call = function.unwrap_or(&value);
    let mut names = CALL_NAMES.iter().filter_map(|key| call.get(*key)?.as_str());
    let is_call = CALL_ARGUMENTS.iter().any(|key| call.get(*key).is_some())
        && names.any(|name| offer.tool(name).is_some());
    Ok((!is_call).then_some(value))
}

/// Reads a written output by the rules of format 4, under which JSON with the members of a call is none.
pub(super) fn written_output_of_format_4(text: &str) -> Option<Value> {
    let value = strict::parse(leak::unfenced(text).unwrap_or(text)).ok()?;
    let has = |keys: &[&str]| keys.iter().any(|key| value.get(key).is_some());
    (!has(&CALL_NAMES) || !has(&CALL_ARGUMENTS)).then_some(value)
}

/// Why an answer that is nothing but calls as text is none, although they can be read. Behind prose they are a part of
/// the answer, and so are copies in forms without marks.
pub(super) fn unread(said: &ParsedReply<'_>, answer: &str) -> Option<&'static str> {
    let is_marked = leak::is_marked(answer, &said.offer);
    if said.provenance.has_native_calls() {
        let is_call = is_marked || leak::is_call(answer, &said.offer, said.end);
        return is_call.then_some(
            "the reply is a call that is written as text, and calls of this run are made natively; call the tool as a \
             function, or answer",
        );
    }
    (is_marked && said.written().is_some()).then(|| said.repeats())
}

/// Whether the answer is a call between marks, which cannot be read. One between marks of an unknown form that the model was
/// shown is a quotation.
pub(super) fn is_failed(said: &ParsedReply<'_>, answer: &str, end: TextEnd) -> bool {
    let offer = &said.offer;
    leak::is_failed(answer, offer, end)
        && leak::in_unknown_marks(answer, offer).is_none_or(|call| !is_quoted(said, &call))
}

/// Whether the answer is a call in words, which cannot be read; one that the model was shown is a quotation. Beside native
/// calls, tools with arguments among signs are a list of calls, and so are statements and commands.
pub(super) fn is_unread(said: &ParsedReply<'_>, answer: &str, end: TextEnd) -> bool {
    let among_signs = || {
        let is_list = said.provenance.has_native_calls();
        leak::among_signs(answer, &said.offer, end).filter(|_| !is_list)
    };
    leak::unread(answer, &said.offer, end)
        .or_else(among_signs)
        .is_some_and(|call| !is_quoted(said, &call))
}

fn is_quoted(said: &ParsedReply<'_>, call: &Leak) -> bool {
    said.provenance
        .is_quoted(&call.written, &call.tool, &call.arguments)
}

/// Whether the answer has a call of the model's own with sentences around it, where none is made natively.
pub(super) fn is_beside_sentences(said: &ParsedReply<'_>, answer: &str) -> bool {
    if said.provenance.has_native_calls() {
        return false;
    }
    let found = leak::beside_sentences(answer, &said.offer);
    found.is_some_and(|leaked| leaked.unquoted(said.provenance, 0).is_some())
}

/// The words for a call that cannot be read. A record of an earlier format has them without the last part.
pub(super) fn unreadable(answer: &str, offer: &CallableNames) -> String {
    if let Some(error) = leak::inexact(answer, offer) {
        return format!("the reply looks like a call and its arguments cannot be taken: {error}");
    }
    let mut reason =
        "the reply looks like a call and cannot be read as one of the tools that are offered; call one of them by its \
         name, with a JSON object as its arguments"
            .to_owned();
    if offer.rules().are_from_5() {
        reason.push_str(", or put it in backticks if it is a part of the answer");
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::RequestView;
    use serde_json::json;
    use std::sync::Arc;
    use toolhold_protocol::completion::Completion;
    use toolhold_protocol::compose::Composition;
    use toolhold_protocol::contract::Contract;
    use toolhold_protocol::settings::Settings;
    use toolhold_protocol::tool::Tool;

    #[test]
    fn an_output_may_be_the_text_of_the_reply() {
        let schema = json!({"type": "object"});
        let read = |text: &str, tools: &[Arc<Tool>]| {
            let completion = Completion {
                content: text.into(),
                ..Completion::default()
            };
            let view = RequestView {
                model: "m",
                instructions: "",
                turns: &[],
                tools,
                output_schema: Some(&schema),
                settings: &Settings::default(),
                composition: Composition::default(),
            };
            crate::contract::read(Contract::Tools, &completion, &view)
        };
        for text in [
            r#"{"name":"x"}"#,
            "\n{\"name\": \"x\"}\n",
            "```json\n{\"name\": \"x\"}\n```",
        ] {
            let solution = read(text, &[]).unwrap();
            assert_eq!(solution.output, Some(json!({"name": "x"})), "{text}");
            assert!(solution.calls.is_empty());
        }
        for text in ["the name is x", r#"It is {"name":"x"}"#, r#"{"name":"x""#] {
            let error = read(text, &[]).unwrap_err();
            assert!(error.contains("calling finish"), "{text} gave {error}");
        }
        // The members of a call are an answer where no tool has the name.
        let search = [Arc::new(Tool::new("search"))];
        for text in [
            r#"{"name":"Ann","parameters":{"age":3}}"#,
            r#"{"function":"f","arguments":{}}"#,
            r#"{"tool":"hammer","args":[1]}"#,
            r#"{"function":{"name":"f","arguments":"{}"}}"#,
        ] {
            for tools in [&search[..0], &search[..]] {
                let solution = read(text, tools).unwrap();
                let output: Value = serde_json::from_str(text).unwrap();
                assert_eq!(solution.output, Some(output), "{text}");
                assert!(solution.calls.is_empty());
            }
        }
        let call = r#"{"name":"search","arguments":{"q":"x"}}"#;
        assert_eq!(read(call, &search).unwrap().calls.len(), 1);
        for text in [
            r#"{"name":"search","arguments":{"q":"x"},"more":1}"#,
            r#"{"name":"search","parameters":[1]}"#,
        ] {
            read(text, &search).unwrap_err();
        }
    }

    #[test]
    fn an_output_that_cannot_be_taken_is_refused_with_its_reason() {
        let schema = json!({"type": "object"});
        let view = RequestView {
            model: "m",
            instructions: "",
            turns: &[],
            tools: &[],
            output_schema: Some(&schema),
            settings: &Settings::default(),
            composition: Composition::default(),
        };
        for (text, expect) in [
            (
                r#"{"a":123456789012345678901234567890}"#,
                "the number 123456789012345678901234567890 would lose digits",
            ),
            (
                "```json\n{\"a\":0.1234567890123456789012345}\n```",
                "the number 0.1234567890123456789012345 would lose digits",
            ),
            (
                r#"{"a":1,"a":2}"#,
                "\"a\" is there twice, with different values",
            ),
        ] {
            let completion = Completion {
                content: text.into(),
                ..Completion::default()
            };
            let error = crate::contract::read(Contract::Tools, &completion, &view).unwrap_err();
            let expect = format!("the final output cannot be taken: {expect}");
            assert!(error.starts_with(&expect), "{text}: {error}");
        }
    }
}
