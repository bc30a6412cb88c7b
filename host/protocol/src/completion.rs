//! A model's answer: complete, in pieces, and its usage.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// Most bytes of a reply's reasoning that go back with its calls: some ten thousand tokens. Of a longer one its end goes
/// back, which stands before the calls.
pub const REASONING_BYTES: usize = 64 << 10;
/// Most bytes of [`Completion::reasoning_details`]. They are signed or encrypted, so of more nothing is kept.
pub const REASONING_DETAILS_BYTES: usize = 256 << 10;
/// The member of an assistant's message that has them.
pub const REASONING_DETAILS: &str = "reasoning_details";
/// Members of an assistant's message that have reasoning as text.
pub const REASONING_TEXTS: [&str; 3] = ["reasoning", "reasoning_content", "thinking"];
/// The member in which LiteLLM has the reasoning of Anthropic's models: blocks with signatures.
pub const THINKING_BLOCKS: &str = "thinking_blocks";
/// The member in which Gemini has signatures, of a message and of its calls.
pub const EXTRA_CONTENT: &str = "extra_content";
/// The member in which this host keeps thoughts that came as parts of the content, as those of Mistral's models do. They go
/// back as parts of the content.
pub const CONTENT_THOUGHTS: &str = "content_thoughts";
/// Members of an assistant's message that are signed or encrypted. They go back unchanged or not at all.
pub const SIGNED_MEMBERS: [&str; 4] = [
    REASONING_DETAILS,
    THINKING_BLOCKS,
    EXTRA_CONTENT,
    CONTENT_THOUGHTS,
];
/// Signed members of a call. LiteLLM has Gemini's signatures in the second one.
pub const CALL_MEMBERS: [&str; 2] = [EXTRA_CONTENT, "provider_specific_fields"];

/// What the model answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Completion {
    pub content: String,
    pub reasoning: String,
    /// Members of the message that had the reasoning (`reasoning_content`, `reasoning`): it goes back under the same names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasoning_names: Vec<String>,
    /// The reasoning in parts, as some endpoints want it back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasoning_details: Vec<Value>,
    /// Other signed members of the message (`thinking_blocks`, `extra_content`), as they came.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub signed: Map<String, Value>,
    /// Calls in the order they began. Decide by their presence, never by `finish_reason`: servers
    /// disagree about it.
    pub tool_calls: Vec<ChatToolCall>,
    /// Pieces of calls that fit no call, and calls without a name. While there are some, arguments that are empty may be
    /// missing.
    #[serde(skip_serializing_if = "is_zero")]
    pub unplaced: u32,
    /// As the endpoint said it (`stop`, `length`, `tool_calls`, `abort`, …).
    pub finish_reason: Option<String>,
    pub usage: Option<Usage>,
    /// The model that the endpoint says it used.
    pub model: Option<String>,
    /// Fields that this client has no meaning for (`system_fingerprint`, `timings`, `logprobs`, …) with
    /// their last values, as far as they are small: 32 fields, 4 KiB each.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
    /// From sending the request to the first delta.
    pub time_to_first_token: Option<Duration>,
    /// 95 of 100 pieces came within this time after the one before. Absent of an answer of one piece, and in records of
    /// older versions, which have the pieces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between_pieces_p95: Option<Duration>,
    /// From sending the request to the end of the answer.
    pub duration: Duration,
}

/// Why an endpoint ended a reply before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyCut {
    /// The reply has as many tokens as it may have.
    Length,
    /// The endpoint judged it as content that it does not write.
    Filter,
}

impl fmt::Display for ReplyCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => {
                "the answer is not whole: it was cut at the token limit of a reply (finish_reason length); raise \
                 run.max_tokens, or ask for a shorter answer"
            }
            Self::Filter => {
                "the answer is not whole: the endpoint's content filter cut it (finish_reason content_filter)"
            }
        })
    }
}

