//! What goes over the wire to an OpenAI-compatible endpoint: requests, messages, tools, usage.
//!
//! Only shapes live here. Answers are decoded leniently in `super::decode`, because no two servers
//! agree on them; requests are written strictly, because every server must accept them.

mod shown;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use toolhold_protocol::completion::{CONTENT_THOUGHTS, ChatToolCall, reasoning_text};
use toolhold_protocol::image::Image;
use uuid::Uuid;

/// One chat completion, before it is sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatRequest {
    /// Name of the model at the endpoint; empty means the client's own.
    pub model: String,
    pub messages: Vec<ChatMessage>,
    pub tools: Vec<ChatTool>,
    pub tool_choice: Option<ToolChoice>,
    /// Passed through as is, since its shape is a matter of the endpoint's dialect.
    pub response_format: Option<Value>,
    /// Upper bound of tokens to generate.
    pub max_tokens: Option<u32>,
    pub temperature: Option<f32>,
    /// Vendor extras, written beside the fields above. They never replace one of those.
    pub extra: Map<String, Value>,
    /// Whose share of an endpoint's queue it takes: the owner of the run, and nobody by default. It is not sent.
    pub owner: Arc<str>,
    /// The run that it is made for, as the log names it. It is not sent.
    pub run: Option<Uuid>,
}

impl ChatRequest {
    /// A request with these messages and nothing else.
    pub fn new(model: impl Into<String>, messages: Vec<ChatMessage>) -> Self {
        Self {
            model: model.into(),
            messages,
            ..Self::default()
        }
    }

    /// Returns the request without a name for the model, so that who is asked writes its own. Of one that has none
    /// no copy is made.
    pub fn unnamed(&self) -> Cow<'_, Self> {
        if self.model.is_empty() {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self {
            model: String::new(),
            ..self.clone()
        })
    }

    /// True if the reply has to call a tool.
    pub fn demands_call(&self) -> bool {
        let choice = self.tool_choice.as_ref();
        choice.is_some_and(|choice| matches!(choice, ToolChoice::Required | ToolChoice::Named(_)))
    }

    /// How many images it holds.
    pub fn images(&self) -> usize {
        self.messages
            .iter()
            .map(|message| message.images.len())
            .sum()
    }

    /// The request with a text in the place of its images, for a model that takes none.
    pub fn without_images(&self) -> Self {
        let mut request = self.clone();
        for message in &mut request.messages {
            message.leave_images_out();
        }
        request
    }

    /// The body as a record has it: digests in place of images, whether their bytes are here or not. So a run that is
    /// replayed without them comes to the same.
    pub fn recorded(&self) -> Value {
        let mut body = self.body();
        if self.images() == 0 {
            return body;
        }
        let messages = body.get_mut("messages").and_then(Value::as_array_mut);
        let shown = shown::messages(&self.messages);
        for (message, own) in messages.into_iter().flatten().zip(shown.iter()) {
            if !own.images.is_empty() {
                let by_digest =
                    |image: &Image| Some(format!("data:{};{}", image.media_type, image.digest));
                message["content"] = own.parts(by_digest).into();
            }
        }
        body
    }

    /// The JSON body of a streaming request: [`Self::body_for`] the usual [`Delivery`].
    pub fn body(&self) -> Value {
        self.body_for(Delivery::default(), &FieldNames::default())
    }

    /// The JSON body of a request whose answer is to come in this way, for an endpoint with these names of fields.
    ///
    /// The order of keys is fixed and `messages` comes after everything that stays the same within a
    /// run, so that equal prefixes of two requests are equal bytes.
    pub fn body_for(&self, delivery: Delivery, names: &FieldNames) -> Value {
        let mut body = Map::new();
        body.insert("model".into(), self.model.as_str().into());
        if !self.tools.is_empty() {
            body.insert("tools".into(), json!(shown::tools(&self.tools)));
            // Without tools most servers refuse a tool_choice.
            if let Some(choice) = &self.tool_choice {
                body.insert("tool_choice".into(), json!(choice));
            }
        }
        if let Some(format) = &self.response_format {
            body.insert("response_format".into(), format.clone());
        }
        let name = |own: &Option<String>, usual: &str| {
            let name = own.as_deref().unwrap_or(usual);
            (!name.is_empty()).then(|| name.to_owned())
        };
        if let Some(limit) = self.max_tokens
            && let Some(name) = name(&names.max_tokens, "max_tokens")
        {
            body.insert(name, limit.into());
        }
        if let Some(temperature) = self.temperature
            && let Some(name) = name(&names.temperature, "temperature")
        {
            body.insert(name, shortest_decimal(temperature));
        }
        body.insert("stream".into(), (delivery != Delivery::Whole).into());
        if delivery == Delivery::Stream {
            body.insert("stream_options".into(), json!({"include_usage": true}));
        }
        body.insert("messages".into(), json!(shown::messages(&self.messages)));
        for (key, value) in &self.extra {
            body.entry(key.clone()).or_insert_with(|| value.clone());
        }
        Value::Object(body)
    }
}

