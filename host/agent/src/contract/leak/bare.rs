//! Forms whose marks are words or members of an object, and that are all of an answer. They are read where the name is the
//! one of an offered tool, letter by letter, and nothing but its arguments stands there.

use super::body::{self, CallableNames, IDLE, THOUGHTS, argument_members, names};
use super::pythonic::{self, bracketed};
use super::tags::one;
use super::{Leak, LeakedCalls, MAX_CALLS, alone, front_only};
use serde_json::{Map, Value};
use toolhold_json::repair::TextEnd;
use toolhold_json::rules::ReadingRules;
use toolhold_json::strict;

/// The recipient of messages for the user.
const ALL: &str = "all";
/// Words with which an answer of ReAct or Command R+ begins.
pub(super) const HEADS: [&str; 5] = ["Thought:", "Action:", "Plan:", "Reflection:", "Question:"];
const ACTION: &str = "Action:";
const INPUT: &str = "Action Input:";
const OBSERVATION: &str = "\nObservation:";
const RECIPIENT: &str = "<|recipient|>";
const FROM: &str = "<|from|>assistant";
/// Mistral's mark where the server took its brackets away.
const CALLS: &str = "TOOL_CALLS";
/// The member that holds the calls of a message.
const TOOL_CALLS: &str = "tool_calls";
/// Members that hold one call of a message, and those that hold several.
const TOOL_CALL: [&str; 5] = [
    "function_call",
    "functionCall",
    "tool_call",
    "toolCall",
    "action",
];
static LISTS: [&str; 4] = [TOOL_CALLS, "toolCalls", "function_calls", "tool_uses"];
/// Marks of Qwen-Agent.
const QWEN_FUNCTION: &str = "✿FUNCTION✿:";
const QWEN_ARGUMENTS: &str = "✿ARGS✿:";
const QWEN_RESULT: &str = "✿RESULT✿";
/// Marks of NexusRaven and of HyperCLOVA.
const NEXUS: (&str, &str) = ("Call:", "<bot_end>");
pub(super) const HYPER_CLOVA: &str = "-> tool/function_call";
/// The function in whose place ChatGLM3 writes the tool that it named above.
const GLM_CALL: &str = "tool_call(";
/// The element of Llama 3 that Groq returns where it is broken.
const GROQ: &str = "<function";
const GROQ_ENDS: [&str; 3] = ["</function>", "<function>", "<function/>"];
/// Members that say nothing about a call beside it.
const BESIDE: [&str; 9] = [
    "thought",
    "thoughts",
    "reasoning",
    "reasoning_content",
    "content",
    "role",
    "refusal",
    "id",
    "type",
];

/// The calls of an answer in a form whose marks are words.
pub(super) fn calls(text: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    let found = messages(text, offer)
        .or_else(|| recipients(text, offer))
        .or_else(|| action(text, offer))
        .or_else(|| code(text).and_then(|code| pythonic::calls(code, offer)))
        .or_else(|| separated(text, offer))
        .or_else(|| unbracketed(text, offer))
        .or_else(|| mcp(text, offer))
        .or_else(|| in_words(text, offer))
        .or_else(|| beside_name(text, offer))?;
    (!found.calls.is_empty()).then_some(found)
}

/// A call by the exact name of a tool, with an object as its arguments.
fn exact(name: &str, arguments: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    let tool = offer.exact(name)?;
    let is_object = arguments.starts_with(['{', '`']);
    is_object.then(|| body::named(tool, arguments, offer, TextEnd::Own))?
}

/// `>>>NAME` and an object on the next lines, as Functionary v3 writes it; `>>>all` before a text for the user.
fn messages(text: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    let mut leaked = LeakedCalls::default();
    for message in text.strip_prefix(">>>")?.split("\n>>>") {
        let (name, content) = message.split_once('\n').unwrap_or((message, ""));
        if !is_for_user(name, offer) {
            leaked.take(exact(name, content.trim(), offer)?);
        }
    }
    Some(leaked)
}

fn is_for_user(name: &str, offer: &CallableNames) -> bool {
    name.trim() == ALL && offer.exact(ALL).is_none()
}

