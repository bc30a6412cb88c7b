//! Reasoning before calls at endpoints that refuse a request for it: calls without reasoning, such as those of worked
//! examples and of clients, or members of a message that the endpoint does not know.

use serde_json::{Map, Value, json};

use crate::chat::{ChatMessage, ChatRequest, REASONING_STAND_IN};
use crate::error::ModelError;
use toolhold_protocol::completion::{CALL_MEMBERS, EXTRA_CONTENT, REASONING_TEXTS, SIGNED_MEMBERS};

/// The member that DeepSeek, and those who serve its models, want with each call.
const MEMBER: &str = "reasoning_content";
/// The signature that Gemini wants with the first call of each message.
const SIGNATURE: &str = "thought_signature";
/// The text that Gemini takes as the signature of calls that it did not make itself.
const SIGNATURE_STAND_IN: &str = "skip_thought_signature_validator";

/// A change of the reasoning in a request, after a refusal that names a member of it. Such refusals have no code of their
/// own, and those that want a member differ from those that do not know it in their words alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReasoningChange {
    /// Calls without reasoning have a text in its place.
    Filled,
    /// The first of the calls of each message has a text in the place of a signature, if none of them is signed.
    Signed,
    /// No message and no call has reasoning or a signature.
    LeftOut,
}

impl ReasoningChange {
    /// Returns the change with which a request that was refused is sent again; `before` is the one that it had. Each is made
    /// once.
    pub(super) fn after(
        refusal: &ModelError,
        request: &ChatRequest,
        before: Option<Self>,
    ) -> Option<Self> {
        let words = words_of(refusal)?;
        let lacks = |message: &ChatMessage| {
            !message.tool_calls.is_empty() && !message.reasoning.contains_key(MEMBER)
        };
        let mut messages = request.messages.iter();
        if before.is_none() && names(words, MEMBER) && messages.clone().any(lacks) {
            return Some(Self::Filled);
        }
        let lacks_signature = |message: &ChatMessage| {
            let mut calls = message.tool_calls.iter();
            !message.tool_calls.is_empty() && calls.all(|call| call.members.is_empty())
        };
        if before.is_none() && names(words, SIGNATURE) && messages.clone().any(lacks_signature) {
            return Some(Self::Signed);
        }
        let has_named = |message: &ChatMessage| {
            let calls = message.tool_calls.iter();
            let members = calls.flat_map(|call| call.members.keys());
            let mut members = message.reasoning.keys().chain(members);
            members.any(|member| names(words, member))
        };
        (before != Some(Self::LeftOut) && messages.any(has_named)).then_some(Self::LeftOut)
    }

    /// True if a refusal names reasoning or a signature.
    pub(super) fn is_meant_by(refusal: &ModelError) -> bool {
        let members = REASONING_TEXTS.iter().chain(&SIGNED_MEMBERS);
        let mut members = members.chain(&CALL_MEMBERS).chain([&SIGNATURE]);
        words_of(refusal).is_some_and(|words| members.any(|member| names(words, member)))
    }

    /// Makes the change in the body of the request.
    pub(super) fn make(self, body: &mut Value) {
        let messages = body.get_mut("messages").and_then(Value::as_array_mut);
        for message in messages.into_iter().flatten() {
            let Value::Object(message) = message else {
                continue;
            };
            match self {
                Self::Filled if message.contains_key("tool_calls") => {
                    let fields = message.entry(MEMBER);
                    fields.or_insert_with(|| REASONING_STAND_IN.into());
                }
                Self::Filled => {}
                Self::Signed => sign(message.get_mut("tool_calls")),
                Self::LeftOut => {
                    message.retain(|name, _| {
                        let name = name.as_str();
                        !SIGNED_MEMBERS.contains(&name) && !REASONING_TEXTS.contains(&name)
                    });
                    for call in calls_of(message.get_mut("tool_calls")) {
                        call.retain(|name, _| !CALL_MEMBERS.contains(&name.as_str()));
                    }
                }
            }
        }
    }
}

/// Puts the text for a missing signature into the first call, if none of the calls has a signature.
fn sign(calls: Option<&mut Value>) {
    let mut calls: Vec<_> = calls_of(calls).collect();
    let is_signed = |call: &&mut Map<String, Value>| {
        CALL_MEMBERS.iter().any(|member| call.contains_key(*member))
    };
    if calls.iter().any(is_signed) {
        return;
    }
    if let Some(first) = calls.first_mut() {
        let signature = json!({"google": {SIGNATURE: SIGNATURE_STAND_IN}});
        first.insert(EXTRA_CONTENT.to_owned(), signature);
    }
}

fn calls_of(calls: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let calls = calls.and_then(Value::as_array_mut).into_iter().flatten();
    calls.filter_map(Value::as_object_mut)
}

/// The words of a refusal that says what is wrong with a request. One inside of a stream may have no status.
fn words_of(refusal: &ModelError) -> Option<&str> {
    let (status, detail) = refusal.as_refusal()?;
    matches!(status, None | Some(400 | 422)).then(|| detail.words())
}

