//! The `tools` contract: native tool calling. Each tool is a function; with an output schema there is
//! one more, `finish`, that carries the output.

use crate::contract::conversation::{self, TranscriptFormat};
use crate::contract::leak::{self, CallableNames, Leak};
use crate::contract::reader::{SolutionPart, call_object};
use crate::contract::{ParsedReply, RequestView, lost_arguments, text, thought};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use toolhold_json::descriptions::{self, DESCRIPTIONS};
use toolhold_json::grammar_subset::{ALSO, GrammarSubset};
use toolhold_json::repair::{RepairKind, Repaired, TextEnd};
use toolhold_json::rules::ReadingRules;
use toolhold_json::scan::SPACE;
use toolhold_json::strict;
use toolhold_model::chat::{ChatMessage, ChatRequest, ChatTool, ToolChoice};
use toolhold_policy::prompt::PromptText;
use toolhold_policy::text::is_plain_json;
use toolhold_protocol::advisor;
use toolhold_protocol::completion::ChatToolCall;
use toolhold_protocol::compose;
use toolhold_protocol::compose::{Composition, Forcing, Properties};
use toolhold_protocol::function_names::ToolNames;
use toolhold_protocol::solution::{Call, Solution};
use toolhold_protocol::tool::Tool;
use toolhold_protocol::turn::{Answered, Exchange};

const FINISH: &str = "finish";
/// The member of a call that has the name of its tool.
const TOOL: &str = "_tool";
/// Members of a call that a text may be: those with a name, and those with arguments.
const CALL_NAMES: [&str; 4] = ["name", "tool", "tool_name", "function"];
const CALL_ARGUMENTS: [&str; 3] = ["arguments", "parameters", "args"];

/// The functions that stand for members of the solution, and what they are for. Where a tool is called like this, they have
/// other names.
const MEMBERS: [(&str, &str, &str); 3] = [
    (
        "meta",
        "meta",
        "Says which version this reply is. Call it first.",
    ),
    (
        "advisors",
        "advisors",
        "Says what each advisor thinks. Call it before anything else.",
    ),
    (
        FINISH,
        "output",
        "Gives the final output. Call it once, when the task is done.",
    ),
];

pub fn request(view: &RequestView<'_>) -> ChatRequest {
    let mut tools: Vec<_> = view
        .tools
        .iter()
        .map(|tool| ChatTool {
            name: function(&tool.name, view.composition.names),
            description: description(tool, view.composition).into(),
            parameters: parameters(tool, view.composition),
        })
        .collect();
    let composition = view.composition;
    for (name, member, description, schema) in members(view) {
        let Some(schema) = schema else { continue };
        tools.push(ChatTool {
            name: function_of_member(name, view),
            description: description.into(),
            parameters: shown(function_of(member, schema, composition.authored)),
        });
    }
    let mut last = match composition.advisors {
        Some(_) => advisor::VOTING.into(),
        None => PromptText::default(),
    };
    let demand = text::demand(composition.demanded);
    if !demand.is_empty() {
        last.words(if last.is_empty() { "" } else { "\n" });
        last.part(&demand);
    }
    let system = PromptText::instruction(view.instructions);
    let voice = Functions {
        reasons: view.settings.reasons,
        names: composition.names,
    };
    ChatRequest {
        model: view.model.to_owned(),
        messages: conversation::messages(view, system, &voice, last),
        tool_choice: tool_choice(view, &tools),
        tools,
        max_tokens: Some(view.settings.max_tokens),
        temperature: view.settings.temperature,
        ..ChatRequest::default()
    }
}

/// Each with its schema, where it is asked for.
fn members<'a>(
    view: &RequestView<'a>,
) -> [(&'static str, &'static str, &'static str, Option<&'a Value>); 3] {
    let composition = view.composition;
    let finish = view.output_schema.filter(|_| !composition.forced);
    let [meta, advisors, output] = MEMBERS;
    [
        (meta, composition.meta),
        (advisors, composition.advisors),
        (output, finish),
    ]
    .map(|((name, member, description), schema)| (name, member, description, schema))
}