/// `<|recipient|>NAME`, `<|content|>` and an object, as Functionary v2 writes it.
fn recipients(text: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    let mut leaked = LeakedCalls::default();
    for message in behind_from(text).strip_prefix(RECIPIENT)?.split(RECIPIENT) {
        let (name, content) = message.split_once("<|content|>")?;
        let content = content.trim();
        let content = content.strip_suffix(FROM).unwrap_or(content).trim_end();
        let content = content.strip_suffix("<|stop|>").unwrap_or(content);
        if !is_for_user(name, offer) {
            leaked.take(exact(name, content.trim(), offer)?);
        }
    }
    Some(leaked)
}

fn behind_from(text: &str) -> &str {
    text.strip_prefix(FROM).unwrap_or(text).trim_start()
}

/// The text behind `Action:`, where it begins a line of an answer that begins with such a word.
fn behind_action(text: &str) -> Option<&str> {
    if !HEADS.iter().any(|head| text.starts_with(head)) {
        return None;
    }
    let (before, rest) = match text.strip_prefix(ACTION) {
        Some(rest) => ("", rest),
        None => {
            let (before, line) = text.split_at_checked(text.find("\nAction:")? + 1)?;
            (before, line.strip_prefix(ACTION)?)
        }
    };
    (!before.contains("\nFinal Answer:")).then_some(rest.trim_start())
}

/// `Action: NAME` and `Action Input: {…}`, as ReAct has it, or `Action:` and a fence of Command R+.
fn action(text: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    let rest = behind_action(text)?;
    if let Some(inner) = body::unfenced(rest) {
        return body::json(inner, offer, TextEnd::Own, true);
    }
    let (name, rest) = rest.split_once('\n')?;
    let input = rest.trim_start().strip_prefix(INPUT)?;
    let (input, _) = input.split_once(OBSERVATION).unwrap_or((input, ""));
    exact(name.trim().trim_matches('`'), input.trim(), offer)
}

/// The inside of SmolLM3's element.
fn code(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("<code>")?.strip_suffix("</code>")?;
    Some(inner.trim())
}

/// `NAME<｜tool▁sep｜>{…}`, whose first mark the server took away.
fn separated(text: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    has_separator(text, offer).then(|| body::after_name(text, offer, TextEnd::Own))?
}

fn has_separator(text: &str, offer: &CallableNames) -> bool {
    let Some((name, rest)) = text.find('<').and_then(|at| text.split_at_checked(at)) else {
        return false;
    };
    let is_named = name == "function" || offer.exact(name).is_some();
    is_named && body::strip_separator(offer.rules(), rest).is_some()
}

/// `TOOL_CALLS[{…}]`, `TOOL_CALLSNAME{…}` and `NAME[ARGS]{…}`.
fn unbracketed(text: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    let rest = match text.strip_prefix(CALLS) {
        Some(rest) => rest.trim_start(),
        None => {
            let (name, _) = text.split_once("[ARGS]")?;
            offer.exact(name)?;
            text
        }
    };
    if rest.starts_with('[') {
        return body::json(rest, offer, TextEnd::Own, true);
    }
    body::after_name(rest, offer, TextEnd::Own)
}

/// Cline's form for the tools of a server.
fn mcp(text: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    let inner = text.strip_prefix("<use_mcp_tool>")?;
    let inner = inner.strip_suffix("</use_mcp_tool>")?;
    let server = element(inner, "server_name")?;
    let tool = element(inner, "tool_name")?;
    let arguments = element(inner, "arguments")?;
    exact(&format!("{server}.{tool}"), arguments, offer).or_else(|| exact(tool, arguments, offer))
}

fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inner, _) = rest.split_once(&format!("</{name}>"))?;
    Some(inner.trim())
}

/// The forms of this file that the rules before format 5 do not know.
fn in_words(text: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    if !offer.rules().are_from_5() {
        return None;
    }
    spoken(text, offer)
        .or_else(|| groq(text, offer))
        .or_else(|| below_name(text, offer))
}

