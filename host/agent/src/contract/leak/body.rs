//! What stands between the marks of a leaked call, or is all of an answer.

use super::{Leak, LeakedCalls, MAX_CALLS, alone, bare, gemma, pythonic, tags};
use crate::contract::harmony::{self, Header, HeaderMatch};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;
use toolhold_json::numbers;
use toolhold_json::repair::RepairKind;
use toolhold_json::repair::{Repaired, TextEnd, repair_under};
use toolhold_json::rules::ReadingRules;
use toolhold_json::strict;
use toolhold_protocol::function_names::ToolNames;
use toolhold_protocol::tool::Tool;

/// Members that hold a tool's name, and those that hold its arguments. The rules before format 5 know the first five of each.
static NAMES: [&str; 6] = [
    "name",
    "tool",
    "tool_name",
    "function",
    "function_name",
    "recipient_name",
];
static ARGUMENTS: [&str; 8] = [
    "arguments",
    "parameters",
    "args",
    "tool_input",
    "input",
    "function_args",
    "tool_args",
    "tool_arguments",
];
const BEFORE_FORMAT_5: usize = 5;
/// Members with what a model thought before a call that is all of a reply.
pub(in crate::contract) const THOUGHTS: [&str; 4] =
    ["thought", "thoughts", "reasoning", "reasoning_content"];
/// Members that carry no information for the call.
pub(super) const IDLE: [&str; 5] = ["id", "type", "index", "call_id", "tool_call_id"];

/// The names that a call may have.
#[derive(Debug, Clone, Default)]
pub(in crate::contract) struct CallableNames {
    offered: Arc<BTreeSet<String>>,
    tools: Arc<[Arc<Tool>]>,
    /// Absent: hyphens may stand for dots.
    names: Option<Arc<ToolNames>>,
    /// The rules by which calls are read.
    rules: ReadingRules,
}

impl CallableNames {
    pub(in crate::contract) fn of(tools: &[Arc<Tool>]) -> Self {
        let names = tools.iter().map(|tool| tool.name.clone());
        Self {
            offered: Arc::new(names.collect()),
            tools: tools.into(),
            names: None,
            rules: ReadingRules::Current,
        }
    }

    /// With these rules instead of the current ones.
    pub(in crate::contract) fn under(self, rules: ReadingRules) -> Self {
        Self { rules, ..self }
    }

    pub(in crate::contract) fn rules(&self) -> ReadingRules {
        self.rules
    }

    /// With the names under which tools go out.
    pub(in crate::contract) fn named(mut self, names: Option<&Arc<ToolNames>>) -> Self {
        self.names = names.cloned();
        self
    }

    /// With functions that are no tools.
    pub(in crate::contract) fn with(mut self, names: impl IntoIterator<Item = String>) -> Self {
        Arc::make_mut(&mut self.offered).extend(names);
        self
    }

    /// The properties that a tool names, if it names any.
    pub(super) fn properties(&self, tool: &str) -> Option<&Map<String, Value>> {
        let tool = self.tools.iter().find(|known| known.name == tool)?;
        let properties = tool.parameters.get("properties")?.as_object()?;
        (!properties.is_empty()).then_some(properties)
    }

    /// The parameter of a tool that has no other one.
    pub(super) fn only_parameter(&self, tool: &str) -> Option<&str> {
        let mut keys = self.properties(tool)?.keys();
        let only = keys.next()?;
        keys.next().is_none().then_some(only)
    }

    /// True where the tool has this parameter, or names no parameters.
    pub(super) fn takes(&self, tool: &str, key: &str) -> bool {
        self.properties(tool)
            .is_none_or(|known| key.starts_with('_') || known.contains_key(key))
    }

    /// Whether the text of a parameter that is no text is a number that would lose digits, or holds one.
    pub(super) fn loses_digits(&self, tool: &str, key: &str, text: &str) -> bool {
        let schema = self.properties(tool).and_then(|known| known.get(key));
        let ty = schema.and_then(|schema| schema.get("type")?.as_str());
        ty.is_some_and(|ty| matches!(ty, "integer" | "number" | "array" | "object"))
            && numbers::check(text.as_bytes()).is_err()
    }

    /// The tool that a model means by a name, which it may have learned in another spelling.
    pub(in crate::contract) fn tool(&self, name: &str) -> Option<String> {
        let own = self.exact(name).or_else(|| {
            let names = self.names.as_ref()?;
            self.offered.get(names.map().meant(name)?)
        });
        own.cloned()
    }

