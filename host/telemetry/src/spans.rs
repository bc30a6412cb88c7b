//! Spans of runs and calls: their names and attributes.

use crate::conventions as names;
use crate::request::RequestParameters;
use opentelemetry::trace::{SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value as Attribute};
use opentelemetry_sdk::trace::SdkTracer;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use toolhold_policy::redaction::Redaction;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::result::ToolUsage;

/// Characters of an attribute with content.
const MAX_CONTENT_CHARS: usize = 32_768;

/// Makes spans; without a tracer, empty ones.
#[derive(Debug, Clone, Default)]
pub struct Spans {
    /// Absent: no spans are recorded.
    pub tracer: Option<SdkTracer>,
    /// Present: content is captured, redacted by this.
    pub content: Option<Redaction>,
}

/// A span that has not ended, or none. Dropping it ends it, too.
#[derive(Debug, Clone, Default)]
pub struct OpenSpan {
    context: Option<Context>,
}

impl Spans {
    /// Whether spans get attributes with content.
    pub fn captures(&self) -> bool {
        self.tracer.is_some() && self.content.is_some()
    }

    /// The span of a run, or of a sub-agent.
    pub fn agent(
        &self,
        name: &str,
        parent: &Context,
        at_ms: u64,
        about: Vec<KeyValue>,
    ) -> OpenSpan {
        let mut attributes = vec![
            KeyValue::new(names::OPERATION, names::INVOKE_AGENT),
            KeyValue::new(names::PROVIDER, names::OPENAI),
            KeyValue::new(names::AGENT_NAME, name.to_owned()),
        ];
        attributes.extend(about);
        let name = format!("{} {name}", names::INVOKE_AGENT);
        self.start(name, SpanKind::Internal, parent, at_ms, attributes)
    }

    /// The span of a request to a model.
    pub fn chat(&self, request: &RequestParameters, parent: &OpenSpan, at_ms: u64) -> OpenSpan {
        let model = &request.model;
        let mut attributes = vec![
            KeyValue::new(names::OPERATION, names::CHAT),
            KeyValue::new(names::PROVIDER, names::OPENAI),
            KeyValue::new(names::REQUEST_MODEL, model.clone()),
        ];
        if let Some(tokens) = request.max_tokens {
            attributes.push(KeyValue::new(names::MAX_TOKENS, tokens));
        }
        if let Some(temperature) = request.temperature {
            attributes.push(KeyValue::new(names::TEMPERATURE, temperature));
        }
        let name = format!("{} {model}", names::CHAT);
        self.start(
            name,
            SpanKind::Client,
            &parent.as_parent(),
            at_ms,
            attributes,
        )
    }

    /// The span of a tool call.
    pub fn tool(&self, tool: &str, call: &str, parent: &Context, at_ms: u64) -> OpenSpan {
        let attributes = vec![
            KeyValue::new(names::OPERATION, names::EXECUTE_TOOL),
            KeyValue::new(names::TOOL_NAME, tool.to_owned()),
            KeyValue::new(names::TOOL_CALL, call.to_owned()),
            KeyValue::new(names::TOOL_TYPE, names::FUNCTION),
        ];
        let name = format!("{} {tool}", names::EXECUTE_TOOL);
        self.start(name, SpanKind::Internal, parent, at_ms, attributes)
    }

    fn start(
        &self,
        name: String,
        kind: SpanKind,
        parent: &Context,
        at_ms: u64,
        attributes: Vec<KeyValue>,
    ) -> OpenSpan {
        let context = self.tracer.as_ref().map(|tracer| {
            let span = SpanBuilder::from_name(name)
                .with_kind(kind)
                .with_start_time(at(at_ms))
                .with_attributes(attributes);
            parent.with_span(tracer.build_with_context(span, parent))
        });
        OpenSpan { context }
    }

    /// Sets an attribute with content, redacted and cut, if content is captured.
    pub fn capture(&self, span: &OpenSpan, name: &'static str, content: impl FnOnce() -> Value) {
        if let (Some(redaction), true) = (&self.content, span.is_recording()) {
            let text = redaction.value(&content()).to_string();
            let end = text.char_indices().nth(MAX_CONTENT_CHARS);
            let kept = end.map_or(text.as_str(), |(end, _)| {
                text.get(..end).unwrap_or_default()
            });
            span.set(KeyValue::new(name, kept.to_owned()));
        }
    }
}

