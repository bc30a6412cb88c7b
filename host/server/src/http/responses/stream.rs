//! The stream of a response: typed server-sent events with sequence numbers.

use super::object::{ResponseObject, ResponseState};
use super::output::Output;
use crate::http::error::ApiError;
use crate::http::events;
use crate::http::turn::{LiveTurn, TurnEnd};
use axum::response::{Response, sse};
use futures_util::stream;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;

#[derive(Debug)]
pub struct Events {
    live: LiveTurn,
    output: Output,
    kept: ResponseState,
    /// Name of the agent.
    model: String,
    /// Sequence number of the next event.
    number: u64,
    ready: VecDeque<(&'static str, Value)>,
    is_over: bool,
}

impl Events {
    pub fn new(live: LiveTurn, output: Output, kept: ResponseState, model: String) -> Self {
        let mut events = Self {
            live,
            output,
            kept,
            model,
            number: 0,
            ready: VecDeque::new(),
            is_over: false,
        };
        events.tell_all("response.created");
        events.tell_all("response.in_progress");
        events
    }

    pub fn respond(self) -> Response {
        let told = stream::unfold(self, async |mut events| {
            let (event, data) = events.next().await?;
            let sent = sse::Event::default().event(event).data(data.to_string());
            Some((sent, events))
        });
        events::respond(told)
    }

    async fn next(&mut self) -> Option<(&'static str, Value)> {
        loop {
            if let Some(told) = self.ready.pop_front() {
                return Some(told);
            }
            if self.is_over {
                return None;
            }
            match self.live.next().await {
                Ok(Some(event)) => {
                    self.output.take(&event.kind);
                    self.pass_on();
                }
                Ok(None) => self.end(),
                Err(error) => self.fail(&error),
            }
        }
    }

    fn end(&mut self) {
        let last = match self.live.turn.end() {
            TurnEnd::Answered | TurnEnd::Called => "response.completed",
            TurnEnd::OutOfTokens | TurnEnd::Blocked | TurnEnd::Cancelled => "response.incomplete",
            TurnEnd::Limited | TurnEnd::Failed => "response.failed",
            TurnEnd::Open => {
                if let Some(fault) = self.live.turn.fault() {
                    self.fail(&fault);
                }
                return;
            }
        };
        self.is_over = true;
        self.output.end(&self.live.turn);
        self.pass_on();
        self.tell_all(last);
    }

    /// Ends a stream that cannot continue; the run is not affected.
    fn fail(&mut self, error: &ApiError) {
        self.is_over = true;
        let error = error.body().error;
        self.tell(
            "error",
            json!({"code": error.kind, "message": error.message, "param": error.param}),
        );
    }

    fn pass_on(&mut self) {
        for (event, members) in self.output.told() {
            self.tell(event, members);
        }
    }

    /// The response in its present state.
    fn tell_all(&mut self, event: &'static str) {
        let response = ResponseObject::new(&self.model, &self.kept, &self.live.turn, &self.output);
        self.tell(event, json!({"response": response}));
    }

    fn tell(&mut self, event: &'static str, members: Value) {
        let mut data = Map::new();
        data.insert("type".into(), event.into());
        data.insert("sequence_number".into(), self.number.into());
        self.number += 1;
        if let Value::Object(members) = members {
            data.extend(members);
        }
        self.ready.push_back((event, data.into()));
    }
}
