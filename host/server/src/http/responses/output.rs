//! The output items of a response, and the stream events of their creation.
//!
//! Text that a model said beside calls of the run's own tools is an item of its own, so an item that was sent to a client
//! never changes.

use crate::answer_stream::{AnswerNews, AnswerRest, AnswerStream};
use crate::http::argument_pieces::pieces;
use crate::http::messages::ClientCall;
use crate::http::turn::{Turn, TurnEnd};
use serde::Serialize;
use serde_json::{Value, json};
use toolhold_protocol::event::EventKind;
use utoipa::ToSchema;
use uuid::Uuid;

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = ResponseItem)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputItem {
    Message {
        id: String,
        role: &'static str,
        status: ItemStatus,
        content: Vec<Part>,
        /// `commentary` for text before the answer.
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<&'static str>,
    },
    /// A call of one of the client's tools.
    FunctionCall {
        id: String,
        /// The `function_call_output` of the next request refers to it.
        call_id: String,
        name: String,
        /// JSON.
        arguments: String,
        status: ItemStatus,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = ResponsePart)]
pub struct Part {
    /// `output_text`
    #[serde(rename = "type")]
    kind: &'static str,
    text: String,
    /// Always empty.
    #[schema(value_type = Vec<Object>)]
    annotations: [Value; 0],
    /// Always empty.
    #[schema(value_type = Vec<Object>)]
    logprobs: [Value; 0],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ResponseItemStatus)]
#[serde(rename_all = "snake_case")]
pub enum ItemStatus {
    InProgress,
    Completed,
    /// The message broke off.
    Incomplete,
}