/// The forms of Qwen-Agent, NexusRaven and HyperCLOVA, whose marks are words.
fn spoken(text: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    if let Some(rest) = text.strip_prefix(HYPER_CLOVA) {
        return body::json(rest.trim(), offer, TextEnd::Own, true);
    }
    if let Some(calls) = nexus(text) {
        return pythonic::calls(calls, offer);
    }
    let mut leaked = LeakedCalls::default();
    for call in text.strip_prefix(QWEN_FUNCTION)?.split(QWEN_FUNCTION) {
        let (name, rest) = call.split_once(QWEN_ARGUMENTS)?;
        // What stands behind is the model's own idea of a result.
        let (arguments, _) = rest.split_once(QWEN_RESULT).unwrap_or((rest, ""));
        leaked.take(exact(name.trim(), arguments.trim(), offer)?);
        if leaked.calls.len() > MAX_CALLS {
            return None;
        }
    }
    Some(leaked)
}

/// The calls of NexusRaven, which may tell its thought behind them.
fn nexus(text: &str) -> Option<&str> {
    let (calls, after) = text.strip_prefix(NEXUS.0)?.split_once(NEXUS.1)?;
    let after = after.trim_start();
    (after.is_empty() || after.starts_with("Thought:")).then_some(calls)
}

/// The call of an answer that is nothing but a form of [`spoken`], [`groq`] or [`below_name`], with the name of an offered
/// tool. Its arguments are not given.
pub(super) fn spoken_call(answer: &str, offer: &CallableNames) -> Option<Leak> {
    if !offer.rules().are_from_5() {
        return None;
    }
    let text = alone(offer.rules(), answer);
    let of_qwen = || {
        let rest = text.strip_prefix(QWEN_FUNCTION)?;
        offer.exact(rest.split_whitespace().next()?).cloned()
    };
    let of_hyper_clova = || member_tool(text.strip_prefix(HYPER_CLOVA)?.trim(), offer);
    let of_nexus = || pythonic::named(nexus(text)?, offer);
    let of_groq = || {
        let (tool, object) = groq_tool(text, offer)?;
        let (_, after) = bracketed(object)?;
        let after = after.trim();
        (after.is_empty() || GROQ_ENDS.contains(&after)).then(|| tool.clone())
    };
    let of_glm = || {
        let call = below_name(text, offer)?.calls.into_iter().next()?;
        Some(call.tool)
    };
    let tool = of_qwen()
        .or_else(of_hyper_clova)
        .or_else(of_nexus)
        .or_else(of_groq)
        .or_else(of_glm)?;
    Some(Leak::without_arguments(tool, text))
}

/// `<function(NAME){…}</function>` and what else Llama makes of its mark.
fn groq(text: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    let (tool, rest) = groq_tool(text, offer)?;
    let inner = GROQ_ENDS.iter().find_map(|end| rest.strip_suffix(*end));
    exact(tool, inner.unwrap_or(rest).trim(), offer)
}

/// The tool in a broken mark, and its object.
fn groq_tool<'o, 't>(text: &'t str, offer: &'o CallableNames) -> Option<(&'o String, &'t str)> {
    let rest = text.strip_prefix(GROQ)?;
    let (name, object) = rest.split_at_checked(rest.find('{')?)?;
    let name = name.trim_matches(|c: char| c.is_whitespace() || "=(/),>:".contains(c));
    Some((offer.exact(name)?, object))
}

/// `NAME` and a fence with `tool_call(KEY=VALUE)`, as ChatGLM3 writes it.
fn below_name(text: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    let (name, rest) = text.split_once('\n')?;
    let tool = offer.exact(name)?;
    let arguments = body::unfenced(rest.trim())?.strip_prefix(GLM_CALL)?;
    let leaked = pythonic::calls(&format!("{tool}({arguments}"), offer)?;
    (leaked.calls.len() == 1).then_some(leaked)
}

/// `NAME{…}` and `@NAME{…}`.
fn beside_name(text: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    let (name, object) = split_name(text)?;
    exact(name, object, offer)
}

fn split_name(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('@').unwrap_or(text);
    let (name, object) = text.split_at_checked(text.find('{')?)?;
    (!name.contains(char::is_whitespace)).then_some((name, object))
}