/// True if the words have the name of the member by itself, and not as a part of another name.
fn names(words: &str, member: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    words.match_indices(member).any(|(at, found)| {
        let before = words.get(..at).and_then(|text| text.chars().next_back());
        let behind = words.get(at + found.len()..);
        let after = behind.and_then(|text| text.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorDetail;
    use toolhold_protocol::completion::ChatToolCall;

    fn calling(reasoning: Value) -> ChatMessage {
        let mut message = ChatMessage::assistant_calls(None, vec![ChatToolCall::default()]);
        message.reasoning = reasoning.as_object().unwrap().clone();
        message
    }

    fn refusal(status: u16, message: &str) -> ModelError {
        ModelError::Status {
            status,
            retry_after: None,
            detail: Box::new(ErrorDetail {
                message: message.into(),
                ..ErrorDetail::default()
            }),
        }
    }

    #[test]
    fn only_a_refusal_that_names_the_member_says_that_it_is_lacking() {
        const WORDS: &str = "the `reasoning_content` in the thinking mode must be passed back";
        let with = json!({"reasoning_content": "hm"});
        let filled = Some(ReasoningChange::Filled);
        for (messages, status, words, expected) in [
            (vec![calling(json!({}))], 400, WORDS, filled),
            (
                vec![calling(with.clone()), calling(json!({}))],
                422,
                WORDS,
                filled,
            ),
            (vec![ChatMessage::assistant("hi")], 400, WORDS, None),
            (vec![calling(json!({}))], 400, "no such model", None),
            (vec![calling(with)], 400, "no such model", None),
            (vec![calling(json!({}))], 503, WORDS, None),
        ] {
            let request = ChatRequest::new("m", messages);
            assert_eq!(
                ReasoningChange::after(&refusal(status, words), &request, None),
                expected,
                "{status} {words}"
            );
        }
    }

    #[test]
    fn a_member_that_the_endpoint_does_not_know_is_left_out() {
        use ReasoningChange::{Filled, LeftOut};
        const UNKNOWN: &str = "property 'reasoning_content' is unsupported";
        const EXTRA: &str =
            r#"Extra inputs are not permitted at ["body","messages",2,"reasoning"]"#;
        let content = || vec![calling(json!({"reasoning_content": "hm"}))];
        let details = || vec![calling(json!({"reasoning": "hm", "reasoning_details": []}))];
        let mixed = || {
            vec![
                calling(json!({"reasoning_content": "hm"})),
                calling(json!({})),
            ]
        };
        for (messages, words, before, expected) in [
            (content(), UNKNOWN, None, Some(LeftOut)),
            (details(), EXTRA, None, Some(LeftOut)),
            (mixed(), UNKNOWN, None, Some(Filled)),
            (mixed(), UNKNOWN, Some(Filled), Some(LeftOut)),
            (mixed(), UNKNOWN, Some(LeftOut), None),
            (vec![calling(json!({}))], UNKNOWN, Some(Filled), None),
            // Of another member.
            (details(), "reasoning_effort is not supported", None, None),
            (details(), UNKNOWN, Some(Filled), None),
        ] {
            let request = ChatRequest::new("m", messages);
            let change = ReasoningChange::after(&refusal(400, words), &request, before);
            assert_eq!(change, expected, "{words} {before:?}");
        }
        let mut body = ChatRequest::new("m", details()).body();
        LeftOut.make(&mut body);
        let plain = ChatRequest::new("m", vec![calling(json!({}))]).body();
        assert_eq!(body, plain);
    }

    #[test]
    fn calls_without_a_signature_get_the_text_that_gemini_takes() {
        const MISSING: &str = "Function call is missing a thought_signature in functionCall parts.";
        const UNKNOWN: &str =
            "messages.1.tool_calls.0.extra_content: Extra inputs are not permitted";
        let signed = json!({"google": {"thought_signature": "AA"}});
        let mut own = calling(json!({}));
        let second = own.tool_calls[0].clone();
        let members = &mut own.tool_calls[0].members;
        members.insert(EXTRA_CONTENT.to_owned(), signed.clone());
        own.tool_calls.push(second);
        let mut foreign = calling(json!({}));
        foreign.tool_calls.push(ChatToolCall::default());
        let request = ChatRequest::new("m", vec![foreign, own.clone()]);
        let change = ReasoningChange::after(&refusal(400, MISSING), &request, None);
        assert_eq!(change, Some(ReasoningChange::Signed));
        let mut body = request.body();
        ReasoningChange::Signed.make(&mut body);
        let of = |message: usize, call: usize| {
            body["messages"][message]["tool_calls"][call][EXTRA_CONTENT].clone()
        };
        let stand_in = json!({"google": {"thought_signature": SIGNATURE_STAND_IN}});
        assert_eq!(
            [of(0, 0), of(0, 1), of(1, 0), of(1, 1)],
            [stand_in, Value::Null, signed, Value::Null]
        );
        // Each change is made once, and none where nothing is missing.
        let again = ReasoningChange::after(&refusal(400, MISSING), &request, change);
        assert_eq!(again, None);
        let whole = ChatRequest::new("m", vec![own]);
        assert_eq!(
            ReasoningChange::after(&refusal(400, MISSING), &whole, None),
            None
        );
        let left_out = ReasoningChange::after(&refusal(422, UNKNOWN), &whole, None);
        assert_eq!(left_out, Some(ReasoningChange::LeftOut));
        let mut body = whole.body();
        ReasoningChange::LeftOut.make(&mut body);
        assert!(!body.to_string().contains(EXTRA_CONTENT), "{body}");
    }

    #[test]
    fn calls_that_have_reasoning_keep_it() {
        let messages = vec![
            ChatMessage::user("task"),
            calling(json!({"reasoning_content": "hm"})),
            calling(json!({})),
        ];
        let mut body = ChatRequest::new("m", messages).body();
        ReasoningChange::Filled.make(&mut body);
        let thoughts: Vec<&Value> = body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| &message[MEMBER])
            .collect();
        assert_eq!(
            thoughts,
            [&Value::Null, &json!("hm"), &json!(REASONING_STAND_IN)]
        );
    }
}