fn tool_choice(view: &RequestView<'_>, tools: &[ChatTool]) -> Option<ToolChoice> {
    if tools.is_empty() {
        return None;
    }
    if !view.composition.forced {
        return Some(ToolChoice::Auto);
    }
    Some(match (tools, view.composition.forcing) {
        (_, Forcing::Auto) => ToolChoice::Auto,
        ([only], Forcing::Named) => ToolChoice::Named(only.name.clone()),
        (_, Forcing::Named | Forcing::Required) => ToolChoice::Required,
    })
}

/// Describes the tool and its reserved parameters.
fn description(tool: &Tool, how: Composition<'_>) -> PromptText {
    let mut lines = vec![PromptText::default().quoted(&tool.description).take()];
    lines.extend(text::reserved(tool, how));
    PromptText::joined(&lines, "\n")
}

/// The parameters of a call of `tool`, reserved ones included.
fn parameters(tool: &Tool, how: Composition<'_>) -> Value {
    // Functions stand before the conversation: the same bytes at every step, so that prefix caches hit.
    let how = Composition {
        answers: true,
        ..how
    };
    let mut subset = GrammarSubset::new(None).with_descriptions();
    let Properties {
        properties,
        required,
        additional,
    } = compose::properties(tool, how, &mut subset);
    shown(subset.finish(json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": additional,
    })))
}

/// Values that a call must have, and the words before them where they stand in a description.
const VALUES: [(&str, &str); 3] = [
    ("enum", "One of these values, which are written as JSON: "),
    ("const", "This value, which is written as JSON: "),
    (ALSO, "It must satisfy this JSON Schema, too: "),
];

