//! Finds out an endpoint's [`Dialect`] by asking it small questions whose right answers cannot be guessed.
//!
//! The canary: a schema with one valid answer, which holds a word made up for this probe that no message
//! mentions. An endpoint that answers with the word was constrained by the schema; one that ignores the
//! schema cannot know it.

use serde_json::{Value, json};

use crate::chat::{ChatMessage, ChatRequest, ChatTool, Delivery, ToolChoice};
use crate::client::OpenAiModel;
use crate::dialect::{Dialect, ProbeVerdict, ToolCalling};
use crate::error::ModelError;
use crate::error_body::excerpt;
use crate::model::Model as _;
use toolhold_json::bounded;
use toolhold_protocol::completion::Completion;

/// Maximum tokens of one answer: enough for a model that thinks first, and a bound for one that
/// does not stop.
const MAX_TOKENS: u32 = 256;

/// The question in progress, for progress display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeQuestion {
    Server,
    Chat,
    Schema,
    Tools,
    RequiredTool,
    NamedTool,
    ParallelTools,
    Tokenizer,
}

impl ProbeQuestion {
    pub const ALL: [Self; 8] = [
        Self::Server,
        Self::Chat,
        Self::Schema,
        Self::Tools,
        Self::RequiredTool,
        Self::NamedTool,
        Self::ParallelTools,
        Self::Tokenizer,
    ];

    /// The subject in a few words.
    pub fn subject(self) -> &'static str {
        match self {
            Self::Server => "what the server says of itself",
            Self::Chat => "whether it answers, as a stream and with token counts",
            Self::Schema => "whether it enforces a JSON Schema",
            Self::Tools => "whether it calls tools",
            Self::RequiredTool => "whether it calls a tool when it must",
            Self::NamedTool => "whether it calls the tool that is named",
            Self::ParallelTools => "whether it calls two tools at once",
            Self::Tokenizer => "whether it counts tokens",
        }
    }
}

/// Probes the endpoint of `model` with its timeouts. `nonce` is a random word of letters and digits, unique
/// to this probe. `watch` is called before each question.
///
/// # Errors
/// The error that keeps the endpoint from answering the simplest question, or one that no retry can fix (a
/// wrong key). The result of every other question is a [`ProbeVerdict`].
pub async fn probe(
    model: &OpenAiModel,
    nonce: &str,
    watch: &mut (dyn FnMut(ProbeQuestion) + Send),
) -> Result<Dialect, ModelError> {
    watch(ProbeQuestion::Server);
    let server = model.server().await?;
    watch(ProbeQuestion::Chat);
    let (mut probe, plain) = Probe::start(model).await?;
    watch(ProbeQuestion::Schema);
    let schema = probe.schema(nonce).await;
    watch(ProbeQuestion::Tools);
    let auto = probe.call(&AUTO).await;
    watch(ProbeQuestion::RequiredTool);
    let required = probe.call(&REQUIRED).await;
    watch(ProbeQuestion::NamedTool);
    let named = probe.call(&NAMED).await;
    watch(ProbeQuestion::ParallelTools);
    let parallel = if auto.works() || required.works() {
        probe.call(&PARALLEL).await
    } else {
        ProbeVerdict::Unknown {
            reason: "it calls no tool at all".into(),
        }
    };
    watch(ProbeQuestion::Tokenizer);
    let tokenizer = model.find_tokenizer().await.unwrap_or_default();
    Ok(Dialect {
        server,
        delivery: probe.delivery,
        usage: plain.usage.is_some(),
        reasoning: probe.has_reasoned,
        schema,
        tools: ToolCalling {
            auto,
            required,
            named,
            parallel,
        },
        tokenizer,
    })
}

/// A conversation with the endpoint, in the way it turned out to work.
struct Probe {
    model: OpenAiModel,
    delivery: Delivery,
    has_reasoned: bool,
}