/// What an endpoint calls fields of a request, where that differs. An empty name: the field is not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FieldNames {
    pub max_tokens: Option<String>,
    pub temperature: Option<String>,
}

/// How an answer is asked to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// As a stream, with the token counts at its end.
    #[default]
    Stream,
    /// As a stream without token counts: some servers refuse `stream_options`.
    UncountedStream,
    /// As one JSON object: some servers cannot stream, or not together with tools.
    Whole,
}

/// `0.7_f32` as `0.7`: widening it bit by bit would send 0.699999988079071.
fn shortest_decimal(value: f32) -> Value {
    value
        .to_string()
        .parse::<f64>()
        .map_or(Value::Null, Value::from)
}

/// The role of a message's author.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    System,
    User,
    Assistant,
    Tool,
}

/// A text in the place of the reasoning before calls that have none, such as those of worked examples: endpoints in
/// thinking mode refuse calls without it.
pub const REASONING_STAND_IN: &str = "The task needs this.";

/// One message of the conversation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ChatMessage {
    pub role: Role,
    #[serde(default)]
    pub content: Option<Content>,
    /// Shown with a text, and written as parts behind it.
    #[serde(skip)]
    pub images: Vec<Image>,
    /// Reasoning that led to the message, in members that the endpoint named.
    #[serde(skip)]
    pub reasoning: Map<String, Value>,
    #[serde(default)]
    pub tool_calls: Vec<ChatToolCall>,
    /// For [`Role::Tool`]: the call that this answers.
    #[serde(default)]
    pub tool_call_id: Option<String>,
}

impl Serialize for ChatMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Wire<'a> {
            role: Role,
            /// `null` when absent: an assistant that only calls tools has none, and several chat templates fail on a
            /// missing key.
            content: Option<Cow<'a, Content>>,
            #[serde(flatten)]
            reasoning: Cow<'a, Map<String, Value>>,
            #[serde(skip_serializing_if = "is_empty")]
            tool_calls: &'a [ChatToolCall],
            #[serde(skip_serializing_if = "Option::is_none")]
            tool_call_id: Option<&'a str>,
        }
        fn is_empty(calls: &&[ChatToolCall]) -> bool {
            calls.is_empty()
        }
        let thoughts = self.content_thoughts();
        let mut reasoning = Cow::Borrowed(&self.reasoning);
        let content = if let Some(thoughts) = thoughts {
            reasoning.to_mut().shift_remove(CONTENT_THOUGHTS);
            let parts = thoughts.into_iter().chain(self.parts(Image::url));
            Some(Cow::Owned(Content::Parts(parts.collect())))
        } else if self.images.is_empty() {
            self.content.as_ref().map(Cow::Borrowed)
        } else {
            Some(Cow::Owned(Content::Parts(self.parts(Image::url))))
        };
        let wire = Wire {
            role: self.role,
            content,
            reasoning,
            tool_calls: &self.tool_calls,
            tool_call_id: self.tool_call_id.as_deref(),
        };
        wire.serialize(serializer)
    }
}