/// The calls of an object in which other members than those of a call hold them.
pub(super) fn object(text: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    let Value::Object(mut object) = strict::parse_under(offer.rules(), text).ok()? else {
        return None;
    };
    let is_from_5 = offer.rules().are_from_5();
    let mut lists = lists(offer.rules()).iter();
    if let Some(calls) = lists.find_map(|name| object.shift_remove(*name)) {
        let items = match calls {
            Value::Array(items) if !items.is_empty() && items.len() <= MAX_CALLS => items,
            Value::Object(item) => vec![item.into()],
            _ => return None,
        };
        let calls = items.into_iter().map(|item| body::call(item, offer, true));
        let calls = calls.collect::<Option<Vec<_>>>()?;
        return is_beside(&object).then(|| LeakedCalls {
            calls,
            ..LeakedCalls::default()
        });
    }
    let is_object = |name: &&&str| object.get(**name).is_some_and(Value::is_object);
    if let Some(name) = TOOL_CALL.iter().find(is_object).filter(|_| is_from_5) {
        let inner = object.shift_remove(*name)?;
        let Leak {
            tool, arguments, ..
        } = body::call(inner, offer, true)?;
        return is_beside(&object).then(|| one(tool, arguments));
    }
    if let Some(name) = object.shift_remove("action") {
        let tool = offer.exact(name.as_str()?)?.clone();
        let arguments = body::arguments(offer.rules(), object.shift_remove("action_input")?)?;
        return is_beside(&object).then(|| one(tool, arguments));
    }
    let (leak, name) = match body::by_name(&object, offer) {
        Some(leak) => (leak, object.keys().next()?.clone()),
        None if is_from_5 => flat(object, offer)?,
        None => return None,
    };
    let is_own = offer.exact(&name).is_some() && is_compound(&name);
    let is_known = leak.arguments.is_empty() || offer.properties(&leak.tool).is_some();
    let fits = leak
        .arguments
        .keys()
        .all(|key| offer.takes(&leak.tool, key));
    (is_own && is_known && fits).then(|| one(leak.tool, leak.arguments))
}

/// Members that hold several calls of a message. The rules before format 5 know the first.
fn lists(rules: ReadingRules) -> &'static [&'static str] {
    if rules.are_from_5() {
        &LISTS
    } else {
        &[TOOL_CALLS]
    }
}

/// `{"tool": NAME, KEY: VALUE}`: the call, and its name as it stands there.
fn flat(mut object: Map<String, Value>, offer: &CallableNames) -> Option<(Leak, String)> {
    let mut names = ["tool", "tool_name"].into_iter();
    let Value::String(name) = names.find_map(|name| object.shift_remove(name))? else {
        return None;
    };
    let tool = offer.exact(&name)?.clone();
    (!object.is_empty()).then(|| (Leak::new(tool, object), name))
}

fn is_beside(object: &Map<String, Value>) -> bool {
    object.keys().all(|key| BESIDE.contains(&key.as_str()))
}

/// Whether a name is no word of a language.
pub(super) fn is_compound(name: &str) -> bool {
    name.contains(['.', '-', '_'])
}

/// The call of an answer that is nothing else and cannot be read, or is not known to be meant: a form without marks of this
/// program, with the name of an offered tool. Its arguments are not given.
pub(super) fn unread(answer: &str, offer: &CallableNames) -> Option<Leak> {
    if !offer.rules().are_from_4() {
        return None;
    }
    let text = alone(offer.rules(), answer);
    let inner = body::unfenced(text);
    let tool = inner
        .and_then(|inner| marked(inner, offer))
        .or_else(|| tool(inner.unwrap_or(text), offer))?;
    Some(Leak::without_arguments(tool, inner.unwrap_or(text)))
}

/// The tool of calls with marks that are all of a text.
fn marked(text: &str, offer: &CallableNames) -> Option<String> {
    let leaked = front_only(text, offer, TextEnd::Own)?;
    leaked.calls.into_iter().next().map(|call| call.tool)
}