    /// The tool of this name, in its own form or in the one that goes out. Functions may not hold dots; Kimi adds a prefix
    /// and a number.
    pub(super) fn exact(&self, name: &str) -> Option<&String> {
        let name = name.trim();
        let plain = name.strip_prefix("functions.").unwrap_or(name);
        let plain = match plain.rsplit_once(':') {
            Some((plain, number)) if number.bytes().all(|c| c.is_ascii_digit()) => plain,
            _ => plain,
        };
        let whole = self.rules.are_from_4().then_some(name);
        whole.into_iter().chain([plain]).find_map(|name| {
            let own = self.offered.get(name);
            own.or_else(|| match &self.names {
                Some(names) => self.offered.get(names.map().exact(name)?),
                None => self.offered.get(&name.replace('-', ".")),
            })
        })
    }

    /// The same where a name may hold nothing but letters, digits and `_`: the only tool that it can mean.
    pub(super) fn identifier(&self, name: &str) -> Option<String> {
        self.tool(name).or_else(|| {
            let mut meant = self.offered.iter().filter(|tool| {
                let plain = tool
                    .chars()
                    .map(|c| if c == '.' || c == '-' { '_' } else { c });
                plain.eq(name.trim().chars())
            });
            meant.next().filter(|_| meant.next().is_none()).cloned()
        })
    }
}

/// Whether a name before arguments is one word. A sentence that ends with the name of a tool (`as in to=NAME(…)`) is no name
/// of it, and what follows a mark is known to be prose by its first words. The rules before format 5 take any text.
pub(super) fn is_one_word(rules: ReadingRules, name: &str) -> bool {
    !rules.are_from_5() || !name.trim().contains(char::is_whitespace)
}

/// Members that hold a tool's name.
pub(super) fn names(rules: ReadingRules) -> &'static [&'static str] {
    known(rules, &NAMES)
}

/// Members that hold the arguments of a call.
pub(super) fn argument_members(rules: ReadingRules) -> &'static [&'static str] {
    known(rules, &ARGUMENTS)
}

fn known(rules: ReadingRules, all: &'static [&'static str]) -> &'static [&'static str] {
    if rules.are_from_5() {
        all
    } else {
        all.get(..BEFORE_FORMAT_5).unwrap_or(all)
    }
}

/// The calls between two marks.
pub(super) fn read(text: &str, offer: &CallableNames, end: TextEnd) -> Option<LeakedCalls> {
    let text = text.trim();
    let rules = offer.rules();
    // Step 3 writes what kind of call follows, as DeepSeek does.
    let kind = text.strip_prefix("function");
    let kind = kind.filter(|_| rules.are_from_4());
    let text = match kind.and_then(|rest| strip_separator(rules, rest)) {
        Some(rest) if tags::begin(rules, rest.trim_start()) => rest.trim_start(),
        _ => text,
    };
    if tags::begin(rules, text) {
        return tags::all(text, offer, end);
    }
    if gemma::begin(text) {
        return gemma::calls(text, offer);
    }
    if let HeaderMatch::With(header) = harmony::begins(text) {
        return message(&header, offer, end);
    }
    if text.starts_with(['{', '[', '`']) {
        return json(text, offer, end, false)
            .or_else(|| several(text, offer, false))
            .or_else(|| pythonic::calls(text, offer))
            .or_else(|| {
                // MiniCPM.
                let inner = unfenced(text).filter(|_| rules.are_from_5());
                inner.and_then(|inner| pythonic::calls(inner, offer))
            })
            .filter(|leaked| leaked.calls.len() <= MAX_CALLS);
    }
    tags::pairs(text, offer, end)
        .or_else(|| pythonic::calls(text, offer))
        .or_else(|| after_name(text, offer, end))
}

/// A Harmony message with a recipient.
fn message(header: &Header<'_>, offer: &CallableNames, end: TextEnd) -> Option<LeakedCalls> {
    let content = header.content.trim_end();
    let content = content.strip_suffix("<|call|>").unwrap_or(content);
    named(header.recipient?, content.trim(), offer, end)
}

/// The calls of an answer that is nothing else, in a form without a mark.
pub(super) fn unmarked(answer: &str, offer: &CallableNames, end: TextEnd) -> Option<LeakedCalls> {
    let is_current = offer.rules().are_from_4();
    let text = match answer.trim() {
        text if is_current => alone(offer.rules(), text),
        text => text,
    };
    let unmarked = harmony::unmarked_calls(text);
    if !unmarked.is_empty() {
        let mut all = LeakedCalls::default();
        for (name, content) in unmarked {
            let call = named(name, content, offer, end)?;
            all.take(call.written_as(&format!("to={name}{content}")));
        }
        return (all.calls.len() <= MAX_CALLS).then_some(all);
    }
    let text = text.strip_prefix("functools").unwrap_or(text);
    let (inner, is_fenced) = match unfenced(text) {
        Some(inner) => (inner, true),
        None => (text, false),
    };
    // Of these, more may have been to come.
    let may_have_words = is_current && end == TextEnd::Own;
    let found = if inner.starts_with('{') || inner.starts_with('[') {
        json(inner, offer, end, true)
            .or_else(|| {
                may_have_words
                    .then(|| several(inner, offer, true).or_else(|| bare::object(inner, offer)))?
            })
            .or_else(|| {
                inner
                    .starts_with('[')
                    .then(|| pythonic::calls(inner, offer))
                    .flatten()
            })
    } else {
        headed(inner, offer, end).or_else(|| may_have_words.then(|| bare::calls(inner, offer))?)
    };
    let leaked = found.filter(|leaked| leaked.calls.len() <= MAX_CALLS)?;
    let mut leaked = leaked.written_as(inner);
    if is_fenced {
        leaked.note(RepairKind::CodeFence);
    }
    Some(leaked)
}