/// A stream event: its type, and its other members.
pub type StreamEvent = (&'static str, Value);

#[derive(Debug)]
pub struct Output {
    run: Uuid,
    pub items: Vec<OutputItem>,
    /// Absent if no text may be shown before the run is over.
    answer_stream: Option<AnswerStream>,
    /// Text of the message that is being written, which is the last item.
    writing: Option<String>,
    text_bytes: u64,
    told: Vec<StreamEvent>,
}

impl Output {
    pub fn new(run: Uuid, answer_stream: Option<AnswerStream>) -> Self {
        Self {
            run,
            items: Vec::new(),
            answer_stream,
            writing: None,
            text_bytes: 0,
            told: Vec::new(),
        }
    }

    /// Bytes of the texts that it keeps.
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    /// Takes the events since the previous call.
    pub fn told(&mut self) -> Vec<StreamEvent> {
        std::mem::take(&mut self.told)
    }

    /// Takes the run's next event.
    pub fn take(&mut self, event: &EventKind) {
        let stream = self.answer_stream.as_mut();
        match stream.map(|stream| stream.take(event)) {
            Some(AnswerNews::Text(text)) => self.say(&text),
            Some(AnswerNews::Aside) => self.close(ItemStatus::Completed, Some("commentary")),
            Some(AnswerNews::Nothing) | None => {}
        }
    }

    /// The text that the output ends with.
    fn content(&self, turn: &Turn) -> String {
        // A reply that was cut is an answer as far as it goes.
        if turn.end() == TurnEnd::OutOfTokens && self.writing.is_some() {
            turn.content()
        } else {
            turn.shown()
        }
    }

    fn rest<'a>(&self, turn: &Turn, content: &'a str) -> AnswerRest<'a> {
        let stream = self.answer_stream.as_ref();
        stream.map_or(AnswerRest::More(content), |stream| {
            stream.rest(content, turn.is_whole())
        })
    }

    /// True if the text of the message that is being written is not the beginning of the answer: the stream cannot give
    /// the answer.
    pub fn contradicts(&self, turn: &Turn) -> bool {
        self.rest(turn, &self.content(turn)) == AnswerRest::Contradiction
    }

    /// Ends the output: adds the items and events that are still missing. In a record that a stream could not tell to its
    /// end, the answer is an item of its own.
    pub fn end(&mut self, turn: &Turn) {
        let end = turn.end();
        let content = self.content(turn);
        match self.rest(turn, &content) {
            AnswerRest::More(rest) => self.say(rest),
            // No item but the last one may be incomplete (Open Responses).
            AnswerRest::Apart(_) | AnswerRest::Contradiction => {
                self.close(ItemStatus::Completed, Some("commentary"));
                self.say(&content);
            }
        }
        // An empty answer is an answer, too.
        if end == TurnEnd::Answered && content.is_empty() {
            self.begin();
        }
        // At a limit the text is the host's, and whole.
        let is_hosts = end == TurnEnd::Limited && self.said_whole(&content);
        let status = if turn.is_whole() || is_hosts {
            ItemStatus::Completed
        } else {
            ItemStatus::Incomplete
        };
        self.close(status, None);
        for call in &turn.calls {
            self.call(call);
        }
    }

    /// True if the message that is being written is this text.
    fn said_whole(&self, text: &str) -> bool {
        !text.is_empty() && self.writing.as_deref() == Some(text)
    }

    fn say(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.writing.is_none() {
            self.begin();
        }
        if let Some(writing) = &mut self.writing {
            writing.push_str(text);
            self.text_bytes += text.len() as u64;
        }
        let members = json!({"delta": text, "logprobs": []});
        self.tell_of_part("response.output_text.delta", members);
    }

    /// Begins a message.
    fn begin(&mut self) {
        let item = OutputItem::Message {
            id: self.id("msg"),
            role: "assistant",
            status: ItemStatus::InProgress,
            content: Vec::new(),
            phase: None,
        };
        self.writing = Some(String::new());
        self.add(item);
        let part = json!({"part": Part::text("")});
        self.tell_of_part("response.content_part.added", part);
    }

    /// Ends the message that is being written, if there is one.
    fn close(&mut self, status: ItemStatus, phase: Option<&'static str>) {
        let Some(text) = self.writing.take() else {
            return;
        };
        let members = json!({"text": text, "logprobs": []});
        self.tell_of_part("response.output_text.done", members);
        let part = Part::text(&text);
        self.tell_of_part("response.content_part.done", json!({"part": part}));
        if let Some(OutputItem::Message {
            status: own_status,
            content,
            phase: own_phase,
            ..
        }) = self.items.last_mut()
        {
            (*own_status, *own_phase) = (status, phase);
            content.push(part);
        }
        self.finish();
    }

    fn call(&mut self, call: &ClientCall) {
        let item = |id: &str, arguments: &str, status| OutputItem::FunctionCall {
            id: id.to_owned(),
            call_id: call.id.clone(),
            name: call.function.name.clone(),
            arguments: arguments.to_owned(),
            status,
        };
        let (id, arguments) = (self.id("fc"), call.function.arguments.as_str());
        self.add(item(&id, "", ItemStatus::InProgress));
        let index = self.items.len().saturating_sub(1);
        for piece in pieces(arguments) {
            self.tell(
                "response.function_call_arguments.delta",
                json!({"item_id": id, "output_index": index, "delta": piece}),
            );
        }
        self.tell(
            "response.function_call_arguments.done",
            json!({"item_id": id, "output_index": index, "name": call.function.name, "arguments": arguments}),
        );
        if let Some(last) = self.items.last_mut() {
            *last = item(&id, arguments, ItemStatus::Completed);
        }
        self.finish();
    }

    fn id(&self, kind: &str) -> String {
        format!("{kind}_{}_{}", self.run.simple(), self.items.len())
    }

    fn add(&mut self, item: OutputItem) {
        let members = json!({"output_index": self.items.len(), "item": item});
        self.items.push(item);
        self.tell("response.output_item.added", members);
    }

    /// Marks the last item as complete.
    fn finish(&mut self) {
        let index = self.items.len().saturating_sub(1);
        let members = json!({"output_index": index, "item": self.items.last()});
        self.tell("response.output_item.done", members);
    }

    /// Event about the only part of the message that is being written.
    fn tell_of_part(&mut self, event: &'static str, mut members: Value) {
        if let Some(OutputItem::Message { id, .. }) = self.items.last() {
            members["item_id"] = id.as_str().into();
        }
        members["output_index"] = self.items.len().saturating_sub(1).into();
        members["content_index"] = 0.into();
        self.tell(event, members);
    }

    fn tell(&mut self, event: &'static str, members: Value) {
        self.told.push((event, members));
    }
}

