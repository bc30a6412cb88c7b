//! Types of the server-sent events in the OpenAPI description. They are described here alone: the streams write their JSON
//! by hand, because pieces of it are long.

#![expect(
    dead_code,
    reason = "described here, and written as JSON where they are made"
)]

use crate::answer::Usage;
use crate::http::turn::ToolholdFields;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// Event of a run, with further members by its kind. `event:` is the kind, and `id:` is the value of `Last-Event-ID` that
/// continues behind it. The last event of a run is `done`.
#[derive(ToSchema)]
pub struct RunEvent {
    run: Uuid,
    /// Number of the event in the run, from 0 on. A piece of a reply has that of the event before it.
    seq: u64,
    /// Milliseconds since 1970.
    at_ms: u64,
    /// Kind of the event: `run`, `request`, `delta`, `plan`, `tool_start`, `tool_result`, `tokens`, `done`, …
    event: String,
}

/// A chunk of a streamed chat completion. The data of the last event is `[DONE]` in its place, and that of an error is the
/// body of an error.
#[derive(ToSchema)]
pub struct ChatChunk {
    id: String,
    /// `chat.completion.chunk`
    object: String,
    created: u64,
    model: String,
    /// Empty in the chunk with `usage`.
    choices: Vec<ChunkChoice>,
    /// With `stream_options.include_usage`, in a chunk of its own before the end.
    usage: Option<Usage>,
    /// In the chunk with `finish_reason`, as an answer without a stream has it.
    toolhold: Option<ToolholdFields>,
}

#[derive(ToSchema)]
pub struct ChunkChoice {
    index: u32,
    /// New parts of the message: `role`, `content`, `tool_calls` or `function_call`.
    #[schema(value_type = Object)]
    delta: Value,
    finish_reason: Option<String>,
}

/// An event of a streamed response. It has further members by its type, such as `delta`, `item` or `response`.
#[derive(ToSchema)]
pub struct ResponseEvent {
    /// `response.created`, `response.output_text.delta`, …; `response.completed`, `response.incomplete` or
    /// `response.failed` is the last one, and `[DONE]` follows in the place of an event. `response.failed` also follows each
    /// `error`. `event:` is the same.
    #[schema(rename = "type")]
    kind: String,
    /// From 0 on, without gaps.
    sequence_number: u64,
}
