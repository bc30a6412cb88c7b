//! The `simple` contract: JSON in plain text, one call or the answer a reply (docs/protocol.md, 4.3).

use crate::catalogue::ToolCatalogue;
use crate::contract::conversation::{self, TranscriptFormat};
use crate::contract::reader::{ObjectFinder, SolutionPart, call_object};
use crate::contract::{ParsedReply, RequestView, leak, text};
use serde_json::{Map, Value, json};
use std::slice;
use std::sync::Arc;
use toolhold_json::repair::RepairKind;
use toolhold_json::rules::ReadingRules;
use toolhold_json::strict;
use toolhold_model::chat::{ChatMessage, ChatRequest};
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::function_names::ToolNames;
use toolhold_protocol::solution::{Call, Solution};
use toolhold_protocol::turn::Exchange;

pub(super) const TOOL_NAME: &str = "tool_name";
pub(super) const ARGUMENTS: &str = "arguments";
const FINAL_ANSWER: &str = "final_answer";
/// The member with a model's reason for a call; a model that was asked for it may write it beside an answer, too.
const REASON: &str = "_reasoningForCall";
/// An object with one of these is the reply.
const WANTED: [&str; 2] = [TOOL_NAME, FINAL_ANSWER];

pub fn request(view: &RequestView<'_>, catalogue: &ToolCatalogue) -> ChatRequest {
    let voice = Objects {
        reasons: view.settings.reasons,
        names: view.composition.names,
    };
    ChatRequest {
        model: view.model.to_owned(),
        messages: conversation::messages(view, system(view, catalogue), &voice, text::first(view)),
        max_tokens: Some(view.settings.max_tokens),
        temperature: view.settings.temperature,
        ..ChatRequest::default()
    }
}

pub fn read(said: &ParsedReply<'_>) -> Result<Solution, String> {
    if let Some(leaked) = said.leaked_first() {
        return said.solution(leaked);
    }
    let mut solution = Solution {
        repairs: said.repairs(),
        ..Solution::default()
    };
    let mut finder = finder(said.rules());
    let object = match finder.find(said.answer) {
        Ok(object) => object,
        Err(reason) => match repair(said) {
            Some((object, repairs)) => {
                solution.note(repairs);
                object
            }
            None => return said.solution(said.leaked().ok_or(reason)?),
        },
    };
    let (is_fenced, is_prose) = finder.stands_in();
    solution.is_prose = is_prose;
    for given in given(object)? {
        match given {
            SolutionPart::Call(call) => {
                said.refuse_copy(Contract::Simple, &call, is_fenced || is_prose)?;
                solution.calls.push(Call::read(call)?);
            }
            SolutionPart::Field(member, value) => solution.put(member, value)?,
        }
    }
    Ok(solution)
}

/// The first object in the text, where it is not quite JSON, and what had to be repaired.
fn repair(said: &ParsedReply<'_>) -> Option<(Map<String, Value>, Vec<RepairKind>)> {
    let repaired = said.repaired(said.answer)?;
    match repaired.value {
        Value::Object(object) if WANTED.iter().any(|name| object.contains_key(*name)) => {
            Some((object, repaired.repairs))
        }
        _ => None,
    }
}