impl Probe {
    /// Finds how an answer is delivered, with a question that needs nothing else.
    async fn start(model: &OpenAiModel) -> Result<(Self, Completion), ModelError> {
        let mut refusal = None;
        for delivery in [Delivery::Stream, Delivery::UncountedStream, Delivery::Whole] {
            let mut probe = Self {
                model: model.clone().insisting().with_delivery(delivery),
                delivery,
                has_reasoned: false,
            };
            match probe.ask(question("Say hello.")).await {
                Ok(completion) => return Ok((probe, completion)),
                Err(error @ (ModelError::Status { .. } | ModelError::InStream { .. }))
                    if !is_hopeless(&error) =>
                {
                    refusal.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        // The first one is about the request that runs make.
        Err(refusal.unwrap_or_else(|| ModelError::Config {
            message: "nothing was asked".into(),
        }))
    }

    /// The canary. Its form is that of a Solution, because that is what runs will ask for.
    async fn schema(&mut self, nonce: &str) -> ProbeVerdict {
        let only = json!({"calls": [{"_tool": nonce}], "output": null});
        let schema = json!({
            "type": "object",
            "properties": {
                "calls": {"type": "array", "minItems": 1, "maxItems": 1, "items": {"anyOf": [{
                    "type": "object",
                    "properties": {"_tool": {"const": nonce}},
                    "required": ["_tool"],
                    "additionalProperties": false,
                }]}},
                "output": {"type": "null"},
            },
            "required": ["calls", "output"],
            "additionalProperties": false,
        });
        let mut request = question("Choose a tool and reply with JSON.");
        request.response_format = Some(json!({
            "type": "json_schema",
            "json_schema": {"name": "canary", "strict": true, "schema": schema},
        }));
        match self.ask(request).await {
            Ok(completion) => {
                let answer = bounded::from_str::<Value>(completion.content.trim());
                verdict(answer.is_ok_and(|answer| answer == only), &completion)
            }
            Err(error) => verdict_of(&error),
        }
    }

    async fn call(&mut self, task: &ToolQuestion) -> ProbeVerdict {
        let asked = self.ask(task.request()).await;
        let asked = match asked {
            // Some servers stream, and call tools, but not both.
            Err(error) if self.delivery != Delivery::Whole && speaks_of_streams(&error) => {
                let whole = Delivery::Whole;
                let model = self.model.clone().with_delivery(whole);
                let before = std::mem::replace(&mut self.model, model);
                let again = self.ask(task.request()).await;
                match again {
                    Ok(_) => self.delivery = whole,
                    Err(_) => self.model = before,
                }
                again
            }
            asked => asked,
        };
        match asked {
            Ok(completion) => verdict(task.is_done(&completion), &completion),
            Err(error) => verdict_of(&error),
        }
    }

    async fn ask(&mut self, request: ChatRequest) -> Result<Completion, ModelError> {
        let completion = self.model.complete(&request, &mut |_| {}).await?;
        self.has_reasoned |= !completion.reasoning.is_empty();
        Ok(completion)
    }
}

/// A question about tools: the message, the tool choice, and the calls that are expected.
struct ToolQuestion {
    text: &'static str,
    choice: fn() -> ToolChoice,
    /// The tool that must be called, if it matters which.
    tool: Option<&'static str>,
    calls: usize,
}

const WEATHER: &str = "weather_of";
const TIME: &str = "time_in";

const AUTO: ToolQuestion = ToolQuestion {
    text: "What is the weather in Paris now? Use a tool.",
    choice: || ToolChoice::Auto,
    tool: Some(WEATHER),
    calls: 1,
};
const REQUIRED: ToolQuestion = ToolQuestion {
    text: "Say hello.",
    choice: || ToolChoice::Required,
    tool: None,
    calls: 1,
};
const NAMED: ToolQuestion = ToolQuestion {
    text: "What is the weather in Paris now? Use a tool.",
    choice: || ToolChoice::Named(TIME.into()),
    tool: Some(TIME),
    calls: 1,
};
const PARALLEL: ToolQuestion = ToolQuestion {
    text: "What is the weather in Paris, and what is it in Rome? Call a tool for each city, both now.",
    choice: || ToolChoice::Auto,
    tool: Some(WEATHER),
    calls: 2,
};

impl ToolQuestion {
    fn request(&self) -> ChatRequest {
        let tool = |name: &str, description: &str| ChatTool {
            name: name.into(),
            description: description.into(),
            parameters: json!({
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 40}},
                "required": ["city"],
                "additionalProperties": false,
            }),
        };
        ChatRequest {
            tools: vec![
                tool(WEATHER, "The weather of a city."),
                tool(TIME, "The local time in a city."),
            ],
            tool_choice: Some((self.choice)()),
            ..question(self.text)
        }
    }

    /// Whether as many calls as were asked for are there, each of the right tool and with arguments that
    /// can be read.
    fn is_done(&self, completion: &Completion) -> bool {
        let calls = &completion.tool_calls;
        calls.len() >= self.calls
            && calls.iter().all(|call| {
                let is_right = match self.tool {
                    Some(tool) => call.name == tool,
                    None => call.name == WEATHER || call.name == TIME,
                };
                let arguments = bounded::from_str::<Value>(&call.arguments);
                is_right && arguments.is_ok_and(|arguments| arguments["city"].is_string())
            })
    }
}

fn question(text: &str) -> ChatRequest {
    ChatRequest {
        max_tokens: Some(MAX_TOKENS),
        temperature: Some(0.0),
        ..ChatRequest::new("", vec![ChatMessage::user(text)])
    }
}

fn verdict(is_as_asked: bool, completion: &Completion) -> ProbeVerdict {
    if is_as_asked {
        return ProbeVerdict::Works;
    }
    let said_nothing = completion.content.trim().is_empty() && completion.tool_calls.is_empty();
    if completion.finish_reason.as_deref() == Some("length") && said_nothing {
        return ProbeVerdict::Unknown {
            reason: format!("it was still thinking after {MAX_TOKENS} tokens"),
        };
    }
    let answer = match completion.tool_calls.first() {
        Some(call) => format!("a call of {} with {}", call.name, call.arguments),
        None if said_nothing => "nothing".into(),
        None => completion.content.clone(),
    };
    ProbeVerdict::Ignored {
        answer: excerpt(answer.as_bytes()),
    }
}

/// The verdict for a failed question, after the endpoint has answered a simpler one.
fn verdict_of(error: &ModelError) -> ProbeVerdict {
    let reason = excerpt(error.to_string().as_bytes());
    match error {
        // Overload and proxy errors are temporary; any other failure is caused by the question.
        ModelError::Status {
            status: 408 | 425 | 429 | 502..=504,
            ..
        }
        | ModelError::Timeout { .. }
        | ModelError::Connect { .. }
        | ModelError::Truncated { .. } => ProbeVerdict::Unknown { reason },
        _ => ProbeVerdict::Refused { reason },
    }
}

/// Whether no other form of the request can avoid this error.
fn is_hopeless(error: &ModelError) -> bool {
    match error {
        ModelError::Status { status, .. } => {
            matches!(status, 300..=399 | 401..=404 | 408 | 425 | 429 | 502..=504)
        }
        _ => false,
    }
}

fn speaks_of_streams(error: &ModelError) -> bool {
    match error {
        ModelError::Status { detail, .. } | ModelError::InStream { detail, .. } => {
            detail.message.to_ascii_lowercase().contains("stream")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_protocol::completion::ChatToolCall;

    fn calling(names: &[&str], arguments: &str) -> Completion {
        let calls = names.iter().map(|name| ChatToolCall {
            id: "c".into(),
            name: (*name).into(),
            arguments: arguments.into(),
            ..ChatToolCall::default()
        });
        Completion {
            tool_calls: calls.collect(),
            ..Completion::default()
        }
    }

    #[test]
    fn a_task_is_done_by_the_right_calls_alone() {
        let paris = r#"{"city":"Paris"}"#;
        for (task, completion, expected) in [
            (&AUTO, calling(&[WEATHER], paris), true),
            (&AUTO, calling(&[TIME], paris), false),
            (&AUTO, calling(&[WEATHER], "{}"), false),
            (&AUTO, calling(&[WEATHER], "Paris"), false),
            (&AUTO, calling(&[], paris), false),
            (&REQUIRED, calling(&[TIME], paris), true),
            (&REQUIRED, calling(&["made_up"], paris), false),
            (&NAMED, calling(&[WEATHER], paris), false),
            (&NAMED, calling(&[TIME], paris), true),
            (&PARALLEL, calling(&[WEATHER], paris), false),
            (&PARALLEL, calling(&[WEATHER, WEATHER], paris), true),
        ] {
            assert_eq!(
                task.is_done(&completion),
                expected,
                "{} {completion:?}",
                task.text
            );
        }
    }

    #[test]
    fn a_model_that_is_still_thinking_has_not_ignored_anything() {
        let cut = |content: &str| Completion {
            content: content.into(),
            reasoning: "hm".into(),
            finish_reason: Some("length".into()),
            ..Completion::default()
        };
        assert!(matches!(
            verdict(false, &cut("")),
            ProbeVerdict::Unknown { .. }
        ));
        assert!(matches!(
            verdict(false, &cut("So")),
            ProbeVerdict::Ignored { .. }
        ));
    }
}
