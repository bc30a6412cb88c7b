//! From the bytes of an answer to deltas and a completion.
//!
//! Strict where a mistake would change the meaning, lenient about everything else: the table in the
//! tests is the list of what servers do. No I/O and no clock: [`crate::client`] feeds the bytes.

mod beside;
mod call_forms;
#[cfg(test)]
mod call_tests;
mod strays;
#[cfg(test)]
mod tests;
mod text_arguments;

use std::mem;

use serde_json::{Error, Value};

use crate::cut_pairs::CutPairs;
use crate::delta_text::{content_of, text_of, thought};
use crate::error::ModelError;
use crate::error_body::{excerpt, from_value, unreadable};
use crate::event_form::{DONE, is_piece, is_sign_of_life, json_lines};
use crate::extras::Extras;
use crate::offered::OfferedFunction;
use crate::reasoning::{ContentThoughts, KeptSize, ReasoningDetails, details_text, keep_signed};
use crate::tool_calls::{FinishedCalls, ToolCalls};
use crate::usage;
use call_forms::CallPlace;
use strays::StrayMembers;
use text_arguments::TextArguments;
use toolhold_intake::body::{BodyEnd, BodyFault, BodyReader};
use toolhold_intake::json;
use toolhold_intake::sse::{SseEvent, objects};
use toolhold_protocol::completion::{
    CONTENT_THOUGHTS, Completion, Delta, EXTRA_CONTENT, REASONING_DETAILS, REASONING_TEXTS,
    THINKING_BLOCKS,
};

/// Decodes one answer.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// Bytes that the whole answer may take.
    limit: usize,
    /// An event stream; or JSON: an error, a server that does not stream, or one that streams JSON lines.
    body: BodyReader,
    /// Content type that the server declared, for messages.
    content_type: String,
    /// `[DONE]` was seen; what follows is not part of the answer.
    done: bool,
    /// A choice was received, even if it is empty.
    has_choice: bool,
    finishing: Finishing,
    /// A delta had something of the answer, so a whole message only repeats it.
    has_delta: bool,
    pairs: CutPairs,
    completion: Completion,
    calls: ToolCalls,
    /// The place of the first call with a name. Those in other places repeat it.
    calls_at: Option<CallPlace>,
    strays: StrayMembers,
    details: ReasoningDetails,
    blocks: ReasoningDetails,
    thoughts: ContentThoughts,
    /// Size of the other signed members of the message.
    signed: KeptSize,
    extras: Extras,
}

/// How much the last finish reason says. Some endpoints write one into every chunk.
#[derive(Debug, Default)]
struct Finishing {
    /// Text came behind a finish reason, so none of this answer is its end by itself.
    is_voided: bool,
    /// The last one came without text.
    is_alone: bool,
    /// Text came without a finish reason.
    has_plain: bool,
}

impl Decoder {
    /// `limit`: the most bytes the answer may take. `content_type`: as the server declared it.
    pub(crate) fn new(limit: usize, content_type: Option<&str>) -> Self {
        Self {
            limit,
            body: BodyReader::new(limit, content_type),
            content_type: content_type.unwrap_or("no content type").to_owned(),
            done: false,
            has_choice: false,
            finishing: Finishing::default(),
            has_delta: false,
            pairs: CutPairs::default(),
            completion: Completion::default(),
            calls: ToolCalls::default(),
            calls_at: None,
            strays: StrayMembers::default(),
            details: ReasoningDetails::default(),
            blocks: ReasoningDetails::default(),
            thoughts: ContentThoughts::default(),
            signed: KeptSize::default(),
            extras: Extras::default(),
        }
    }

    /// Decodes an answer to a request that offers these functions.
    pub(crate) fn offering(mut self, functions: Vec<OfferedFunction>) -> Self {
        self.calls = ToolCalls::offering(functions);
        self
    }

    /// Nothing after this point belongs to the answer.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// True if the answer calls a function, or says so. Some endpoints write a finish reason behind each call, and the next
    /// call after it.
    pub(crate) fn may_call_again(&self) -> bool {
        let reason = self.completion.finish_reason.as_deref();
        !self.calls.is_empty() || reason.is_some_and(is_of_calls)
    }

    /// The answer is complete if its body ends here in good order.
    fn is_whole(&self) -> bool {
        let is_end = self.finishing.is_alone || !self.finishing.is_voided;
        self.has_mark() || (self.completion.finish_reason.is_some() && is_end)
    }

