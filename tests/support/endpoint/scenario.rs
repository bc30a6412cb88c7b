//! What the scripted endpoint answers, as data: built in a test, or read from a JSON file.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// The replies of an endpoint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Purpose of the scenario, for readers of the file.
    pub description: String,
    /// Names that `/v1/models` lists; `scripted` if there are none.
    pub models: Vec<String>,
    /// Requests without this bearer token get a 401.
    pub key: Option<String>,
    pub order: ReplyOrder,
    pub replies: Vec<Reply>,
    /// What other paths answer, such as `/props` or `/v1/models`, with 200.
    pub routes: BTreeMap<String, Value>,
    /// The form in which `/tokenize` counts words; without it there is no such route.
    pub tokenize: Option<TokenForm>,
    /// How many texts it counts before it fails with 500; all of them if not set.
    pub tokenize_most: Option<usize>,
    /// Whether `/v1/embeddings` embeds: as the numbers of characters and of words.
    pub embeds: bool,
}

/// The field of a request to `/tokenize` that is counted. As of real servers, other fields are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenForm {
    Prompt,
    Content,
    Inputs,
}

/// Which reply a request gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyOrder {
    /// The next one; after the last, a 500 that says so.
    #[default]
    Once,
    /// The next one, and after the last the first again.
    Repeat,
    /// The first whose expectation the request meets, as often as it comes: for clients that ask at
    /// the same time.
    FirstMatch,
}

impl Scenario {
    /// A scenario of these replies, in this order.
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self {
            replies: replies.into_iter().collect(),
            ..Self::default()
        }
    }

    pub fn in_order(mut self, order: ReplyOrder) -> Self {
        self.order = order;
        self
    }

    /// Answers a path with this JSON.
    pub fn with_route(mut self, path: &str, body: Value) -> Self {
        self.routes.insert(path.into(), body);
        self
    }

    pub fn with_key(mut self, key: &str) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Reads `fixtures/scenarios/NAME.json`.
    ///
    /// # Panics
    /// If the file is missing or wrong, with the place in it.
    pub fn load(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/scenarios");
        let path = folder.join(format!("{name}.json"));
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let replies = self.replies.iter().enumerate();
        replies
            .filter_map(|(place, reply)| Some((place, reply.fault()?)))
            .map(|(place, fault)| Err(format!("reply {place} {fault}")))
            .next()
            .unwrap_or(Ok(()))
    }
}

/// One answer: what is said, and how it goes wrong.
///
/// `content`, `reasoning` and `tool_calls` may stand together; `solution`, `error`, `raw`, `html`,
/// `never` and `endless` each stand alone.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reply {
    /// What the request must be like; if it is not, a 400 explains.
    pub expect: Option<Expect>,

    pub content: Option<String>,
    pub reasoning: Option<String>,
    pub tool_calls: Vec<ToolCall>,
    /// Any JSON, sent as content.
    pub solution: Option<Value>,
    /// An instance of the schema that the request holds, as a server writes that enforces it.
    pub obeys: bool,
    pub error: Option<ErrorReply>,
    /// The body as it is, as `text/event-stream` unless `content_type` says otherwise.
    pub raw: Option<String>,
    pub content_type: Option<String>,
    /// A web page with status 200, as a wrong URL answers.
    pub html: bool,
    /// Takes the request and is silent.
    pub never: bool,
    /// Content without end.
    pub endless: bool,

    /// As the server would give it: `tool_calls` or `stop` if not set.
    pub finish_reason: Option<String>,
    /// Prompt and completion tokens that the usage chunk reports.
    pub usage: Option<(u64, u64)>,
    /// Characters of content or arguments in one chunk; 4 if not set.
    pub piece: Option<usize>,

    /// Before the first byte of the body, the head included.
    pub delay_ms: u64,
    /// Between two events.
    pub between_ms: u64,
    /// Breaks the connection after so many bytes of the body.
    pub truncate_after: Option<usize>,
    /// Leaves `[DONE]` away; the finish reason still comes.
    pub no_done: bool,
    /// Leaves finish reason, usage and `[DONE]` away, and ends in good order.
    pub cut: bool,
    /// Puts a byte that is no UTF-8 into the first piece of content.
    pub invalid_utf8: bool,
    /// Writes events with CRLF.
    pub crlf: bool,
}