/// The name of a tool on a line of its own, and an object. A heading above an object looks like it, so only the name as it
/// is offered counts.
fn headed(text: &str, offer: &CallableNames, end: TextEnd) -> Option<LeakedCalls> {
    let (name, rest) = text.split_once('\n')?;
    named(offer.exact(name)?, rest.trim_start(), offer, end)
}

/// The inside of a text that is one fence.
pub(in crate::contract) fn unfenced(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("```")?;
    let inner = rest.trim_end().strip_suffix("```")?;
    let language = inner
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(inner.len());
    let inner = inner[language..].trim();
    (!inner.contains("```")).then_some(inner)
}

/// One object that is a call, or a list of them. `whole`: they must have arguments.
pub(super) fn json(
    text: &str,
    offer: &CallableNames,
    end: TextEnd,
    whole: bool,
) -> Option<LeakedCalls> {
    let Repaired { value, repairs } = value(offer.rules(), text, end)?;
    let calls = match value {
        Value::Array(items) if !items.is_empty() => items
            .into_iter()
            .map(|item| call(item, offer, whole))
            .collect::<Option<Vec<_>>>()?,
        object => vec![call(object, offer, whole)?],
    };
    Some(LeakedCalls { calls, repairs })
}

/// Objects one after the other, as Llama writes several calls: `{…}; {…}`. `whole`: they must have arguments.
fn several(text: &str, offer: &CallableNames, whole: bool) -> Option<LeakedCalls> {
    let mut calls = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut objects = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        objects.next()?.ok()?;
        let (object, after) = rest.split_at_checked(objects.byte_offset())?;
        let mut leak = call(
            strict::parse_under(offer.rules(), object).ok()?,
            offer,
            whole,
        )?;
        if whole {
            // Of several, one may be copied.
            leak.written = object.into();
        }
        calls.push(leak);
        rest = after.trim_start();
        rest = rest.strip_prefix(';').unwrap_or(rest).trim_start();
        if calls.len() > MAX_CALLS {
            return None;
        }
    }
    (!calls.is_empty()).then_some(LeakedCalls {
        calls,
        repairs: Vec::new(),
    })
}

/// A value that is JSON, or can be repaired to be, with nothing around it. Unmatched closing brackets are
/// ignored.
fn value(rules: ReadingRules, text: &str, end: TextEnd) -> Option<Repaired> {
    let text = text.trim();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    if let Some(Ok(_)) = values.next() {
        let (own, rest) = text.split_at_checked(values.byte_offset())?;
        let is_alone = rest
            .chars()
            .all(|c| matches!(c, '}' | ']') || c.is_whitespace());
        return is_alone.then_some(Repaired {
            value: strict::parse_under(rules, own).ok()?,
            repairs: match rest {
                "" => Vec::new(),
                _ => vec![RepairKind::TextAfter],
            },
        });
    }
    let around = [RepairKind::TextBefore, RepairKind::TextAfter];
    repair_under(rules, text, end)
        .filter(|repaired| !around.iter().any(|kind| repaired.repairs.contains(kind)))
}

/// An object that says what to call, and nothing else.
pub(super) fn call(value: Value, offer: &CallableNames, whole: bool) -> Option<Leak> {
    let Value::Object(mut object) = value else {
        return None;
    };
    // As the API itself would have it.
    if let Some(Value::Object(inner)) = object.get("function") {
        let inner = inner.clone();
        object.shift_remove("function");
        let is_bare = object.keys().all(|key| IDLE.contains(&key.as_str()));
        return is_bare.then(|| call(inner.into(), offer, whole)).flatten();
    }
    if !whole
        && offer.rules().are_from_4()
        && let Some(leak) = by_name(&object, offer)
    {
        return Some(leak);
    }
    let rules = offer.rules();
    let members = argument_members(rules);
    if let Some(name) = object.shift_remove("_tool") {
        // The form of a call in a solution, where the solution is missing.
        let tool = offer.tool(name.as_str()?)?;
        let is_plain = members.iter().all(|key| !object.contains_key(*key));
        return is_plain.then_some(Leak::new(tool, object));
    }
    if whole && !members.iter().any(|key| object.contains_key(*key)) {
        return None;
    }
    if whole && rules.are_from_5() {
        object.retain(|key, value| !(THOUGHTS.contains(&key.as_str()) && value.is_string()));
    }
    let tool = offer.tool(only(&mut object, names(rules))?.as_str()?)?;
    let given = only(&mut object, members)?;
    let (reserved, others): (Map<_, _>, Map<_, _>) = object
        .into_iter()
        .partition(|(key, _)| key.starts_with('_'));
    if !others.keys().all(|key| IDLE.contains(&key.as_str())) {
        return None;
    }
    let arguments = arguments(rules, given)?;
    if is_schema(&arguments) {
        return None;
    }
    let mut all = reserved;
    all.extend(arguments);
    Some(Leak::new(tool, all))
}