    /// True if the answer is complete, also where the connection breaks. A finish reason is enough only if text came
    /// without one: some endpoints write it into every chunk.
    pub(crate) fn is_certain(&self) -> bool {
        let is_end = self.finishing.has_plain && !self.finishing.is_voided;
        self.has_mark() || (self.completion.finish_reason.is_some() && is_end)
    }

    /// True if only the formal end and counts are still to come. After a finish reason beside text more may follow, such
    /// as the next call.
    pub(crate) fn is_tail(&self) -> bool {
        self.is_certain() && (self.done || self.finishing.is_alone)
    }

    /// `[DONE]`, and not one that ends an answer that never began.
    fn has_mark(&self) -> bool {
        self.done && self.has_choice
    }

    /// Takes the next bytes. `url` is where they come from, for messages.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        url: &str,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<(), ModelError> {
        let events = self.body.push(bytes);
        let events = events.map_err(|fault| self.unread(fault, url))?;
        self.take_events(events, emit)
    }

    /// The answer has ended in good order. A clean end says nothing about completeness: proxies end
    /// cleanly when the server behind them dies.
    pub(crate) fn finish(
        mut self,
        url: &str,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<Completion, ModelError> {
        let end = self.body.finish();
        match end.map_err(|fault| self.unread(fault, url))? {
            BodyEnd::Empty => {}
            BodyEnd::Json(json) => self.take_json(&json, emit)?,
            BodyEnd::Events(last) => {
                // Without its blank line the last event may be cut: unreadable means truncated.
                match self.take_events(last, emit) {
                    Ok(()) | Err(ModelError::Decode { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        self.release_pairs(emit)?;
        if self.is_whole() {
            self.doubt_by_text();
            self.calls.end(emit);
            Ok(self.taken())
        } else {
            Err(ModelError::Truncated {
                received: Box::new(self.into_completion()),
                source: None,
            })
        }
    }

    /// What came so far.
    pub(crate) fn into_completion(mut self) -> Completion {
        self.received()
    }

    /// Half a character that no other half followed ends its text.
    fn release_pairs(&mut self, emit: &mut dyn FnMut(Delta)) -> Result<(), ModelError> {
        for delta in self.pairs.release() {
            self.take_delta(&delta, emit)?;
        }
        Ok(())
    }

    /// Looks for arguments in the text of the answer, where a call has none.
    fn doubt_by_text(&mut self) {
        if self.calls.has_bare() {
            let text = TextArguments::of(&self.completion.content);
            self.calls
                .doubt_each(|name, function| text.kind(name, function));
        }
    }

    fn received(&mut self) -> Completion {
        // It has no more calls than before, so this cannot fail.
        let _ = self.release_pairs(&mut |_| {});
        self.doubt_by_text();
        self.taken()
    }

    /// Takes what came, after the text was looked through for arguments.
    fn taken(&mut self) -> Completion {
        let mut received = mem::take(&mut self.completion);
        let reason = received.finish_reason.as_deref();
        let is_cut = reason == Some("length");
        let has_reason_of_calls = reason.is_some_and(is_of_calls);
        let mut calls = mem::take(&mut self.calls);
        if !has_reason_of_calls && !received.content.trim().is_empty() {
            calls.forget_announcement();
        }
        let FinishedCalls { calls, unplaced } = calls.finish(is_cut);
        received.tool_calls = calls;
        received.unplaced = unplaced;
        received.reasoning_details = mem::take(&mut self.details).finish();
        let blocks = mem::take(&mut self.blocks).finish();
        if !blocks.is_empty() {
            let signed = &mut received.signed;
            signed.insert(THINKING_BLOCKS.to_owned(), blocks.into());
        }
        let thoughts = mem::take(&mut self.thoughts).finish();
        if !thoughts.is_empty() {
            let signed = &mut received.signed;
            signed.insert(CONTENT_THOUGHTS.to_owned(), thoughts.into());
        }
        received.extra = mem::take(&mut self.extras).finish();
        received
    }

    fn unread(&self, fault: BodyFault, url: &str) -> ModelError {
        match fault {
            BodyFault::TooLarge => ModelError::TooLarge {
                limit: self.limit,
                unit: "bytes",
            },
            BodyFault::Foreign(head) => ModelError::NotAnEndpoint {
                url: url.to_owned(),
                content_type: self.content_type.clone(),
                excerpt: excerpt(&head),
            },
        }
    }

    fn take_events(
        &mut self,
        events: Vec<SseEvent>,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<(), ModelError> {
        events
            .into_iter()
            .try_for_each(|event| self.take_event(event, emit))
    }

    fn take_event(
        &mut self,
        event: SseEvent,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<(), ModelError> {
        let data = event.data.trim();
        // Proxies that stream a stream sometimes write the field name twice.
        let data = data.strip_prefix("data:").map_or(data, str::trim_start);
        if self.done || data.is_empty() {
            return Ok(());
        }
        if data == DONE {
            self.done = true;
            return Ok(());
        }
        let is_error = event.name.as_deref() == Some("error");
        if !is_error && is_sign_of_life(event.name.as_deref(), data) {
            return Ok(());
        }
        match self.pairs.parse(data) {
            // The event's name says that it is an error, whatever its data look like.
            Ok(chunk) if is_error && from_value(&chunk).is_none() => {
                self.fail(&serde_json::json!({ "error": chunk }))
            }
            Err(_) if is_error => self.fail(&serde_json::json!({ "error": data })),
            Ok(chunk) => self.take_chunk(&chunk, emit),
            Err(source) => self.take_several(data, source, emit),
        }
    }

    /// Takes an event that is no JSON for this reason: several values one behind the other, as proxies write them.
    fn take_several(
        &mut self,
        data: &str,
        source: Error,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<(), ModelError> {
        let (values, rest) = objects(data);
        let has_mark = rest == DONE;
        // The last one may be cut.
        let is_several = match values.len() {
            0 => false,
            1 => has_mark || rest.starts_with('{'),
            _ => has_mark || rest.is_empty() || rest.starts_with('{'),
        };
        if is_several {
            for value in values {
                match self.pairs.parse(value) {
                    Ok(chunk) => self.take_chunk(&chunk, emit)?,
                    Err(source) => return self.refuse_event(value, source),
                }
            }
            self.done |= has_mark;
            if has_mark || rest.is_empty() {
                return Ok(());
            }
        }
        self.refuse_event(data, source)
    }

    fn refuse_event(&mut self, data: &str, source: Error) -> Result<(), ModelError> {
        // As an error behind a whole answer: it costs nothing.
        if self.is_certain() {
            self.done = true;
            return Ok(());
        }
        Err(unreadable("an event", data.as_bytes(), Some(source)))
    }

    fn take_json(&mut self, bytes: &[u8], emit: &mut dyn FnMut(Delta)) -> Result<(), ModelError> {
        let text = String::from_utf8_lossy(bytes);
        let (answers, is_whole) = match json::parse(&text) {
            // Some gateways wrap what they pass on into a list.
            Ok(Value::Array(answers)) => (answers, true),
            Ok(answer) => {
                // One line of a stream of lines is no answer.
                let is_whole = !is_piece(&answer);
                (vec![answer], is_whole)
            }
            // Cut off by a clean end.
            Err(error) if error.is_eof() => return Ok(()),
            Err(source) => match json_lines(&text, &mut self.pairs) {
                Some(chunks) => chunks,
                None => {
                    return Err(unreadable("an answer", bytes, Some(source)));
                }
            },
        };
        for answer in &answers {
            self.take_chunk(answer, emit)?;
        }
        if !self.has_choice {
            return Err(unreadable("an answer without choices", bytes, None));
        }
        self.done = is_whole;
        Ok(())
    }

    fn take_chunk(&mut self, chunk: &Value, emit: &mut dyn FnMut(Delta)) -> Result<(), ModelError> {
        if from_value(chunk).is_some() {
            return self.fail(chunk);
        }
        self.extras.keep(chunk, &KNOWN_IN_CHUNK);
        if let Some(model) = chunk.get("model").and_then(Value::as_str)
            && self.completion.model.is_none()
            && !model.is_empty()
        {
            self.completion.model = Some(model.to_owned());
        }
        // The last one counts: some servers send a running count with every chunk.
        let usage = chunk.get("usage").and_then(usage::from_wire);
        if let Some(usage) = usage.or_else(|| usage::from_timings(chunk.get("timings")?)) {
            self.completion.usage = Some(usage);
        }
        let choices = chunk.get("choices").and_then(Value::as_array);
        let (first, others) = choices.map(|choices| first_of(choices)).unwrap_or_default();
        for other in others {
            self.calls.doubt(strays::in_other_choice(other));
        }
        let Some(choice) = first else {
            self.take_beside(chunk, CallPlace::Chunk, &[], emit)?;
            return Ok(());
        };
        self.has_choice = true;
        if let Some(error) = choice.get("error").filter(|error| !error.is_null()) {
            return self.fail(&serde_json::json!({ "error": error }));
        }
        self.extras.keep(choice, &KNOWN_IN_CHOICE);
        if let Some(usage) = choice.get("usage").and_then(usage::from_wire) {
            self.completion.usage = Some(usage);
        }
        let mut has_text = self.take_choice(choice, emit)?;
        let own = ["/delta/tool_calls", "/message/tool_calls", "/tool_calls"];
        let own = own.map(|place| choice.pointer(place));
        has_text |= self.take_beside(chunk, CallPlace::Chunk, &own, emit)?;
        if has_text && self.completion.finish_reason.take().is_some() {
            self.finishing.is_voided = true;
        }
        match choice.get("finish_reason").and_then(Value::as_str) {
            // Not the end of an answer, but of the generation.
            Some(reason @ ("error" | "abort")) => self.fail(&serde_json::json!({"error": {
                "message": format!("the server gave the generation up (finish_reason {reason:?})"),
                "code": "generation_ended",
            }})),
            // Proxies fill the field in every chunk.
            Some("" | "null" | "None") | None => {
                self.finishing.has_plain |= has_text;
                Ok(())
            }
            Some(reason) => {
                self.completion.finish_reason = Some(reason.to_owned());
                self.finishing.is_alone = !has_text;
                Ok(())
            }
        }
    }

    /// Takes the text of a choice: a delta, the message as a whole, or both. Returns whether there is something of the
    /// answer in it.
    fn take_choice(
        &mut self,
        choice: &Value,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<bool, ModelError> {
        let part = |name: &str| choice.get(name).filter(|part| part.is_object());
        let mut has_text = false;
        if let Some(delta) = part("delta") {
            has_text = self.take_delta(delta, emit)?;
            self.has_delta |= has_text;
        }
        if let Some(message) = part("message") {
            // Some servers repeat the whole message at the end of the stream.
            has_text |= if self.is_blank() {
                self.take_delta(message, emit)?
            } else if self.calls.is_empty() {
                self.take_delta(&self.rest_of(message), emit)?
            } else {
                let has_more = self.take_delta(&self.rest_of(message), emit)?;
                self.complete_calls(message, emit) || has_more
            };
        } else if let (None, Some(text)) = (part("delta"), choice.get("text")) {
            // As completions without a chat have it.
            has_text = self.take_delta(&serde_json::json!({"content": text}), emit)?;
        }
        let own = ["/delta/tool_calls", "/message/tool_calls"];
        let own = own.map(|place| choice.pointer(place));
        has_text |= self.take_beside(choice, CallPlace::Choice, &own, emit)?;
        Ok(has_text)
    }

    /// The part of a whole message that no delta had.
    fn rest_of(&self, message: &Value) -> Value {
        let mut rest = message.clone();
        let Some(members) = rest.as_object_mut() else {
            return rest;
        };
        let new = |so_far: &str, text: &str| -> String {
            match text.strip_prefix(so_far) {
                Some(more) => more.to_owned(),
                // Where nothing came otherwise, messages are the pieces.
                None if !self.has_delta => text.to_owned(),
                None => String::new(),
            }
        };
        let Completion {
            content, reasoning, ..
        } = &self.completion;
        let text = |name: &str| message.get(name).map(content_of).unwrap_or_default();
        let mut own = text("content");
        if own.is_empty() {
            own = text("refusal");
        }
        let thoughts = message.get("content").and_then(thought);
        members.shift_remove("refusal");
        members.insert("content".to_owned(), new(content, &own).into());
        for name in REASONING_TEXTS {
            if members.contains_key(name) {
                members.insert(name.to_owned(), new(reasoning, &text(name)).into());
            }
        }
        if !reasoning.is_empty() || !self.details.is_empty() || !self.blocks.is_empty() {
            members.shift_remove(REASONING_DETAILS);
            members.shift_remove(THINKING_BLOCKS);
        } else if let Some(thoughts) = thoughts {
            members.insert("thinking".to_owned(), thoughts.into());
        }
        if !self.calls.is_empty() {
            call_forms::remove(members);
        }
        rest
    }

    /// Returns whether there is something of the answer in it.
    fn take_delta(
        &mut self,
        delta: &Value,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<bool, ModelError> {
        let reasoning = self.take_reasoning(delta);
        let mut has_text = !reasoning.is_empty();
        if has_text {
            self.completion.reasoning.push_str(&reasoning);
            emit(Delta::Reasoning(reasoning));
        }
        self.extras.keep(delta, &KNOWN_IN_DELTA);
        let mut content = delta.get("content").map(content_of).unwrap_or_default();
        if content.is_empty() {
            // A model that refuses says so in a field of its own, and nothing else.
            content = delta.get("refusal").map(text_of).unwrap_or_default();
        }
        if !content.is_empty() {
            has_text = true;
            self.completion.content.push_str(&content);
            emit(Delta::Content(content));
        }
        has_text |= self.take_calls(delta, emit)?;
        Ok(has_text)
    }

    /// The reasoning in a delta, whose members' names are kept: it goes back under them.
    fn take_reasoning(&mut self, delta: &Value) -> String {
        let mut reasoning = String::new();
        for name in REASONING_TEXTS {
            let text = delta.get(name).map(text_of).unwrap_or_default();
            if text.is_empty() {
                continue;
            }
            let names = &mut self.completion.reasoning_names;
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
            // Some vLLM versions send the same text under both names.
            if reasoning.is_empty() {
                reasoning = text;
            }
        }
        if reasoning.is_empty() {
            let content = delta.get("content").unwrap_or(&Value::Null);
            reasoning = thought(content).unwrap_or_default();
            self.thoughts.take(content);
        }
        let kept = [
            (REASONING_DETAILS, &mut self.details),
            (THINKING_BLOCKS, &mut self.blocks),
        ];
        for (name, parts) in kept {
            let Some(details) = delta.get(name) else {
                continue;
            };
            // Behind a text in a member of its own, parts repeat it.
            if reasoning.is_empty() && self.completion.reasoning_names.is_empty() {
                reasoning = details_text(details);
            }
            parts.take(details);
        }
        if let Some(extra) = delta.get(EXTRA_CONTENT) {
            let signed = &mut self.completion.signed;
            keep_signed(EXTRA_CONTENT, extra, signed, &mut self.signed);
        }
        reasoning
    }

    fn is_blank(&self) -> bool {
        self.completion.content.is_empty()
            && self.completion.reasoning.is_empty()
            && self.calls.is_empty()
    }

    /// The endpoint reports an error. An answer that was whole before is not lost to it.
    fn fail(&mut self, value: &Value) -> Result<(), ModelError> {
        if self.is_certain() {
            self.done = true;
            return Ok(());
        }
        Err(ModelError::InStream {
            detail: Box::new(from_value(value).unwrap_or_default()),
            received: Box::new(self.received()),
        })
    }
}

/// Fields that are decoded or ignored; all others are kept as extras.
const KNOWN_IN_CHUNK: [&str; 8] = [
    "id",
    "object",
    "created",
    "model",
    "choices",
    "usage",
    "error",
    "tool_calls",
];
const KNOWN_IN_CHOICE: [&str; 8] = [
    "index",
    "delta",
    "message",
    "text",
    "finish_reason",
    "usage",
    "error",
    "tool_calls",
];
const KNOWN_IN_DELTA: [&str; 13] = [
    "role",
    "content",
    "refusal",
    "reasoning",
    "reasoning_content",
    "thinking",
    REASONING_DETAILS,
    THINKING_BLOCKS,
    EXTRA_CONTENT,
    "tool_calls",
    "function_call",
    "tool_call",
    "tool_call_chunks",
];

/// Whether a finish reason says that the answer calls functions.
fn is_of_calls(reason: &str) -> bool {
    matches!(reason, "tool_calls" | "function_call")
}

/// The choice that is the answer, and the others. Some servers write no index.
fn first_of(choices: &[Value]) -> (Option<&Value>, Vec<&Value>) {
    let is_first = |choice: &Value| {
        let index = choice.get("index").and_then(Value::as_u64);
        index.is_none_or(|index| index == 0)
    };
    let place = choices.iter().position(is_first);
    let others = choices.iter().enumerate();
    let others = others.filter(|(at, _)| Some(*at) != place);
    (
        place.and_then(|place| choices.get(place)),
        others.map(|(_, choice)| choice).collect(),
    )
}