impl Part {
    fn text(text: &str) -> Self {
        Self {
            kind: "output_text",
            text: text.to_owned(),
            annotations: [],
            logprobs: [],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::unsent::FromRecord as _;
    use toolhold_protocol::completion::Delta;
    use toolhold_protocol::contract::Contract;
    use toolhold_protocol::event::{Event, StopReason};

    fn event(run: Uuid, kind: EventKind) -> Event {
        Event {
            run,
            seq: 0,
            at_ms: 0,
            kind,
            removed: None,
            seal: toolhold_protocol::event::Seal::default(),
        }
    }

    /// The streamed pieces of a run, and its final answer.
    fn heard(pieces: &[&str], answer: Value, reason: StopReason) -> Output {
        let run = Uuid::now_v7();
        let mut output = Output::new(run, Some(AnswerStream::new(Contract::Tools)));
        for piece in pieces {
            output.take(&EventKind::Delta {
                step: 1,
                delta: Delta::Content((*piece).to_owned()),
                from: None,
            });
        }
        let mut turn = Turn::new(run);
        turn.take(&event(
            run,
            EventKind::Done {
                reason,
                output: answer,
                error: None,
                steps: 1,
                calls: 0,
                tokens: 0,
                cost_nano: None,
                duration_ms: 0,
            },
        ));
        output.end(&turn);
        output
    }

    #[test]
    fn streamed_text_is_never_taken_back() {
        use ItemStatus::{Completed, Incomplete};
        let answered = StopReason::Output;
        for (pieces, answer, reason, expected) in [
            (
                &["It is", " 4."][..],
                json!("It is 4."),
                answered,
                vec![("It is 4.", Completed)],
            ),
            (
                &["It"],
                json!("It is 4."),
                answered,
                vec![("It is 4.", Completed)],
            ),
            (
                &[],
                json!("It is 4."),
                answered,
                vec![("It is 4.", Completed)],
            ),
            (
                &["No, "],
                json!("It is 4."),
                answered,
                vec![("No,", Completed), ("It is 4.", Completed)],
            ),
            (&[], json!(""), answered, vec![("", Completed)]),
            (
                &["It"],
                Value::Null,
                StopReason::Timeout,
                vec![("It", Incomplete)],
            ),
            (&[], Value::Null, StopReason::Timeout, vec![]),
        ] {
            let mut output = heard(pieces, answer, reason);
            let items: Vec<_> = output
                .items
                .iter()
                .map(|item| match item {
                    OutputItem::Message {
                        content, status, ..
                    } => (content[0].text.as_str(), *status),
                    OutputItem::FunctionCall { .. } => panic!("{item:?}"),
                })
                .collect();
            assert_eq!(items, expected, "{pieces:?}");
            // A client that only reads the stream has the same items.
            let texts: Vec<String> = expected.iter().map(|(text, _)| (*text).into()).collect();
            let mut listened = vec![String::new(); texts.len()];
            let mut done = Vec::new();
            for (event, members) in output.told() {
                let index = members["output_index"].as_u64().unwrap() as usize;
                match event {
                    "response.output_text.delta" => {
                        listened[index].push_str(members["delta"].as_str().unwrap());
                    }
                    "response.output_item.done" => done.push(members["item"].clone()),
                    _ => {}
                }
            }
            assert_eq!(listened, texts);
            assert_eq!(json!(done), json!(output.items));
        }
    }
}
