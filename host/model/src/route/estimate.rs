//! How many tokens a prompt will have, before any tokenizer saw it.

use serde_json::Value;

use crate::chat::{ChatRequest, Content};

/// Of text in one of the large European languages a token is some four letters, of code and JSON some
/// three: 7 characters are 2 tokens. Too many is the better mistake, since it costs a larger window and
/// no failed request.
const ESTIMATE_CHARS: u64 = 7;
const ESTIMATE_TOKENS: u64 = 2;
/// Tokens that a chat template adds to each message.
const TEMPLATE_TOKENS_PER_MESSAGE: u64 = 5;
/// Assumed tokens of an image or a sound: servers differ widely, and the content does not tell.
pub const TOKENS_PER_ATTACHMENT: u64 = 1_000;

/// An estimate of the tokens that the request's messages and tools have, for choosing where it fits. What
/// the endpoint counts may be a third less, or a little more.
pub fn prompt_tokens(request: &ChatRequest) -> u64 {
    let mut count = CharacterCount::default();
    for message in &request.messages {
        count.tokens += TEMPLATE_TOKENS_PER_MESSAGE;
        match &message.content {
            Some(Content::Text(text)) => count.text(text),
            Some(Content::Parts(parts)) => parts.iter().for_each(|part| count.part(part)),
            None => {}
        }
        if let Some(thought) = message.thought() {
            count.text(&thought);
        }
        count.tokens += TOKENS_PER_ATTACHMENT * message.images.len() as u64;
        for call in &message.tool_calls {
            count.tokens += TEMPLATE_TOKENS_PER_MESSAGE;
            count.text(&call.name);
            count.text(&call.arguments);
        }
    }
    for tool in &request.tools {
        count.tokens += TEMPLATE_TOKENS_PER_MESSAGE;
        count.text(&tool.name);
        count.text(&tool.description);
        count.json(&tool.parameters);
    }
    count.tokens + (count.ascii * ESTIMATE_TOKENS).div_ceil(ESTIMATE_CHARS)
}

#[derive(Default)]
struct CharacterCount {
    tokens: u64,
    ascii: u64,
}

impl CharacterCount {
    fn text(&mut self, text: &str) {
        let ascii = text.bytes().filter(u8::is_ascii).count() as u64;
        self.ascii += ascii;
        // Most scripts beyond ASCII take about a token a character.
        self.tokens += text.chars().filter(|c| !c.is_ascii()).count() as u64;
    }

    fn part(&mut self, part: &Value) {
        match part.get("text").and_then(Value::as_str) {
            Some(text) => self.text(text),
            None => self.tokens += TOKENS_PER_ATTACHMENT,
        }
    }

    /// Without recursion: a schema may be as deep as its author liked.
    fn json(&mut self, value: &Value) {
        let mut rest = vec![value];
        while let Some(value) = rest.pop() {
            // Quotes, commas, brackets.
            self.ascii += 4;
            match value {
                Value::String(text) => self.text(text),
                Value::Array(items) => rest.extend(items),
                Value::Object(fields) => {
                    for (key, value) in fields {
                        self.text(key);
                        rest.push(value);
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::{ChatMessage, ChatTool, Role};
    use toolhold_protocol::image::Image;

    fn of(text: &str) -> u64 {
        prompt_tokens(&ChatRequest::new("", vec![ChatMessage::user(text)]))
    }

    #[test]
    fn text_counts_by_its_script() {
        assert_eq!(of(""), TEMPLATE_TOKENS_PER_MESSAGE);
        assert_eq!(of(&"a".repeat(700)), TEMPLATE_TOKENS_PER_MESSAGE + 200);
        assert_eq!(of("模型"), TEMPLATE_TOKENS_PER_MESSAGE + 2);
    }

    #[test]
    fn tools_and_attachments_count() {
        let mut request = ChatRequest::new("", vec![ChatMessage::user("x")]);
        let bare = prompt_tokens(&request);
        request.tools.push(ChatTool {
            name: "add".into(),
            description: "Adds.".into(),
            parameters: json!({"type": "object", "properties": {"a": {"type": "number"}}}),
        });
        let with_tool = prompt_tokens(&request);
        assert!(with_tool > bare + 15, "{bare} {with_tool}");
        request.messages.push(ChatMessage {
            role: Role::User,
            content: Some(Content::Parts(vec![
                json!({"type": "text", "text": "what is this?"}),
                json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}),
            ])),
            images: Vec::new(),
            reasoning: serde_json::Map::new(),
            tool_calls: Vec::new(),
            tool_call_id: None,
        });
        let with_part = prompt_tokens(&request);
        assert!(with_part > with_tool + TOKENS_PER_ATTACHMENT);
        let image = Image::new("a.png", b"\x89PNG\r\n\x1a\n").unwrap();
        request.messages.push(ChatMessage::image("", image));
        assert!(prompt_tokens(&request) >= with_part + TOKENS_PER_ATTACHMENT);
    }
}
