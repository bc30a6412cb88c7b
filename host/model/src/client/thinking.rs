//! Calls whose reasoning is not known, such as those of worked examples and of clients, at endpoints that refuse them
//! without it.

use serde_json::Value;

use crate::chat::{ChatMessage, ChatRequest, REASONING_STAND_IN};
use crate::error::ModelError;

/// The member that DeepSeek, and those who serve its models, want with each call.
const MEMBER: &str = "reasoning_content";

/// Returns the member that calls of the request lack, if it was refused for that. Such refusals name the member and have no
/// code of their own.
pub(super) fn lacking(request: &ChatRequest, refusal: &ModelError) -> Option<&'static str> {
    let ModelError::Status {
        status: 400 | 422,
        detail,
        ..
    } = refusal
    else {
        return None;
    };
    let lacks = |message: &ChatMessage| {
        !message.tool_calls.is_empty() && !message.reasoning.contains_key(MEMBER)
    };
    let is_why = detail.message.contains(MEMBER) && request.messages.iter().any(lacks);
    is_why.then_some(MEMBER)
}

/// Gives each message with calls the member, with a text that stands for reasoning.
pub(super) fn fill(body: &mut Value, member: &str) {
    let messages = body.get_mut("messages").and_then(Value::as_array_mut);
    for message in messages.into_iter().flatten() {
        if let Value::Object(message) = message
            && message.contains_key("tool_calls")
        {
            let fields = message.entry(member);
            fields.or_insert_with(|| REASONING_STAND_IN.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorDetail;
    use serde_json::json;
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
        for (messages, status, words, expected) in [
            (vec![calling(json!({}))], 400, WORDS, Some(MEMBER)),
            (
                vec![calling(with.clone()), calling(json!({}))],
                422,
                WORDS,
                Some(MEMBER),
            ),
            (vec![calling(with)], 400, WORDS, None),
            (vec![ChatMessage::assistant("hi")], 400, WORDS, None),
            (vec![calling(json!({}))], 400, "no such model", None),
            (vec![calling(json!({}))], 503, WORDS, None),
        ] {
            let request = ChatRequest::new("m", messages);
            assert_eq!(
                lacking(&request, &refusal(status, words)),
                expected,
                "{status} {words}"
            );
        }
    }

    #[test]
    fn calls_that_have_reasoning_keep_it() {
        let messages = vec![
            ChatMessage::user("task"),
            calling(json!({"reasoning_content": "hm"})),
            calling(json!({})),
        ];
        let mut body = ChatRequest::new("m", messages).body();
        fill(&mut body, MEMBER);
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