impl OpenSpan {
    /// The context for spans inside of it.
    pub fn as_parent(&self) -> Context {
        self.context.clone().unwrap_or_default()
    }

    /// Sets an attribute.
    pub fn set(&self, attribute: KeyValue) {
        if let Some(context) = &self.context {
            context.span().set_attribute(attribute);
        }
    }

    /// Adds an event.
    pub fn event(&self, name: impl Into<Cow<'static, str>>, at_ms: u64, attributes: Vec<KeyValue>) {
        if let Some(context) = &self.context {
            let span = context.span();
            span.add_event_with_timestamp(name, at(at_ms), attributes);
        }
    }

    /// Ends the span; `error` is the type of the error that ended it.
    pub fn end(&self, at_ms: u64, error: Option<&str>) {
        let Some(context) = &self.context else {
            return;
        };
        let span = context.span();
        if let Some(error) = error {
            span.set_attribute(KeyValue::new(names::ERROR_TYPE, error.to_owned()));
            // The type only: a message might quote content.
            span.set_status(Status::error(error.to_owned()));
        }
        span.end_with_timestamp(at(at_ms));
    }

    fn is_recording(&self) -> bool {
        let context = self.context.as_ref();
        context.is_some_and(|context| context.span().is_recording())
    }
}

/// Sets the attributes of a reply.
pub fn replied(span: &OpenSpan, completion: &Completion) {
    if let Some(model) = &completion.model {
        span.set(KeyValue::new(names::RESPONSE_MODEL, model.clone()));
    }
    if let Some(revision) = completion.revision() {
        span.set(KeyValue::new(names::FINGERPRINT, revision.to_owned()));
    }
    if let Some(reason) = &completion.finish_reason {
        let reasons = vec![StringValue::from(reason.clone())];
        let reasons = Attribute::Array(Array::String(reasons));
        span.set(KeyValue::new(names::FINISH_REASONS, reasons));
    }
    if let Some(usage) = &completion.usage {
        span.set(number(names::INPUT_TOKENS, usage.prompt_tokens));
        span.set(number(names::OUTPUT_TOKENS, usage.completion_tokens));
        if let Some(cached) = usage.cached_prompt_tokens {
            span.set(number(names::CACHED_TOKENS, cached));
        }
    }
    if let Some(first) = completion.time_to_first_token {
        span.set(KeyValue::new(names::FIRST_CHUNK, first.as_secs_f64()));
    }
}

/// Sets the attributes of an ended call.
pub fn called(span: &OpenSpan, usage: &ToolUsage, module: Option<&str>) {
    if let Some(digest) = module {
        span.set(KeyValue::new(names::MODULE, digest.to_owned()));
        // Where instructions are not counted, a 0 would read as a measurement.
        if usage.fuel > 0 {
            span.set(number(names::FUEL, usage.fuel));
        }
        span.set(number(names::MEMORY, usage.memory_bytes));
    }
}

/// An attribute with a number; too large ones are cut.
pub fn number(name: &'static str, number: u64) -> KeyValue {
    KeyValue::new(name, i64::try_from(number).unwrap_or(i64::MAX))
}

/// A request's messages in the form of the conventions.
pub fn messages(body: &Value) -> Value {
    let messages = body.get("messages").and_then(Value::as_array);
    let messages = messages.into_iter().flatten().map(|message| {
        let mut parts = Vec::new();
        if let Some(content) = message.get("content").filter(|it| !it.is_null()) {
            parts.push(json!({"type": "text", "content": content}));
        }
        let calls = message.get("tool_calls").and_then(Value::as_array);
        for call in calls.into_iter().flatten() {
            parts.push(json!({
                "type": "tool_call", "id": call.get("id"), "name": call.pointer("/function/name"),
                "arguments": call.pointer("/function/arguments"),
            }));
        }
        json!({"role": message.get("role"), "parts": parts})
    });
    messages.collect()
}

/// A reply in the form of the conventions.
pub fn answer(completion: &Completion) -> Value {
    let mut parts = Vec::new();
    if !completion.content.is_empty() {
        parts.push(json!({"type": "text", "content": completion.content}));
    }
    parts.extend(completion.tool_calls.iter().map(|call| {
        json!({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments})
    }));
    json!([{"role": "assistant", "parts": parts, "finish_reason": completion.finish_reason}])
}

fn at(at_ms: u64) -> SystemTime {
    let at = UNIX_EPOCH.checked_add(Duration::from_millis(at_ms));
    at.unwrap_or_else(SystemTime::now)
}