impl ChatMessage {
    /// A text of the user with an image.
    pub fn image(text: impl Into<String>, image: Image) -> Self {
        Self {
            images: vec![image],
            ..Self::user(text)
        }
    }

    /// Thoughts that stand among the parts of the content. Nothing else of them takes that place.
    fn content_thoughts(&self) -> Option<Vec<Value>> {
        let parts = self.reasoning.get(CONTENT_THOUGHTS)?.as_array()?;
        let is_thought = |part: &&Value| part.get("type").is_some_and(|kind| kind == "thinking");
        Some(parts.iter().filter(is_thought).cloned().collect())
    }

    /// The content as parts: the text, then the images. An image without its bytes is said to be missing.
    fn parts(&self, url: fn(&Image) -> Option<String>) -> Vec<Value> {
        let text = |text: &str| json!({"type": "text", "text": text});
        let mut parts = match &self.content {
            Some(Content::Text(own)) => vec![text(own)],
            Some(Content::Parts(parts)) => parts.clone(),
            None => Vec::new(),
        };
        parts.extend(self.images.iter().map(|image| match url(image) {
            Some(url) => match image.detail {
                None => json!({"type": "image_url", "image_url": {"url": url}}),
                Some(detail) => {
                    json!({"type": "image_url", "image_url": {"url": url, "detail": detail}})
                }
            },
            None => text("(This image is not there: its bytes were not kept.)"),
        }));
        parts
    }

    /// Says in the text that the images are not shown.
    fn leave_images_out(&mut self) {
        let images = std::mem::take(&mut self.images);
        let said = match images.len() {
            0 => return,
            1 => "(The image is not shown, because this model takes none.)".to_owned(),
            more => format!("(The {more} images are not shown, because this model takes none.)"),
        };
        match &mut self.content {
            Some(Content::Text(own)) => {
                own.push_str("\n\n");
                own.push_str(&said);
            }
            Some(Content::Parts(parts)) => parts.push(json!({"type": "text", "text": said})),
            None => self.content = Some(Content::Text(said)),
        }
    }

    pub fn system(text: impl Into<String>) -> Self {
        Self::text_of(Role::System, text)
    }

    pub fn user(text: impl Into<String>) -> Self {
        Self::text_of(Role::User, text)
    }

    pub fn assistant(text: impl Into<String>) -> Self {
        Self::text_of(Role::Assistant, text)
    }

    /// An assistant's turn that calls tools, with the text it said before them, if any.
    pub fn assistant_calls(text: Option<String>, tool_calls: Vec<ChatToolCall>) -> Self {
        Self {
            role: Role::Assistant,
            content: text.map(Content::Text),
            images: Vec::new(),
            reasoning: Map::new(),
            tool_calls,
            tool_call_id: None,
        }
    }

    /// The result of the call `tool_call_id`.
    pub fn tool(tool_call_id: impl Into<String>, result: impl Into<String>) -> Self {
        Self {
            tool_call_id: Some(tool_call_id.into()),
            ..Self::text_of(Role::Tool, result)
        }
    }

    /// The message's text, if its content is text.
    pub fn text(&self) -> Option<&str> {
        match &self.content {
            Some(Content::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The reasoning, for those who count its tokens.
    pub fn thought(&self) -> Option<Cow<'_, str>> {
        reasoning_text(&self.reasoning)
    }

    fn text_of(role: Role, text: impl Into<String>) -> Self {
        Self {
            role,
            content: Some(Content::Text(text.into())),
            images: Vec::new(),
            reasoning: Map::new(),
            tool_calls: Vec::new(),
            tool_call_id: None,
        }
    }
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    Text(String),
    /// Multimodal parts, passed through untouched.
    Parts(Vec<Value>),
}

/// A tool that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatTool {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
}

impl Serialize for ChatTool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json!({
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        })
        .serialize(serializer)
    }
}