impl Reply {
    pub fn content(text: impl Into<String>) -> Self {
        Self {
            content: Some(text.into()),
            ..Self::default()
        }
    }

    /// Calls of tools, with their arguments.
    pub fn tool_calls<'a>(calls: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let calls = calls.into_iter().map(|(name, arguments)| ToolCall {
            name: name.into(),
            arguments,
            id: None,
        });
        Self {
            tool_calls: calls.collect(),
            ..Self::default()
        }
    }

    pub fn solution(value: Value) -> Self {
        Self {
            solution: Some(value),
            ..Self::default()
        }
    }

    /// Does what the request's schema says.
    pub fn obedient() -> Self {
        Self {
            obeys: true,
            ..Self::default()
        }
    }

    pub fn error(status: u16, body: Value) -> Self {
        let error = ErrorReply {
            status,
            body,
            headers: BTreeMap::new(),
        };
        Self {
            error: Some(error),
            ..Self::default()
        }
    }

    pub fn raw(body: impl Into<String>) -> Self {
        Self {
            raw: Some(body.into()),
            ..Self::default()
        }
    }

    pub fn html() -> Self {
        Self {
            html: true,
            ..Self::default()
        }
    }

    pub fn never() -> Self {
        Self {
            never: true,
            ..Self::default()
        }
    }

    pub fn endless() -> Self {
        Self {
            endless: true,
            ..Self::default()
        }
    }

    pub fn expecting(mut self, expect: Expect) -> Self {
        self.expect = Some(expect);
        self
    }

    /// Adds a header to an error.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        if let Some(error) = &mut self.error {
            error.headers.insert(name.into(), value.into());
        }
        self
    }

    pub fn delayed_ms(mut self, before: u64, between: u64) -> Self {
        (self.delay_ms, self.between_ms) = (before, between);
        self
    }

    pub fn truncated_after(mut self, bytes: usize) -> Self {
        self.truncate_after = Some(bytes);
        self
    }

    /// Ends in good order, but without finish reason and `[DONE]`.
    pub fn cut(mut self) -> Self {
        self.cut = true;
        self
    }

    pub fn without_done(mut self) -> Self {
        self.no_done = true;
        self
    }

    pub fn with_invalid_utf8(mut self) -> Self {
        self.invalid_utf8 = true;
        self
    }

    /// The text that is streamed as content.
    pub(super) fn text(&self) -> Option<String> {
        let solution = self.solution.as_ref().map(Value::to_string);
        self.content.clone().or(solution)
    }

    fn fault(&self) -> Option<&'static str> {
        let says =
            self.content.is_some() || self.reasoning.is_some() || !self.tool_calls.is_empty();
        let kinds = [
            says,
            self.solution.is_some(),
            self.obeys,
            self.error.is_some(),
            self.raw.is_some(),
            self.html,
            self.never,
            self.endless,
        ];
        match kinds.into_iter().filter(|is_set| *is_set).count() {
            0 => Some(
                "says nothing: set content, tool_calls, solution, obeys, error, raw, html, never or endless",
            ),
            1 => None,
            _ => Some("says two things that exclude each other"),
        }
    }
}

/// A call that the scripted model makes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    pub name: String,
    /// Sent as JSON text; a string is sent as it is, so that it may be broken JSON.
    #[serde(default)]
    pub arguments: Value,
    /// `call_N` if not set.
    #[serde(default)]
    pub id: Option<String>,
}

impl ToolCall {
    pub(super) fn arguments_text(&self) -> String {
        match &self.arguments {
            Value::String(text) => text.clone(),
            Value::Null => "{}".into(),
            value => value.to_string(),
        }
    }
}