/// An object whose only member has the name of a tool, and its arguments as the value: `{"weather-now": {"city": "Rome"}}`.
pub(super) fn by_name(object: &Map<String, Value>, offer: &CallableNames) -> Option<Leak> {
    let mut members = object.iter();
    let (name, Value::Object(arguments)) = members.next()? else {
        return None;
    };
    let tool = offer.tool(name).filter(|_| members.next().is_none())?;
    (!is_schema(arguments)).then(|| Leak::new(tool, arguments.clone()))
}

/// The one of these members that is there, or null; nothing at all if several are.
fn only(object: &mut Map<String, Value>, names: &[&str]) -> Option<Value> {
    let mut found = None;
    for name in names {
        if let Some(value) = object.shift_remove(*name)
            && found.replace(value).is_some()
        {
            return None;
        }
    }
    Some(found.unwrap_or_default())
}

/// Some models write arguments as a text that holds JSON, as the API does.
pub(super) fn arguments(rules: ReadingRules, value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(arguments) => Some(arguments),
        Value::Null => Some(Map::new()),
        Value::String(text) if text.trim().is_empty() => Some(Map::new()),
        Value::String(text) => match strict::parse_under(rules, &text).ok()? {
            Value::Object(arguments) => Some(arguments),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the object is a tool's definition rather than a call.
pub(super) fn is_schema(arguments: &Map<String, Value>) -> bool {
    arguments.get("type").is_some_and(|ty| ty == "object")
        && arguments.get("properties").is_some_and(Value::is_object)
}

/// A name and then an object: `NAME{…}`, `NAME[ARGS]{…}`, `function<｜tool▁sep｜>NAME` and a fence.
pub(super) fn after_name(text: &str, offer: &CallableNames, end: TextEnd) -> Option<LeakedCalls> {
    let text = match text.strip_prefix("function") {
        Some(rest) => strip_separator(offer.rules(), rest).unwrap_or(text),
        None => text,
    };
    let length = text
        .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':')))
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(length);
    let rest = rest.trim_start();
    let rest = match rest.strip_prefix("[CALL_ID]") {
        Some(rest) => &rest[rest.find('[')?..],
        None => rest,
    };
    let rest = rest
        .strip_prefix("[ARGS]")
        .or_else(|| strip_separator(offer.rules(), rest))
        .unwrap_or(rest);
    named(name, rest.trim(), offer, end)
}

/// The text behind the mark that stands between a call's name and its arguments.
pub(super) fn strip_separator(rules: ReadingRules, text: &str) -> Option<&str> {
    let later = ["<｜tool_sep｜>", "<tool_sep>"];
    let later = later.into_iter().filter(|_| rules.are_from_4());
    let all = [
        "<｜tool▁sep｜>",
        "<|tool▁sep|>",
        "<|tool_call_argument_begin|>",
    ];
    all.into_iter()
        .chain(later)
        .find_map(|separator| text.strip_prefix(separator))
}

/// A call of `name` with an object as its arguments; without any where there is no text.
pub(super) fn named(
    name: &str,
    text: &str,
    offer: &CallableNames,
    end: TextEnd,
) -> Option<LeakedCalls> {
    let tool = offer.tool(name)?;
    if text.is_empty() {
        // Only the model's own end proves that no arguments were to follow.
        return (end == TextEnd::Own).then(|| LeakedCalls {
            calls: vec![Leak::new(tool, Map::new())],
            repairs: Vec::new(),
        });
    }
    let text = unfenced(text).unwrap_or(text);
    if !text.starts_with('{') {
        return None;
    }
    let Repaired { value, repairs } = value(offer.rules(), text, end)?;
    let Value::Object(arguments) = value else {
        return None;
    };
    (!is_schema(&arguments)).then(|| LeakedCalls {
        calls: vec![Leak::new(tool, arguments)],
        repairs,
    })
}