/// The answer of a reply that is nothing but the object of this contract with it, perhaps in a fence: for a reply under
/// another contract. Words around the object may quote, announce or forbid it, so with them it is no answer. Beside the answer
/// there may be thoughts and empty members.
pub(super) fn answer_alone(said: &ParsedReply<'_>) -> Option<(Value, Vec<RepairKind>)> {
    if !said.rules().are_from_4() {
        return None;
    }
    let text = said.answer.trim();
    let mut repairs = vec![RepairKind::AnswerForm];
    let inner = match leak::unfenced(text) {
        Some(inner) => {
            repairs.push(RepairKind::CodeFence);
            inner
        }
        None => text,
    };
    let value = match strict::parse(inner) {
        Ok(value) => value,
        Err(_) => {
            let repaired = said.repaired(inner)?;
            let around = [RepairKind::TextBefore, RepairKind::TextAfter];
            if around.iter().any(|kind| repaired.repairs.contains(kind)) {
                return None;
            }
            repairs.extend(repaired.repairs);
            repaired.value
        }
    };
    let Value::Object(mut object) = value else {
        return None;
    };
    let answer = object.shift_remove(FINAL_ANSWER)?;
    let is_idle = |name: &str, value: &Value| {
        value.is_null() || said.rules().are_from_5() && (is_empty(value) || is_thought(name, value))
    };
    let is_alone = object.iter().all(|(name, value)| is_idle(name, value));
    (is_alone && !answer.is_null()).then_some((answer, repairs))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_thought(name: &str, value: &Value) -> bool {
    value.is_string() && (leak::THOUGHTS.contains(&name) || name == REASON)
}

/// Finds the object that is the reply, whatever text stands around it.
pub(super) fn finder(rules: ReadingRules) -> ObjectFinder {
    ObjectFinder::under(rules, &WANTED)
}

/// The parts of a solution in the reply's object: `meta` and `advisors` if present, then a call or the
/// output.
pub(super) fn given(mut object: Map<String, Value>) -> Result<Vec<SolutionPart>, String> {
    let mut member = |name| object.shift_remove(name).filter(|value| !value.is_null());
    let mut given: Vec<SolutionPart> = ["meta", "advisors"]
        .into_iter()
        .filter_map(|name| Some(SolutionPart::Field(name, member(name)?)))
        .collect();
    let (tool, arguments, answer) = (member(TOOL_NAME), member(ARGUMENTS), member(FINAL_ANSWER));
    let tool = match (tool, answer) {
        (Some(Value::String(tool)), None) => tool,
        (None, Some(answer)) => {
            given.push(SolutionPart::Field("output", answer));
            return Ok(given);
        }
        (Some(_), Some(_)) => {
            return Err(
                "\"tool_name\" and \"final_answer\" exclude each other: call the tool, read its \
                 result in the next message, and answer then"
                    .into(),
            );
        }
        (Some(_), None) => return Err("\"tool_name\" must be a string".into()),
        (None, None) => {
            return Err(
                "\"tool_name\" and \"final_answer\" are both null; give one of them".into(),
            );
        }
    };
    // Some models write reserved properties beside the arguments rather than among them.
    let (mut properties, others): (Map<_, _>, Map<_, _>) = object
        .into_iter()
        .partition(|(name, _)| name.starts_with('_'));
    match (arguments, others.keys().next()) {
        (Some(Value::Object(arguments)), _) => properties.extend(arguments),
        (Some(_), _) => return Err("\"arguments\" must be an object".into()),
        (None, None) => {}
        (None, Some(other)) => {
            return Err(format!(
                "\"arguments\" is missing; parameters such as {other:?} belong into it"
            ));
        }
    }
    given.push(SolutionPart::Call(call_object(tool, properties)));
    Ok(given)
}

/// Instructions, tools and the form of a reply, which here nothing but this text asks for. The same
/// bytes at every step of a run, so that prefix caches hit.
fn system(view: &RequestView<'_>, catalogue: &ToolCatalogue) -> PromptText {
    let mut system = PromptText::instruction(view.instructions);
    if view.tools.is_empty() {
        system.words("\n\nReply with one JSON object: {\"final_answer\": <your answer>}.");
    } else {
        system.part(&text::tools(view, catalogue));
        system
            .words("\n# Form of a reply\nReply with one JSON object and nothing else.\n")
            .words("To call a tool, one in a reply: ")
            .words(call_form(view.settings.reasons))
            .words("\nWhen you know the answer: ")
            .words(ANSWER)
            .words("\n")
            .words(text::call_it(view.tools));
    }
    system.part(&text::output(view)).take()
}

const ANSWER: &str = r#"{"final_answer": <answer>}"#;

fn call_form(reasons: bool) -> &'static str {
    if reasons {
        r#"{"tool_name": "<name>", "arguments": {"_reasoningForCall": "<why>", <parameters>}}"#
    } else {
        r#"{"tool_name": "<name>", "arguments": {<parameters>}}"#
    }
}

struct Objects<'a> {
    reasons: bool,
    names: Option<&'a Arc<ToolNames>>,
}