/// Keywords whose texts are looked at where they are: descriptions, names and schemas.
const LOOKED_AT: [&str; 21] = [
    "$defs",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "definitions",
    "dependentSchemas",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// A reduced schema for chat templates, which write its texts as they are, some as lines of their own. Each description
/// stands behind a bar. A value with a line break or a hidden character stands in the description, as JSON on one line.
/// Other such texts are left out: calls are checked against the whole schema. Names have no such characters
/// (`text::check_names`).
fn shown(mut schema: Value) -> Value {
    descriptions::each(&mut schema, &mut |text| {
        *text = PromptText::default().quoted(text).take().into();
    });
    descriptions::each_schema(&mut schema, &mut tell_values);
    schema
}

/// Moves values that do not stay on their line into the description, which stands behind a bar already.
fn tell_values(schema: &mut Map<String, Value>) {
    let mut told = Vec::new();
    for (keyword, words) in VALUES {
        let own = schema.get(keyword);
        if own.is_none_or(|value| keyword != ALSO && is_plain_json(value)) {
            continue;
        }
        let Some(value) = schema.shift_remove(keyword) else {
            continue;
        };
        told.push(PromptText::from(words).json(&value).take());
        if keyword != ALSO && is_of_texts(&value) {
            schema.insert("type".into(), "string".into());
        }
    }
    schema.retain(|key, value| {
        let key = key.as_str();
        let is_looked_at =
            DESCRIPTIONS.contains(&key) || (LOOKED_AT.contains(&key) && !value.is_string());
        is_looked_at || is_plain_json(value)
    });
    if told.is_empty() {
        return;
    }
    let told = String::from(PromptText::joined(&told, "\n"));
    let description = match schema.get("description").and_then(Value::as_str) {
        None | Some("") => told,
        Some(own) => format!("{own}\n{told}"),
    };
    schema.insert("description".into(), description.into());
}

/// True for a text, or a list of texts.
fn is_of_texts(value: &Value) -> bool {
    let items = value.as_array().map(Vec::as_slice);
    let items = items.unwrap_or(std::slice::from_ref(value));
    items.iter().all(Value::is_string)
}

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

/// The output that a model wrote as its text, where an output of a schema was asked for: JSON, perhaps in one fence. It is
/// checked against the schema as every output. `None` for what looks like a call of a tool that is offered.
///
/// # Errors
/// It is JSON with two values for a key, or with a number that would lose digits.
fn written_output(text: &str, offer: &CallableNames) -> Result<Option<Value>, String> {
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
fn written_output_of_format_4(text: &str) -> Option<Value> {
    let value = strict::parse(leak::unfenced(text).unwrap_or(text)).ok()?;
    let has = |keys: &[&str]| keys.iter().any(|key| value.get(key).is_some());
    (!has(&CALL_NAMES) || !has(&CALL_ARGUMENTS)).then_some(value)
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

/// Why an answer that is nothing but calls as text is none, although they can be read. Behind prose they are a part of
/// the answer, and so are copies in forms without marks.
fn unread(said: &ParsedReply<'_>, answer: &str) -> Option<&'static str> {
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
fn is_failed(said: &ParsedReply<'_>, answer: &str, end: TextEnd) -> bool {
    let offer = &said.offer;
    leak::is_failed(answer, offer, end)
        && leak::in_unknown_marks(answer, offer).is_none_or(|call| !is_quoted(said, &call))
}

/// Whether the answer is a call in words, which cannot be read; one that the model was shown is a quotation. Beside native
/// calls, tools with arguments among signs are a list of calls.
fn is_unread(said: &ParsedReply<'_>, answer: &str, end: TextEnd) -> bool {
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
fn is_beside_sentences(said: &ParsedReply<'_>, answer: &str) -> bool {
    if said.provenance.has_native_calls() {
        return false;
    }
    let found = leak::beside_sentences(answer, &said.offer);
    found.is_some_and(|leaked| leaked.unquoted(said.provenance, 0).is_some())
}

/// The words for a call that cannot be read.
fn unreadable(answer: &str, offer: &CallableNames) -> String {
    match leak::inexact(answer, offer) {
        Some(error) => {
            format!("the reply looks like a call and its arguments cannot be taken: {error}")
        }
        None => "the reply looks like a call and cannot be read as one of the tools that are offered; call one of them \
                 by its name, with a JSON object as its arguments"
            .into(),
    }
}

/// What may be called: the tools, and what stands for the members that are asked for.
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

/// The part of a solution that a function call represents. Missing arguments are `null` here.
pub(super) fn given(
    function: &str,
    arguments: Value,
    names: Option<&ToolNames>,
    rules: ReadingRules,
) -> Result<SolutionPart, String> {
    let mut arguments = match arguments {
        Value::Object(arguments) => arguments,
        Value::Null => Map::new(),
        _ => return Err(format!("the arguments of {function} must be a JSON object")),
    };
    let is_meant =
        |name: &str| names.map_or(name == function, |names| names.is_member(name, function));
    let Some((_, member, _)) = MEMBERS.into_iter().find(|(name, ..)| is_meant(name)) else {
        let own = names.and_then(|names| names.map().meant(function));
        let own = own.map_or_else(|| tool(function), str::to_owned);
        // A parameter that is called as the member with the tool's name.
        let form = names.and_then(|names| names.outward_argument(&own, TOOL));
        if rules.are_from_5()
            && let Some(form) = form.filter(|form| !arguments.contains_key(form))
            && let Some(value) = arguments.shift_remove(TOOL)
        {
            arguments.insert(form, value);
        }
        return Ok(SolutionPart::Call(call_object(own, arguments)));
    };
    match arguments.shift_remove(member) {
        None | Some(Value::Null) => Err(format!(
            "{function} was called without what it is for; give it as {member:?}"
        )),
        Some(value) => Ok(SolutionPart::Field(member, value)),
    }
}

/// The name of the function that stands for a tool, which may hold no dots.
fn function(tool: &str, names: Option<&Arc<ToolNames>>) -> String {
    match names {
        Some(names) => names.map().outward(tool).into_owned(),
        None => tool.replace('.', "-"),
    }
}

/// The name of the function that stands for a member of the solution.
fn function_of_member(member: &str, view: &RequestView<'_>) -> String {
    let names = view.composition.names;
    names.map_or_else(|| member.to_owned(), |names| names.member(member))
}

/// The name of the tool that a function of no known tool would stand for.
pub fn tool(function: &str) -> String {
    function.replace('-', ".")
}

/// The parameters of a function that stands for one member of the solution. `authored` leaves its schema as it was written.
fn function_of(member: &str, schema: &Value, authored: bool) -> Value {
    let mut subset = GrammarSubset::new(None).with_descriptions();
    let schema = if authored {
        subset.authored(schema)
    } else {
        subset.reduce(schema, "")
    };
    subset.finish(json!({
        "type": "object",
        "required": [member],
        "properties": {member: schema},
        "additionalProperties": false,
    }))
}

struct Functions<'a> {
    reasons: bool,
    names: Option<&'a Arc<ToolNames>>,
}

impl TranscriptFormat for Functions<'_> {
    fn answer(&self, text: &str) -> ChatMessage {
        ChatMessage::assistant(text.to_owned())
    }

    fn exchange(&self, exchange: &Exchange, out: &mut Vec<ChatMessage>) {
        let calls = exchange
            .calls
            .iter()
            .enumerate()
            .map(|(place, answered)| {
                let call = text::outward(&answered.call, self.names);
                let members = exchange.reasoning.of_call(place).cloned();
                let written = text::written_arguments(&answered.call).map(str::to_owned);
                ChatToolCall {
                    id: call.id.clone(),
                    name: function(&call.tool, self.names),
                    arguments: written.unwrap_or_else(|| {
                        json!(text::properties(&call, self.reasons)).to_string()
                    }),
                    members: members.unwrap_or_default(),
                }
            })
            .collect();
        out.push(ChatMessage::assistant_calls(None, calls));
        for answered in &exchange.calls {
            out.push(ChatMessage::tool(
                answered.call.id.clone(),
                result(answered),
            ));
        }
    }

    fn rejected(&self, reply: &str, reason: &str, out: &mut Vec<ChatMessage>) {
        let answer = thought::split(reply).answer.trim();
        if !answer.is_empty() {
            out.push(ChatMessage::assistant(answer.to_owned()));
        }
        let mut text = PromptText::from("That reply could not be used: ");
        out.push(ChatMessage::user(text.line(reason).words(".").take()));
    }
}

/// A result in a message of its own, which is the fence of one line. Several lines stand in a fence that the tool does
/// not know: chat templates put them into one text with everything else.
fn result(answered: &Answered) -> PromptText {
    match PromptText::single_line(&answered.text) {
        Some(line) if answered.failed => PromptText::from("error: ").part(&line).take(),
        Some(line) => line,
        None => text::result(answered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_protocol::completion::Completion;
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
    fn each_text_that_describes_a_parameter_stands_behind_a_bar() {
        let texts = json!({"title": "# Task", "description": "Looks at: x", "$comment": "- y"});
        let schema = json!({"definitions": {"a": texts}, "dependentSchemas": {"b": texts}});
        let schema = shown(schema);
        let quoted =
            json!({"title": "│ # Task", "description": "│ Looks at: x", "$comment": "│ - y"});
        assert_eq!(
            schema,
            json!({"definitions": {"a": quoted}, "dependentSchemas": {"b": quoted}})
        );
    }

    #[test]
    fn a_value_with_a_line_break_stands_in_the_description() {
        let told = "One of these values, which are written as JSON: [\"\\n\",\"a\"]";
        for (schema, expect) in [
            (
                json!({"description": "Ends lines.", "enum": ["\n", "a"]}),
                json!({"description": format!("│ Ends lines.\n{told}"), "type": "string"}),
            ),
            (
                json!({"items": {"enum": ["\n", "a"]}}),
                json!({"items": {"description": told, "type": "string"}}),
            ),
            (
                json!({"const": {"a\u{200b}": 1}}),
                json!({"description": "This value, which is written as JSON: {\"a\\u200b\":1}"}),
            ),
            (
                json!({"type": "string", "pattern": "^\n$"}),
                json!({"type": "string"}),
            ),
            (json!({"enum": ["a b", 1]}), json!({"enum": ["a b", 1]})),
            (
                json!({"type": "integer", ALSO: {"multipleOf": 5}, "description": "Euros."}),
                json!({"type": "integer", "description":
                    "│ Euros.\nIt must satisfy this JSON Schema, too: {\"multipleOf\":5}"}),
            ),
            (
                json!({"type": "string", "default": ["\n"], "examples": ["a"]}),
                json!({"type": "string", "examples": ["a"]}),
            ),
        ] {
            assert_eq!(shown(schema), expect);
        }
    }

    #[test]
    fn without_a_grammar_the_authors_schema_is_sent() {
        let own = json!({"type": "number", "minimum": 0.5, "multipleOf": 0.5, "default": 1.0});
        let tool = Tool {
            parameters: json!({"type": "object", "properties": {"n": own}, "required": ["n"]}),
            ..Tool::new("a.b")
        };
        let reduced = json!({"type": "number", "minimum": 0.5, "default": 1.0,
            "description": "It must satisfy this JSON Schema, too: {\"multipleOf\":0.5}"});
        for (authored, wiring, expect) in [
            (true, false, Some(&own)),
            (false, false, Some(&reduced)),
            (true, true, None),
        ] {
            let how = Composition {
                authored,
                wiring,
                ..Composition::default()
            };
            let schema = parameters(&tool, how);
            assert_eq!(schema["required"][0], "n");
            match expect {
                Some(expect) => assert_eq!(schema["properties"]["n"], *expect),
                None => assert!(schema["properties"]["n"]["anyOf"].is_array(), "{schema}"),
            }
        }
        let answer = json!({"$ref": "#/$defs/N", "$defs": {"N": own}});
        for (authored, name) in [(true, "N"), (false, "_N")] {
            let schema = function_of("output", &answer, authored);
            assert_eq!(
                schema["properties"]["output"]["$ref"],
                format!("#/$defs/{name}")
            );
            assert_eq!(schema["$defs"][name]["minimum"], 0.5);
        }
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
    fn a_parameter_may_have_the_name_of_a_reserved_property() {
        let taken = Arc::new(Tool {
            parameters: json!({"type": "object", "properties": {"_tool": {"type": "string"}}}),
            ..Tool::new("w")
        });
        let names = ToolNames::new(&[taken, Arc::new(Tool::new("plain"))], &[]);
        let read = |function: &str, arguments: Value| {
            let rules = ReadingRules::Current;
            let part = given(function, arguments, Some(&names), rules).unwrap();
            let SolutionPart::Call(call) = part else {
                panic!("{function} is no call");
            };
            names.own_call(Call::read(call).unwrap())
        };
        let outward = names.outward_argument("w", TOOL).unwrap();
        for name in [TOOL, outward.as_str()] {
            let call = read("w", json!({name: "saw"}));
            assert_eq!(
                (call.tool.as_str(), call.arguments),
                ("w", json!({"_tool": "saw"}))
            );
        }
        let call = read("plain", json!({"_tool": "w"}));
        assert_eq!((call.tool.as_str(), call.arguments), ("plain", json!({})));
    }

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

    /// The arguments of a client's own model go back as they were, where a value would have other digits.
    #[test]
    fn arguments_that_are_a_text_go_out_as_they_were_written() {
        let arguments = |arguments: Value| {
            let call = Call {
                tool: "a.b".into(),
                arguments,
                ..Call::default()
            };
            let exchange = Exchange {
                calls: vec![Answered {
                    call,
                    fence: String::new(),
                    text: "1".into(),
                    failed: false,
                }],
                ..Exchange::default()
            };
            let mut out = Vec::new();
            let voice = Functions {
                reasons: false,
                names: None,
            };
            voice.exchange(&exchange, &mut out);
            out[0].tool_calls[0].arguments.clone()
        };
        let text = "{\"a\": 123456789012345678901234567890}";
        assert_eq!(arguments(json!(text)), text);
        assert_eq!(arguments(json!({"a": 1})), "{\"a\":1}");
        assert_eq!(arguments(json!("[1]")), "{}");
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