impl Completion {
    /// Why the reply is not whole. Only its text says whether something is missing: a call or JSON may be complete.
    pub fn cut(&self) -> Option<ReplyCut> {
        const LENGTH: [&str; 3] = ["length", "max_tokens", "max_length"];
        const FILTER: [&str; 4] = [
            "content_filter",
            "content-filter",
            "safety",
            "prohibited_content",
        ];
        let reason = self.finish_reason.as_deref()?;
        let is_one_of = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(reason));
        if is_one_of(&LENGTH) {
            return Some(ReplyCut::Length);
        }
        is_one_of(&FILTER).then_some(ReplyCut::Filter)
    }

    /// [`Self::cut`], of a reply that is text and calls nothing.
    pub fn text_cut(&self) -> Option<ReplyCut> {
        self.cut().filter(|_| self.tool_calls.is_empty())
    }

    /// True if no part of an answer came.
    pub fn is_blank(&self) -> bool {
        self.content.is_empty() && self.reasoning.is_empty() && self.tool_calls.is_empty()
    }

    /// The revision of what answered, as the endpoint tells it: it changes when the server's model, weights or software
    /// do.
    pub fn revision(&self) -> Option<&str> {
        self.extra.get("system_fingerprint")?.as_str()
    }

    /// The reasoning as it goes back with the calls that it led to: members of the assistant's message. None where it came
    /// in no member of its own.
    pub fn carried_reasoning(&self) -> Map<String, Value> {
        let text = end_of(&self.reasoning, REASONING_BYTES);
        let names = self.reasoning_names.iter().filter(|_| !text.is_empty());
        let mut members: Map<String, Value> = names
            .map(|name| (name.clone(), Value::from(text)))
            .collect();
        if !self.reasoning_details.is_empty() {
            let details = self.reasoning_details.clone();
            members.insert(REASONING_DETAILS.to_owned(), details.into());
        }
        members.extend(self.signed.clone());
        members
    }

    /// Returns the signed members of each call, in the order of the calls. Empty if no call has any.
    pub fn call_members(&self) -> Vec<Map<String, Value>> {
        let mut calls = self.tool_calls.iter();
        if calls.all(|call| call.members.is_empty()) {
            return Vec::new();
        }
        let calls = self.tool_calls.iter();
        calls.map(|call| call.members.clone()).collect()
    }
}

/// Returns those of a message's members that may go to an endpoint as reasoning: known ones, of their form and within the
/// bounds. Others could take the place of the message's own.
pub fn reasoning_members(members: &Map<String, Value>) -> Map<String, Value> {
    let known = members.iter().filter_map(|(name, value)| {
        let kept = match value {
            Value::String(text) if REASONING_TEXTS.contains(&name.as_str()) => {
                let text = end_of(text, REASONING_BYTES);
                (!text.is_empty()).then(|| Value::from(text))
            }
            value => is_signed(name, value, &SIGNED_MEMBERS).then(|| value.clone()),
        };
        Some((name.clone(), kept?))
    });
    known.collect()
}

/// Returns those of a call's members that may go to an endpoint with it.
pub fn signed_members(members: &Map<String, Value>) -> Map<String, Value> {
    let members = members.iter();
    let known = members.filter(|(name, value)| is_signed(name, value, &CALL_MEMBERS));
    known
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// True for a signed member of one of these names, of the form that such members have and within the bound.
fn is_signed(name: &str, value: &Value, known: &[&str]) -> bool {
    let has_form = match value {
        Value::Array(parts) => !parts.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => false,
    };
    has_form && known.contains(&name) && value.to_string().len() <= REASONING_DETAILS_BYTES
}

/// Returns the reasoning among the members of a message, for those who count its tokens: its text, or the JSON of its parts,
/// which may be encrypted.
pub fn reasoning_text(members: &Map<String, Value>) -> Option<Cow<'_, str>> {
    let text = members.values().find_map(Value::as_str);
    let mut parts = SIGNED_MEMBERS.iter().filter_map(|name| members.get(*name));
    let parts = || Some(Cow::Owned(parts.next()?.to_string()));
    text.map(Cow::Borrowed).or_else(parts)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Returns the end of a text: at most `bytes` of it.
pub fn end_of(text: &str, bytes: usize) -> &str {
    let mut from = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or_default()
}

/// A piece of a completion, as it arrives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delta {
    /// Text of the answer.
    Content(String),
    /// The model's reasoning; never part of the answer.
    Reasoning(String),
    /// A piece of a tool call. `index` is the call's place in [`Completion::tool_calls`]; `id` and
    /// `name` come once, `arguments` piece by piece.
    ToolCall {
        index: usize,
        id: Option<String>,
        name: Option<String>,
        arguments: String,
    },
}

impl Delta {
    /// The text that the piece adds to the reply.
    pub fn text(&self) -> &str {
        match self {
            Self::Content(text) | Self::Reasoning(text) => text,
            Self::ToolCall { arguments, .. } => arguments,
        }
    }