impl TranscriptFormat for Objects<'_> {
    fn answer(&self, text: &str) -> ChatMessage {
        ChatMessage::assistant(json!({FINAL_ANSWER: text}).to_string())
    }

    /// One reply for each call, as the form wants it, also where another contract made several at
    /// once.
    fn exchange(&self, exchange: &Exchange, out: &mut Vec<ChatMessage>) {
        for answered in &exchange.calls {
            let call = text::outward(&answered.call, self.names);
            let arguments = text::properties(&call, self.reasons);
            let reply = json!({TOOL_NAME: answered.call.tool, ARGUMENTS: arguments});
            out.push(ChatMessage::assistant(reply.to_string()));
            out.push(ChatMessage::user(text::results(slice::from_ref(answered))));
        }
    }

    fn rejected(&self, reply: &str, reason: &str, out: &mut Vec<ChatMessage>) {
        let mut form = PromptText::from("one JSON object and nothing else: ");
        form.words(call_form(self.reasons))
            .words(" or ")
            .words(ANSWER);
        text::rejected(reply, reason, &form, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::tests::{read, read_completion};
    use toolhold_protocol::completion::Completion;
    use toolhold_protocol::compose::Composition;
    use toolhold_protocol::contract::Contract;
    use toolhold_protocol::settings::Settings;
    use toolhold_protocol::solution::Call;
    use toolhold_protocol::tool::{Example, Execution, Tool};
    use toolhold_protocol::turn::Answered;
    use toolhold_protocol::turn::Turn;

    fn tool() -> Tool {
        Tool {
            description: "Evaluates arithmetic.".into(),
            parameters: json!({"type": "object", "properties": {"expression": {"type": "string"}}}),
            execution: Execution::Module("calculator.evaluate".into()),
            examples: vec![Example {
                task: "What is 1+1?".into(),
                arguments: json!({"expression": "1+1"}),
                output: json!({"value": "2"}),
                answer: "It is 2.".into(),
            }],
            ..Tool::new("calculator.evaluate")
        }
    }

    fn body(turns: &[Turn], tools: &[Arc<Tool>], output_schema: Option<&Value>) -> Value {
        let view = RequestView {
            model: "m",
            instructions: "Be good.",
            turns,
            tools,
            output_schema,
            settings: &Settings::default(),
            composition: Composition::default(),
        };
        request(&view, &ToolCatalogue::default()).body()
    }

    fn reply(text: &str) -> Result<Solution, String> {
        read(Contract::Simple, text)
    }

    #[test]
    fn nothing_but_text_is_asked_of_the_endpoint() {
        let body = body(&[], &[tool().into()], Some(&json!({"type": "integer"})));
        for key in ["response_format", "tools", "tool_choice"] {
            assert_eq!(body.get(key), None, "{key}");
        }
        let system = body["messages"][0]["content"].as_str().unwrap();
        for part in [
            "Be good.\n",
            "## calculator.evaluate\n│ Evaluates arithmetic.\nParameters: {",
            r#"{"tool_name": "<name>", "arguments": {"_reasoningForCall": "<why>", <parameters>}}"#,
            r#"{"final_answer": <answer>}"#,
            r#"this JSON Schema: {"type":"integer"}"#,
        ] {
            assert!(system.contains(part), "{part}: {system}");
        }
    }

    #[test]
    fn every_turn_of_the_model_is_a_reply_of_the_form() {
        let answered = |n: u8| Answered {
            call: Call {
                id: n.to_string(),
                tool: "calculator.evaluate".into(),
                arguments: json!({"expression": n.to_string()}),
                reason: Some("why".into()),
                ..Call::default()
            },
            fence: format!("fence{n}"),
            text: n.to_string(),
            failed: n == 2,
        };
        let turns = [
            Turn::Exchange(Exchange {
                calls: vec![answered(1), answered(2)],
                ..Exchange::default()
            }),
            Turn::assistant("It is 3."),
        ];
        let body = body(&turns, &[tool().into()], None);
        let messages = body["messages"].as_array().unwrap();
        let said: Vec<_> = messages
            .iter()
            .filter(|message| message["role"] == "assistant")
            .map(|message| reply(message["content"].as_str().unwrap()).unwrap())
            .collect();
        assert_eq!(said.len(), 5, "two of the example, then three: {body}");
        assert_eq!(said[1].output, Some(json!("It is 2.")));
        for (solution, n) in [(&said[2], "1"), (&said[3], "2")] {
            assert_eq!(solution.calls[0].arguments, json!({"expression": n}));
            assert_eq!(solution.calls[0].reason.as_deref(), Some("why"));
        }
        let results = "<error fence2 tool=\"calculator.evaluate\">\n2\n</error fence2>";
        assert_eq!(messages[messages.len() - 2]["content"], results);
    }

    #[test]
    fn a_rejection_shows_the_form() {
        let turns = [Turn::Rejected {
            reply: "I think it is 7.".into(),
            reason: reply("I think it is 7.").unwrap_err(),
        }];
        let body = body(&turns, &[], None);
        let messages = body["messages"].as_array().unwrap();
        assert_eq!(messages[1]["content"], "I think it is 7.");
        let told = messages[2]["content"].as_str().unwrap();
        for part in [
            "holds no JSON object with tool_name or final_answer",
            r#"{"tool_name": "<name>", "arguments""#,
            ANSWER,
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }

    #[test]
    fn a_reply_calls_one_tool_or_answers() {
        for (text, expected) in [
            (
                r#"{"tool_name":"a.b","arguments":{"x":1}}"#,
                json!({"x": 1}),
            ),
            (
                "Sure!\n```json\n{\"arguments\": {\"x\": 1}, \"tool_name\": \"a.b\"}\n```\nDone.",
                json!({"x": 1}),
            ),
            (r#"{"tool_name":"a.b","final_answer":null}"#, json!({})),
            (
                r#"{"tool_name":"a.b","arguments":null,"_instance":"i"}"#,
                json!({}),
            ),
            (
                r#"{"thought":"hm","tool_name":"a.b","arguments":{"x":{"tool_name":"c.d"}}}"#,
                json!({"x": {"tool_name": "c.d"}}),
            ),
            (
                r#"{"tool_name":"a.b","arguments":{"_tool":"c.d","_scopes":[],"x":1}}"#,
                json!({"x": 1}),
            ),
        ] {
            let solution = reply(text).unwrap();
            let [call] = solution.calls.as_slice() else {
                panic!("{text}: {solution:?}");
            };
            assert_eq!(
                (call.tool.as_str(), &call.arguments),
                ("a.b", &expected),
                "{text}"
            );
            assert_eq!(solution.output, None);
        }
        for (text, output) in [
            (r#"{"final_answer":"7"}"#, json!("7")),
            (
                r#"It is {"tool_name":null,"final_answer":{"n":7}}."#,
                json!({"n": 7}),
            ),
            (r#"{"final_answer":false}"#, json!(false)),
        ] {
            let solution = reply(text).unwrap();
            assert_eq!(solution.output, Some(output), "{text}");
            assert_eq!(solution.calls, []);
        }
    }

    #[test]
    fn truncated_reply_is_not_completed() {
        let reply = |finish_reason: &str| {
            let completion = Completion {
                content: r#"{"tool_name": "a.b", "arguments": {"x": 1}"#.into(),
                finish_reason: Some(finish_reason.into()),
                ..Completion::default()
            };
            read_completion(Contract::Simple, &completion, &[])
        };
        let solution = reply("stop").unwrap();
        assert_eq!(solution.calls[0].arguments, json!({"x": 1}));
        assert_eq!(solution.repairs, [RepairKind::Unclosed]);
        assert!(reply("length").unwrap_err().contains("has no end"));
    }

    #[test]
    fn reserved_properties_become_those_of_the_call() {
        let object = json!({
            "tool_name": "a.b", "_instance": "i", "arguments": {"x": 1, "_outputPath": "†state.y"},
        });
        let Value::Object(object) = object else {
            unreachable!()
        };
        let given = given(object).unwrap();
        let [SolutionPart::Call(call)] = given.as_slice() else {
            panic!("{given:?}");
        };
        let expected = json!({"_tool": "a.b", "_instance": "i", "x": 1, "_outputPath": "†state.y"});
        assert_eq!(*call, expected);
    }

    #[test]
    fn every_fault_says_what_to_do() {
        for (text, expect) in [
            (
                "",
                "holds no JSON object with tool_name or final_answer; write one",
            ),
            ("I call a.b(x=1), {then} wait", "holds no JSON object"),
            (
                r#"{"name":"a.b","arguments":{}}"#,
                "holds no JSON object with tool_name",
            ),
            (r#"{"tool_name":"a.b","arguments":{"x":"#, "has no end"),
            (
                r#"{"tool_name":"a.b", "arguments": x}"#,
                "not JSON: expected value",
            ),
            // There is a second reading.
            (
                "{'tool_name': 'a.b'} {'tool_name': 'c.d'}",
                "holds no JSON object with tool_name",
            ),
            ("{'tool': 'a.b'}", "holds no JSON object with tool_name"),
            (
                r#"{"tool_name":"a.b","final_answer":"7"}"#,
                "exclude each other",
            ),
            (
                r#"{"tool_name":null,"final_answer":null}"#,
                "give one of them",
            ),
            (r#"{"tool_name":["a.b"]}"#, "must be a string"),
            (
                r#"{"tool_name":"a.b","arguments":"x"}"#,
                "must be an object",
            ),
            (
                r#"{"tool_name":"a.b","x":1}"#,
                "parameters such as \"x\" belong into it",
            ),
        ] {
            let error = reply(text).unwrap_err();
            assert!(error.contains(expect), "{text} gave {error}");
        }
    }
}