/// The offered tool that a text names like a call of it.
fn tool(text: &str, offer: &CallableNames) -> Option<String> {
    let exact = |name: &str| offer.exact(name.trim().trim_matches('`')).cloned();
    let first = |text: &str| text.split_whitespace().next().and_then(exact);
    if let Some(rest) = text.strip_prefix(">>>") {
        return rest.split("\n>>>").find_map(first);
    }
    if let Some(rest) = behind_from(text).strip_prefix(RECIPIENT) {
        return rest
            .split(RECIPIENT)
            .find_map(|message| exact(message.split('<').next()?));
    }
    if let Some(rest) = behind_action(text) {
        let inner = body::unfenced(rest).and_then(|inner| member_tool(inner, offer));
        let in_brackets = || {
            let (name, arguments) = rest.lines().next()?.split_once('[')?;
            let is_call = offer.rules().are_from_5() && arguments.trim_end().ends_with(']');
            exact(name).filter(|_| is_call)
        };
        return inner
            .or_else(|| exact(rest.lines().next()?))
            .or_else(in_brackets);
    }
    if text.starts_with("<use_mcp_tool>") {
        let name = element(text, "tool_name")?;
        let server = element(text, "server_name")?;
        return exact(&format!("{server}.{name}")).or_else(|| exact(name));
    }
    if let Some(rest) = text.strip_prefix(CALLS).filter(|rest| !rest.is_empty()) {
        return member_tool(rest.trim_start(), offer)
            .or_else(|| split_name(rest).and_then(|(name, _)| exact(name)));
    }
    if has_separator(text, offer) {
        let named = text.split(['<', '>', '\n', '{']);
        return named.filter(|word| !word.is_empty()).find_map(exact);
    }
    if text.starts_with(['{', '[']) {
        return member_tool(text, offer).or_else(|| pythonic::named(text, offer));
    }
    let beside = || split_name(text).filter(|_| text.ends_with('}'));
    pythonic::named(code(text).unwrap_or(text), offer)
        .or_else(|| beside().and_then(|(name, _)| exact(name)))
}

/// The offered tool that an object names, or the first one of a list, where it has the members of a call and no other ones.
/// Numbers may lose digits: a call is not read for that.
fn member_tool(text: &str, offer: &CallableNames) -> Option<String> {
    let (first, rest) = bracketed(text)?;
    let rest = rest.trim_start();
    if !(rest.is_empty() || rest.starts_with([';', ',', '{'])) {
        return None;
    }
    match strict::parse_under(ReadingRules::Format3, first).ok()? {
        Value::Array(items) => items
            .iter()
            .find_map(|item| of_member(item.as_object()?, offer)),
        Value::Object(object) => of_member(&object, offer),
        _ => None,
    }
}

fn of_member(object: &Map<String, Value>, offer: &CallableNames) -> Option<String> {
    let exact = |name: &Value| offer.exact(name.as_str()?).cloned();
    let mut lists = lists(offer.rules()).iter();
    match lists.find_map(|name| object.get(*name)) {
        Some(Value::Array(items)) => {
            let objects = items.iter().filter_map(Value::as_object);
            return objects
                .take(MAX_CALLS)
                .find_map(|item| of_call(item, offer));
        }
        Some(Value::Object(item)) => return of_call(item, offer),
        _ => {}
    }
    let mut inner = TOOL_CALL
        .iter()
        .filter(|_| offer.rules().are_from_5())
        .filter_map(|name| object.get(*name)?.as_object());
    if let Some(tool) = inner.find_map(|inner| of_call(inner, offer)) {
        return Some(tool);
    }
    if let Some(name) = object
        .get("action")
        .filter(|_| object.contains_key("action_input"))
    {
        return exact(name);
    }
    let mut members = object.iter();
    if let (Some((name, Value::Object(_))), None) = (members.next(), members.next())
        && is_compound(name)
    {
        return offer.exact(name).cloned();
    }
    of_call(object, offer)
}

/// The tool of an object that has the members of a call, and is no definition of a tool.
fn of_call(object: &Map<String, Value>, offer: &CallableNames) -> Option<String> {
    if let Some(Value::Object(inner)) = object.get("function") {
        return of_call(inner, offer);
    }
    let (names, members) = (names(offer.rules()), argument_members(offer.rules()));
    let thoughts: &[&str] = if offer.rules().are_from_5() {
        &THOUGHTS
    } else {
        &[]
    };
    let is_known = |key: &String| {
        let all: [&[&str]; 4] = [names, members, &IDLE, thoughts];
        all.iter().any(|known| known.contains(&key.as_str()))
    };
    let given = members.iter().find_map(|key| object.get(*key))?;
    let is_schema = given.as_object().is_some_and(body::is_schema);
    let name = names.iter().find_map(|key| object.get(*key)?.as_str())?;
    let tool = offer.exact(name)?;
    (object.keys().all(is_known) && !is_schema).then(|| tool.clone())
}