/// Whether the model must call a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    Auto,
    Required,
    None,
    /// This one; several servers treat it as [`ToolChoice::Auto`] all the same.
    Named(String),
}

impl Serialize for ToolChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Required => serializer.serialize_str("required"),
            Self::None => serializer.serialize_str("none"),
            Self::Named(name) => {
                json!({"type": "function", "function": {"name": name}}).serialize(serializer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_of_the_content_go_back_among_its_parts() {
        let thought = json!({"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]});
        let other = json!({"type": "image_url", "image_url": {"url": "x"}});
        let mut message = ChatMessage::assistant_calls(None, vec![ChatToolCall::default()]);
        message.reasoning = Map::from_iter([
            ("content_thoughts".to_owned(), json!([thought, other])),
            ("reasoning".to_owned(), json!("hm")),
        ]);
        let wire = json!(message);
        assert_eq!(wire["content"], json!([thought]));
        assert_eq!(wire["reasoning"], json!("hm"));
        assert!(wire.get("content_thoughts").is_none(), "{wire}");
        message.content = Some(Content::Text("I call.".into()));
        let text = json!({"type": "text", "text": "I call."});
        assert_eq!(json!(message)["content"], json!([thought, text]));
    }

    #[test]
    fn body_holds_what_was_set_and_always_streams_with_usage() {
        let mut request = ChatRequest::new("m", vec![ChatMessage::user("hello")]);
        request.temperature = Some(0.7);
        request.max_tokens = Some(64);
        request.tools = vec![ChatTool {
            name: "add".into(),
            description: "Adds.".into(),
            parameters: json!({"type": "object"}),
        }];
        request.tool_choice = Some(ToolChoice::Named("add".into()));
        request.extra.insert("min_p".into(), json!(0.1));
        request.extra.insert("stream".into(), json!(false));
        assert_eq!(
            request.body(),
            json!({
                "model": "m",
                "tools": [{"type": "function", "function": {
                    "name": "add", "description": "Adds.", "parameters": {"type": "object"}}}],
                "tool_choice": {"type": "function", "function": {"name": "add"}},
                "max_tokens": 64,
                "temperature": 0.7,
                "stream": true,
                "stream_options": {"include_usage": true},
                "messages": [{"role": "user", "content": "hello"}],
                "min_p": 0.1,
            })
        );
    }

    #[test]
    fn an_answer_is_asked_for_as_the_endpoint_can_give_it() {
        let request = ChatRequest::new("m", vec![]);
        for (delivery, stream, options) in [
            (Delivery::Stream, true, json!({"include_usage": true})),
            (Delivery::UncountedStream, true, Value::Null),
            (Delivery::Whole, false, Value::Null),
        ] {
            let body = request.body_for(delivery, &FieldNames::default());
            assert_eq!(body["stream"], stream, "{delivery:?}");
            assert_eq!(body["stream_options"], options, "{delivery:?}");
        }
    }

    #[test]
    fn fields_have_the_names_that_the_endpoint_knows() {
        let request = ChatRequest {
            max_tokens: Some(64),
            temperature: Some(0.0),
            ..ChatRequest::new("m", vec![])
        };
        let names = FieldNames {
            max_tokens: Some("max_completion_tokens".into()),
            temperature: Some(String::new()),
        };
        let body = request.body_for(Delivery::Whole, &names);
        assert_eq!(
            body,
            json!({"model": "m", "max_completion_tokens": 64, "stream": false, "messages": []})
        );
    }

    #[test]
    fn multimodal_parts_pass_through_untouched() {
        let parts = json!([
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
            {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
        ]);
        let message: ChatMessage =
            serde_json::from_value(json!({"role": "user", "content": parts})).unwrap();
        let body = ChatRequest::new("m", vec![message]).body();
        assert_eq!(body["messages"][0]["content"], parts);
    }

    #[test]
    fn reasoning_stands_beside_the_calls_under_its_names() {
        let call = ChatToolCall {
            id: "c1".into(),
            name: "add".into(),
            arguments: "{}".into(),
            members: Map::from_iter([(
                "extra_content".into(),
                json!({"google": {"thought_signature": "AA"}}),
            )]),
        };
        let mut message = ChatMessage::assistant_calls(None, vec![call]);
        assert_eq!(message.thought(), None);
        let members = json!({"reasoning": "hm", "reasoning_details": [{"data": "AA"}]});
        message.reasoning = members.as_object().unwrap().clone();
        assert_eq!(message.thought().as_deref(), Some("hm"));
        let body = ChatRequest::new("m", vec![message]).body();
        assert_eq!(
            body["messages"][0],
            json!({"role": "assistant", "content": null, "reasoning": "hm", "reasoning_details": [{"data": "AA"}],
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"},
                    "extra_content": {"google": {"thought_signature": "AA"}}}]})
        );
    }

    #[test]
    fn images_are_parts_behind_their_text() {
        let png = b"\x89PNG\r\n\x1a\n";
        let image = Image::new("a.png", png).unwrap();
        let mut kept: Image = serde_json::from_value(json!(image)).unwrap();
        let mut request = ChatRequest::new("m", vec![ChatMessage::image("what?", image.clone())]);
        request.messages[0].images.push(kept.clone());
        assert_eq!(
            (request.images(), request.messages[0].text()),
            (2, Some("what?"))
        );
        let parts = request.body()["messages"][0]["content"].clone();
        assert_eq!(parts[0], json!({"type": "text", "text": "what?"}));
        let url = json!({"url": "data:image/png;base64,iVBORw0KGgo="});
        assert_eq!(parts[1], json!({"type": "image_url", "image_url": url}));
        let recorded = request.recorded();
        let digests = &recorded["messages"][0]["content"];
        assert_eq!(digests[1], digests[2], "with its bytes and without");
        assert!(digests.to_string().contains("data:image/png;sha256:"));
        assert!(!recorded.to_string().contains("base64"), "{recorded}");
        assert!(
            parts[2]["text"].as_str().unwrap().contains("not kept"),
            "{parts}"
        );
        let without = request.without_images();
        assert_eq!(without.images(), 0);
        let text = without.messages[0].text().unwrap();
        assert!(
            text.contains("what?") && text.contains("The 2 images are not shown"),
            "{text}"
        );
        kept.restore(image.data().unwrap());
        request.messages[0].images[1] = kept;
        assert_eq!(request.body()["messages"][0]["content"][2], parts[1]);
    }

    #[test]
    fn every_tool_choice_has_its_form() {
        for (choice, form) in [
            (ToolChoice::Auto, json!("auto")),
            (ToolChoice::Required, json!("required")),
            (ToolChoice::None, json!("none")),
            (
                ToolChoice::Named("add".into()),
                json!({"type": "function", "function": {"name": "add"}}),
            ),
        ] {
            assert_eq!(json!(choice), form);
        }
    }

    #[test]
    fn without_tools_there_is_no_tool_choice() {
        let mut request = ChatRequest::new("m", vec![]);
        request.tool_choice = Some(ToolChoice::Required);
        assert!(request.body().get("tool_choice").is_none());
    }

    #[test]
    fn messages_survive_the_wire() {
        let call = ChatToolCall {
            id: "c1".into(),
            name: "add".into(),
            arguments: "{\"a\":1}".into(),
            ..ChatToolCall::default()
        };
        let messages = vec![
            ChatMessage::system("be brief"),
            ChatMessage::assistant_calls(None, vec![call]),
            ChatMessage::tool("c1", "2"),
        ];
        let wire = json!(messages);
        assert_eq!(
            wire[1],
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\":1}"}}]})
        );
        assert_eq!(wire[2]["tool_call_id"], "c1");
        assert_eq!(
            serde_json::from_value::<Vec<ChatMessage>>(wire).unwrap(),
            messages
        );
    }
}