/// A refusal.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorReply {
    pub status: u16,
    /// A string is sent as it is, anything else as JSON.
    #[serde(default)]
    pub body: Value,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

/// What a request must be like. What is not set is not looked at.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    pub model: Option<String>,
    /// Texts that occur in some message.
    pub contains: Vec<String>,
    /// Texts that occur in no message.
    pub lacks: Vec<String>,
    /// Names of tools that are offered.
    pub tools: Vec<String>,
    /// The type of the response format.
    pub response_format: Option<String>,
    pub tool_choice: Option<Value>,
    /// Whether a stream is asked for.
    pub stream: Option<bool>,
    /// Fields with their values.
    pub fields: BTreeMap<String, Value>,
    /// The member of each message with native calls that has the reasoning before them, as endpoints in thinking mode want
    /// it.
    pub reasoning: Option<String>,
    /// True if the first call of each message needs a signature, as Gemini wants it.
    pub signed: bool,
}

impl Expect {
    /// Expects this text in some message.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            contains: vec![text.into()],
            ..Self::default()
        }
    }

    /// What the request does not meet; empty if it is as expected.
    pub(super) fn mismatches(&self, request: &Value) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |what: &str, expected: &Option<String>, actual: &Value| {
            if expected
                .as_deref()
                .is_some_and(|expected| actual != expected)
            {
                found.push(format!("{what} is {actual}, expected {expected:?}"));
            }
        };
        compare("model", &self.model, &request["model"]);
        compare(
            "response_format.type",
            &self.response_format,
            &request["response_format"]["type"],
        );
        let mut fields = self.fields.clone();
        fields.extend(
            self.tool_choice
                .clone()
                .map(|choice| ("tool_choice".into(), choice)),
        );
        fields.extend(self.stream.map(|stream| ("stream".into(), stream.into())));
        for (name, expected) in &fields {
            if request[name] != *expected {
                found.push(format!("{name} is {}, expected {expected}", request[name]));
            }
        }
        if let Some(member) = &self.reasoning {
            let messages = request["messages"].as_array().into_iter().flatten();
            let calling = messages.filter(|message| !message["tool_calls"].is_null());
            for message in
                calling.filter(|message| message[member].as_str().is_none_or(str::is_empty))
            {
                found.push(format!("{member} must be passed back: {message}"));
            }
        }
        if self.signed {
            let messages = request["messages"].as_array().into_iter().flatten();
            let first = messages.filter_map(|message| message["tool_calls"].get(0));
            let signature = "/extra_content/google/thought_signature";
            for call in first.filter(|call| call.pointer(signature).is_none()) {
                found.push(format!(
                    "Function call is missing a thought_signature in functionCall parts: {call}"
                ));
            }
        }
        let text = message_text(request);
        for expected in self
            .contains
            .iter()
            .filter(|expected| !text.contains(*expected))
        {
            found.push(format!("no message contains {expected:?}"));
        }
        for unwanted in self
            .lacks
            .iter()
            .filter(|unwanted| text.contains(*unwanted))
        {
            found.push(format!("a message contains {unwanted:?}"));
        }
        let offered: Vec<&str> = request["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|tool| tool["function"]["name"].as_str())
            .collect();
        for name in self
            .tools
            .iter()
            .filter(|name| !offered.contains(&name.as_str()))
        {
            found.push(format!(
                "tool {name:?} is not among those offered: {offered:?}"
            ));
        }
        found
    }
}

/// All text of all messages, the arguments of calls included.
fn message_text(request: &Value) -> String {
    fn collect(value: &Value, text: &mut String) {
        match value {
            Value::String(part) => {
                text.push_str(part);
                text.push('\n');
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, text)),
            Value::Object(fields) => fields.values().for_each(|value| collect(value, text)),
            _ => {}
        }
    }
    let mut text = String::new();
    collect(&request["messages"], &mut text);
    text
}