    /// True if both are pieces of one text: the answer, the reasoning, or the arguments of one call.
    pub fn is_of_same_text(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Content(_), Self::Content(_)) | (Self::Reasoning(_), Self::Reasoning(_)) => true,
            (Self::ToolCall { index, .. }, Self::ToolCall { index: same, .. }) => index == same,
            _ => false,
        }
    }

    /// Appends the next piece of the same text.
    ///
    /// # Errors
    /// The piece itself, if it cannot be a part of this one: it is of another text, or names a call.
    pub fn append(&mut self, next: Self) -> Result<(), Self> {
        let (text, more) = match (&mut *self, &next) {
            (Self::Content(text), Self::Content(more))
            | (Self::Reasoning(text), Self::Reasoning(more)) => (text, more),
            (
                Self::ToolCall {
                    index, arguments, ..
                },
                Self::ToolCall {
                    index: same,
                    id: None,
                    name: None,
                    arguments: more,
                },
            ) if index == same => (arguments, more),
            _ => return Err(next),
        };
        text.push_str(more);
        Ok(())
    }
}

/// A call of a tool, as the model wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "WireToolCall", from = "WireToolCall")]
pub struct ChatToolCall {
    pub id: String,
    pub name: String,
    /// JSON text, not yet parsed: models get it wrong, and the repair belongs to the caller.
    pub arguments: String,
    /// Signed members of the call ([`CALL_MEMBERS`]), as they came. They go back with it.
    pub members: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct WireToolCall {
    #[serde(default)]
    id: String,
    #[serde(rename = "type", default = "function")]
    kind: String,
    function: WireFunctionCall,
    #[serde(flatten)]
    members: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct WireFunctionCall {
    name: String,
    #[serde(default)]
    arguments: String,
}

fn function() -> String {
    "function".into()
}

impl From<ChatToolCall> for WireToolCall {
    fn from(call: ChatToolCall) -> Self {
        Self {
            id: call.id,
            kind: function(),
            function: WireFunctionCall {
                name: call.name,
                arguments: call.arguments,
            },
            members: call.members,
        }
    }
}

impl From<WireToolCall> for ChatToolCall {
    fn from(wire: WireToolCall) -> Self {
        Self {
            id: wire.id,
            name: wire.function.name,
            arguments: wire.function.arguments,
            members: signed_members(&wire.members),
        }
    }
}

/// Tokens that one completion took, as the endpoint counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// How many of `prompt_tokens` came from the endpoint's prefix cache, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_prompt_tokens: Option<u64>,
}

/// A request that does not fit the context window, as far as the endpoint said how much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextOverflow {
    /// Tokens of the prompt, without those that were to be written.
    pub prompt_tokens: Option<u64>,
    /// Tokens that the request reserves for the reply; the window must have room for all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u64>,
    /// Tokens that fit.
    pub window: Option<u64>,
}

