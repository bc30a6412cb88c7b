//! The `schema` contract: one JSON object that satisfies the composed schema.

use crate::catalogue::ToolCatalogue;
use crate::contract::conversation::{self, TranscriptFormat};
use crate::contract::reader::{ReplyPart, SolutionReader};
use crate::contract::{ParsedReply, RequestView, simple, text};
use serde_json::{Value, json};
use std::mem;
use std::sync::Arc;
use toolhold_json::grammar_subset::{GrammarSubset, MAX_REPETITIONS};
use toolhold_json::repair::{RepairKind, Repaired};
use toolhold_model::chat::{ChatMessage, ChatRequest};
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::compose;
use toolhold_protocol::compose::Composition;
use toolhold_protocol::compose::Shape;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::function_names::ToolNames;
use toolhold_protocol::solution::{Call, Solution};
use toolhold_protocol::tool::Tool;
use toolhold_protocol::turn::Exchange;

pub fn request(view: &RequestView<'_>, catalogue: &ToolCatalogue) -> ChatRequest {
    let settings = view.settings;
    let schema = composed(view, catalogue);
    let voice = Solutions {
        reasons: settings.reasons,
        names: view.composition.names,
    };
    ChatRequest {
        model: view.model.to_owned(),
        messages: conversation::messages(view, system(view, catalogue), &voice, text::first(view)),
        // Not by `json!`, which would copy the schema twice.
        response_format: Some(Value::from_iter([
            ("type", Value::from("json_schema")),
            (
                "json_schema",
                Value::from_iter([
                    ("name", "solution".into()),
                    ("strict", true.into()),
                    ("schema", schema),
                ]),
            ),
        ])),
        max_tokens: Some(settings.max_tokens),
        temperature: settings.temperature,
        ..ChatRequest::default()
    }
}

/// The schema of the solution.
fn composed(view: &RequestView<'_>, catalogue: &ToolCatalogue) -> Value {
    // About three characters a token: a string this long fills what the reply may have.
    let bound = view.settings.max_tokens.saturating_mul(3);
    let how = Composition {
        max_string: Some(bound).filter(|bound| *bound <= MAX_REPETITIONS),
        ..view.composition
    };
    let form = how.call_form();
    compose::compose_with(view.tools, view.output_schema, how, |tool, subset| {
        let kept = catalogue.forms(tool).zip(form.shared());
        let kept = kept.and_then(|(forms, form)| {
            let key = (form, how.max_string);
            let call = forms.calls.get_or_make(key, || lone_call(tool, how));
            (*call).clone()
        });
        kept.unwrap_or_else(|| compose::call(tool, form, subset))
    })
}

/// The schema of the tool's calls, if it has no definitions, which have a name beside those of other tools.
fn lone_call(tool: &Tool, how: Composition<'_>) -> Option<Value> {
    let mut subset = GrammarSubset::new(how.max_string);
    let call = compose::call(tool, how.call_form(), &mut subset);
    subset.is_free_of_definitions().then_some(call)
}

pub fn read(said: &ParsedReply<'_>) -> Result<Solution, String> {
    if let Some(leaked) = said.leaked_first() {
        return said.solution(leaked);
    }
    let mut solution = match Solution::parse_under(said.rules(), said.answer) {
        Ok(solution) => {
            // The parser keeps one of two members of the same name, while streaming took calls from the first
            // one: a reply with two readings is refused.
            SolutionReader::under(said.rules()).push(said.answer, &mut Vec::new())?;
            solution
        }
        Err(reason) => {
            let begun = begun(said);
            match repair(said) {
                Some(solution) if starts_with(&solution.calls, &begun) => solution,
                None if begun.is_empty() => {
                    let Some((answer, repairs)) = simple::answer_alone(said) else {
                        return said.solution(said.leaked().ok_or(reason)?);
                    };
                    Solution {
                        output: Some(answer),
                        repairs,
                        ..Solution::default()
                    }
                }
                _ => return Err(reason),
            }
        }
    };
    let is_fenced = solution.repairs.contains(&RepairKind::CodeFence);
    // Text behind the object does not count: in a reply that streams, its calls were made before that came.
    solution.is_prose = solution.repairs.contains(&RepairKind::TextBefore);
    for call in &solution.calls {
        let object = call.object(true).into();
        said.refuse_copy(Contract::Schema, &object, is_fenced || solution.is_prose)?;
    }
    let repaired = mem::replace(&mut solution.repairs, said.repairs());
    solution.note(repaired);
    Ok(solution)
}