impl Usage {
    /// Prompt and completion together.
    pub fn total(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(index: usize, name: Option<&str>, arguments: &str) -> Delta {
        Delta::ToolCall {
            index,
            id: None,
            name: name.map(str::to_owned),
            arguments: arguments.into(),
        }
    }

    #[test]
    fn pieces_of_one_text_become_one_piece() {
        let content = |text: &str| Delta::Content(text.into());
        let reasoning = |text: &str| Delta::Reasoning(text.into());
        for (first, next, joined) in [
            (content("a"), content("b"), Some(content("ab"))),
            (reasoning("a"), reasoning("b"), Some(reasoning("ab"))),
            (content("a"), reasoning("b"), None),
            (
                call(1, Some("n"), "{"),
                call(1, None, "}"),
                Some(call(1, Some("n"), "{}")),
            ),
            (call(1, None, "{"), call(2, None, "}"), None),
            (call(1, Some("n"), "{"), call(1, Some("m"), "}"), None),
        ] {
            let mut piece = first.clone();
            let left = piece.append(next.clone());
            assert_eq!(left, if joined.is_some() { Ok(()) } else { Err(next) });
            assert_eq!(piece, joined.unwrap_or(first));
        }
    }

    #[test]
    fn reasoning_goes_back_under_the_names_that_it_came_with_and_bounded() {
        let reply = |text: &str, names: &[&str], details: &[Value]| Completion {
            reasoning: text.to_owned(),
            reasoning_names: names.iter().map(|name| (*name).to_owned()).collect(),
            reasoning_details: details.to_vec(),
            ..Completion::default()
        };
        let detail = json!({"type": "reasoning.encrypted", "data": "AA"});
        for (reply, expected) in [
            (reply("", &[], &[]), json!({})),
            // Among the parts of the content, or before any name was known.
            (reply("hm", &[], &[]), json!({})),
            (
                reply("hm", &["reasoning_content"], &[]),
                json!({"reasoning_content": "hm"}),
            ),
            (
                reply("hm", &["reasoning", "reasoning_content"], &[]),
                json!({"reasoning": "hm", "reasoning_content": "hm"}),
            ),
            (
                reply("hm", &["reasoning"], std::slice::from_ref(&detail)),
                json!({"reasoning": "hm", "reasoning_details": [detail]}),
            ),
        ] {
            assert_eq!(Value::Object(reply.carried_reasoning()), expected);
            let kept: Completion = serde_json::from_value(json!(reply)).unwrap();
            assert_eq!(kept, reply, "the record has it");
        }
        let long = reply(
            &format!("é{}", "é".repeat(REASONING_BYTES / 2)),
            &["r"],
            &[],
        );
        let carried = long.carried_reasoning();
        assert_eq!(carried["r"].as_str().unwrap().len(), REASONING_BYTES);
        assert_eq!(end_of("aé", 1), "");
    }

    #[test]
    fn signed_members_go_back_as_they_came() {
        let signature = json!({"google": {"thought_signature": "AA"}});
        let blocks = json!([{"type": "thinking", "thinking": "hm", "signature": "s"}]);
        let call = ChatToolCall {
            name: "f".into(),
            members: Map::from_iter([(EXTRA_CONTENT.to_owned(), signature.clone())]),
            ..ChatToolCall::default()
        };
        let reply = Completion {
            signed: Map::from_iter([(THINKING_BLOCKS.to_owned(), blocks.clone())]),
            tool_calls: vec![call.clone(), ChatToolCall::default()],
            ..Completion::default()
        };
        assert_eq!(
            Value::Object(reply.carried_reasoning()),
            json!({"thinking_blocks": blocks})
        );
        assert_eq!(reply.call_members(), [call.members.clone(), Map::new()]);
        assert_eq!(json!(call)["extra_content"], signature);
        let kept: Completion = serde_json::from_value(json!(reply)).unwrap();
        assert_eq!(kept, reply, "the record has them");
        let none = Completion {
            tool_calls: vec![ChatToolCall::default()],
            ..Completion::default()
        };
        assert!(none.call_members().is_empty());
        assert!(!json!(none).to_string().contains("signed"));
    }

    #[test]
    fn members_that_are_no_reasoning_go_to_no_endpoint() {
        let given = json!({
            "role": "system", "content": "x", "tool_calls": [{}], "reasoning_content": "hm", "reasoning": ["x"],
            "thinking": "", "reasoning_details": [{"data": "AA"}], "thinking_blocks": "x", "extra_content": {},
        });
        let kept = reasoning_members(given.as_object().unwrap());
        assert_eq!(
            Value::Object(kept),
            json!({"reasoning_content": "hm", "reasoning_details": [{"data": "AA"}]})
        );
        let large = "A".repeat(REASONING_DETAILS_BYTES);
        let given = json!({"extra_content": {"google": 1}, "function": {"name": "g"}, "provider_specific_fields": [large]});
        let kept = signed_members(given.as_object().unwrap());
        assert_eq!(Value::Object(kept), json!({"extra_content": {"google": 1}}));
    }

    #[test]
    fn a_reply_that_was_cut_is_told_from_whole_ones() {
        for (reason, cut) in [
            (None, None),
            (Some("stop"), None),
            (Some("tool_calls"), None),
            (Some("length"), Some(ReplyCut::Length)),
            (Some("MAX_TOKENS"), Some(ReplyCut::Length)),
            (Some("content_filter"), Some(ReplyCut::Filter)),
            (Some("SAFETY"), Some(ReplyCut::Filter)),
        ] {
            let mut reply = Completion {
                finish_reason: reason.map(str::to_owned),
                ..Completion::default()
            };
            assert_eq!((reply.cut(), reply.text_cut()), (cut, cut), "{reason:?}");
            reply.tool_calls.push(ChatToolCall::default());
            assert_eq!((reply.cut(), reply.text_cut()), (cut, None), "{reason:?}");
        }
    }

    #[test]
    fn parts_of_reasoning_are_counted_where_there_is_no_text() {
        let parts = json!([{"data": "AA"}]);
        for (members, text) in [
            (json!({}), None),
            (
                json!({"reasoning": "hm", "reasoning_details": parts}),
                Some("hm".to_owned()),
            ),
            (json!({"reasoning_details": parts}), Some(parts.to_string())),
        ] {
            let members = members.as_object().unwrap();
            assert_eq!(reasoning_text(members).as_deref(), text.as_deref());
        }
    }
}