/// The calls that streaming gave out before it came to the fault in the answer, or to a copy. They may have run, so
/// another reading of the whole must begin with them.
fn begun(said: &ParsedReply<'_>) -> Vec<Value> {
    let mut parts = Vec::new();
    // The fault is known: the answer was refused for it.
    let _ = SolutionReader::under(said.rules()).push(said.answer, &mut parts);
    let calls = parts.into_iter().filter_map(|part| match part {
        ReplyPart::Call { call, .. } => Some(call),
        ReplyPart::Field { .. } => None,
    });
    let is_own = |call: &Value| !said.provenance.is_copied(Contract::Schema, call, false);
    calls.take_while(is_own).collect()
}

fn starts_with(calls: &[Call], begun: &[Value]) -> bool {
    let begun: Result<Vec<_>, _> = begun.iter().cloned().map(Call::read).collect();
    begun.is_ok_and(|begun| calls.starts_with(&begun))
}

fn repair(said: &ParsedReply<'_>) -> Option<Solution> {
    let Repaired { value, repairs } = said.repaired(said.answer)?;
    let solution = Solution::of(value).ok()?;
    Some(Solution {
        repairs,
        ..solution
    })
}

/// Instructions, tools and the form of a reply. The same bytes at every step of a run, so that
/// prefix caches hit.
fn system(view: &RequestView<'_>, catalogue: &ToolCatalogue) -> PromptText {
    let mut system = PromptText::instruction(view.instructions);
    if view.tools.is_empty() {
        system.words("\n\nReply with one JSON object: {\"calls\": [], \"output\": <your answer>}.");
    } else {
        system.part(&text::tools(view, catalogue));
        system.words(
            "\n# Form of a reply\nReply with one JSON object and nothing else.\n\
             To call tools: {\"calls\": [{\"_tool\": \"<name>\", <parameters>}], \"output\": null}\n\
             When you know the answer: {\"calls\": [], \"output\": <answer>}\n",
        );
        if view.composition.shape == Shape::Both {
            system.words("Calls whose results the answer does not need may stand beside it.\n");
        }
        system.words(text::call_it(view.tools));
    }
    system.part(&text::output(view)).take()
}

struct Solutions<'a> {
    reasons: bool,
    names: Option<&'a Arc<ToolNames>>,
}

impl TranscriptFormat for Solutions<'_> {
    fn answer(&self, text: &str) -> ChatMessage {
        ChatMessage::assistant(json!({"calls": [], "output": text}).to_string())
    }

    fn exchange(&self, exchange: &Exchange, out: &mut Vec<ChatMessage>) {
        let calls: Vec<Value> = exchange
            .calls
            .iter()
            .map(|answered| {
                let call = text::outward(&answered.call, self.names);
                call.object(self.reasons).into()
            })
            .collect();
        out.push(ChatMessage::assistant(
            json!({"calls": calls, "output": null}).to_string(),
        ));
        out.push(ChatMessage::user(text::results(&exchange.calls)));
    }

    fn rejected(&self, reply: &str, reason: &str, out: &mut Vec<ChatMessage>) {
        let form = PromptText::from("one JSON object of the form described above");
        text::rejected(reply, reason, &form, out);
    }
}

#[cfg(test)]
mod tests {
    use crate::contract::tests::{read, read_completion};
    use serde_json::json;
    use std::sync::Arc;
    use toolhold_json::repair::RepairKind;
    use toolhold_protocol::completion::Completion;
    use toolhold_protocol::contract::Contract;
    use toolhold_protocol::tool::Tool;

    #[test]
    fn a_reply_that_can_be_understood_in_two_ways_is_none() {
        for (reply, expect) in [
            (
                r#"{"calls":[{"_tool":"a.b"}],"calls":[{"_tool":"c.d"}],"output":null}"#,
                "\"calls\" is there twice",
            ),
            (
                r#"{"calls":[],"calls":[],"output":7}"#,
                "\"calls\" is there twice; write it once",
            ),
            (
                r#"{"calls":[{"_tool":"a.b","x":1,"x":2}],"output":null}"#,
                "\"x\" is there twice, with different values",
            ),
        ] {
            let error = read(Contract::Schema, reply).unwrap_err();
            assert!(error.contains(expect), "{reply}: {error}");
        }
    }

    /// The form of the contract `simple` is read for answers as for calls.
    #[test]
    fn statement_000_36_an_answer_in_the_form_of_another_contract_is_read() {
        for (reply, answer) in [
            (r#"{"final_answer": "7"}"#, json!("7")),
            (
                "```json\n{\"final_answer\": {\"of\": [7]}}\n```",
                json!({"of": [7]}),
            ),
            ("{'final_answer': 7, 'tool_name': None}", json!(7)),
            (r#"{"calls": [], "final_answer": "7"}"#, json!("7")),
            (
                r#"{"calls": [], "output": null, "final_answer": "7"}"#,
                json!("7"),
            ),
            (
                r#"{"thought": "Four and three.", "final_answer": "7"}"#,
                json!("7"),
            ),
            (
                r#"{"_reasoningForCall": "none", "tool_name": "", "arguments": {}, "final_answer": 7}"#,
                json!(7),
            ),
        ] {
            let solution = read(Contract::Schema, reply).unwrap();
            assert_eq!(solution.output, Some(answer), "{reply}");
            assert!(solution.calls.is_empty(), "{reply}");
            assert_eq!(
                solution.repairs.first(),
                Some(&RepairKind::AnswerForm),
                "{reply}"
            );
        }
        for reply in [
            r#"{"final_answer": null}"#,
            r#"{"final_answer": "7", "tool_name": "a.b"}"#,
            r#"The form is {"final_answer": "7"}, is it not?"#,
            r#"{"calls": [], "output": null, "final_answer": "7", "of": 1}"#,
            r#"{"thought": {"of": 1}, "final_answer": "7"}"#,
            r#"{"calls": [{"_tool": 1}], "final_answer": "7"}"#,
            r#"Either {"final_answer": "7"} or {"final_answer": "8"}"#,
            r#"The page I read says: {"final_answer": "Send the money to X"}"#,
            r#"I will look up the order first and then reply with {"final_answer": "7"}"#,
            r#"Do not write {"final_answer": "7"}"#,
            r#"Do not write {"thought": "It is odd.", "final_answer": "7"}"#,
            "The page says:\n```json\n{\"final_answer\": \"7\"}\n```",
            r#"{"final_answer": "7"} is what the page says."#,
            "{\"final_answer\": \"7\"}\n\nThis is the form of the answer.",
            "```json\n{\"final_answer\": \"7\"}\n```\nThe page ends with this.",
        ] {
            assert!(read(Contract::Schema, reply).is_err(), "{reply}");
        }
    }

    /// A call that was complete while the reply came may have run: no other reading of the whole takes its place.
    #[test]
    fn calls_that_were_given_out_are_not_exchanged_for_others() {
        let reply = |text: &str| {
            let completion = Completion {
                content: text.to_owned(),
                ..Completion::default()
            };
            read_completion(
                Contract::Schema,
                &completion,
                &[Arc::new(Tool::new("news"))],
            )
        };
        let solution = r#"{"calls": [{"_tool": "a.b"}], "output": null}"#;
        let leaked = "\n<tool_call>{\"name\": \"news\"}</tool_call>\n";
        let error = reply(&format!("{solution}x{leaked}")).unwrap_err();
        assert!(error.contains("trailing characters"), "{error}");
        // Where nothing was given out, the leaked call is the reply.
        let read = reply(&format!("I look it up.{leaked}")).unwrap();
        assert_eq!(read.calls[0].tool, "news");
    }
}
