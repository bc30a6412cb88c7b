//! The stream of a response: typed server-sent events with sequence numbers.

use super::object::{ResponseObject, ResponseState};
use super::output::Output;
use crate::http::error::ApiError;
use crate::http::events;
use crate::http::run_status::Api;
use crate::http::turn::{LiveTurn, TurnEnd};
use axum::response::{Response, sse};
use futures_util::stream;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use toolhold_connections::UnsentBytes;

#[derive(Debug)]
pub struct Events {
    live: LiveTurn,
    output: Output,
    kept: ResponseState,
    /// Name of the agent.
    model: String,
    /// Sequence number of the next event.
    number: u64,
    ready: VecDeque<QueuedEvent>,
    is_over: bool,
    /// The memory of what the stream repeats of its request, and of texts that came before the answer.
    memory: UnsentBytes,
    request_bytes: u64,
    /// The memory of the texts of its end.
    end: Option<UnsentBytes>,
}

/// An event whose turn has not come.
#[derive(Debug)]
struct QueuedEvent {
    number: u64,
    event: &'static str,
    members: Members,
}

#[derive(Debug)]
enum Members {
    These(Value),
    /// The response in its state when the event's turn comes.
    Response,
    /// The response in that state, but failed, because the stream cannot go on.
    Failed {
        code: String,
        message: String,
    },
}

/// Bytes that are counted ahead, so that not every piece of a text is.
const STEP: u64 = 64 << 10;
/// The copies of a text before the answer: in items, and in the events of the end.
const TEXTS: u64 = 4;
/// The copies of the answer: in the events of the end, and in the values that they are made of.
const ANSWERS: u64 = 8;

impl Events {
    pub fn new(
        live: LiveTurn,
        output: Output,
        kept: ResponseState,
        model: String,
        request: UnsentBytes,
    ) -> Self {
        let mut events = Self {
            live,
            output,
            kept,
            model,
            number: 0,
            ready: VecDeque::new(),
            is_over: false,
            request_bytes: request.bytes(),
            memory: request,
            end: None,
        };
        events.tell_all("response.created");
        events.tell_all("response.in_progress");
        events
    }

    pub fn respond(self) -> Response {
        let told = stream::unfold(Some(self), async |events| {
            let mut events = events?;
            Some(match events.next().await {
                Some((event, data)) => {
                    let sent = sse::Event::default().event(event).data(data.to_string());
                    (sent, Some(events))
                }
                None => (sse::Event::default().data("[DONE]"), None),
            })
        });
        events::respond(told)
    }

    async fn next(&mut self) -> Option<(&'static str, Value)> {
        loop {
            if let Some(next) = self.ready.pop_front() {
                return Some(self.data(next));
            }
            if self.is_over {
                return None;
            }
            match self.live.next().await {
                Ok(Some(event)) => {
                    self.output.take(&event.kind);
                    self.pass_on();
                    let texts = TEXTS * self.output.text_bytes();
                    let needed = self.request_bytes.saturating_add(texts);
                    if needed > self.memory.bytes()
                        && let Err(error) = self.live.grow(&mut self.memory, needed + STEP).await
                    {
                        self.fail(&error);
                    }
                }
                Ok(None) => self.end().await,
                Err(error) => self.fail(&error),
            }
        }
    }

    async fn end(&mut self) {
        let last = match self.live.turn.end() {
            TurnEnd::Answered | TurnEnd::Called => "response.completed",
            TurnEnd::OutOfTokens | TurnEnd::Filtered | TurnEnd::Blocked | TurnEnd::Cancelled => {
                "response.incomplete"
            }
            TurnEnd::Limited | TurnEnd::Failed => "response.failed",
            TurnEnd::Open => {
                if let Some(fault) = self.live.turn.fault(Api::OpenAi) {
                    self.fail(&fault);
                }
                return;
            }
        };
        if self.output.contradicts(&self.live.turn) {
            return self.fail(&self.live.turn.contradiction());
        }
        self.is_over = true;
        let bytes = ANSWERS * self.live.turn.end_bytes();
        self.end = Some(self.live.room(bytes).await);
        self.output.end(&self.live.turn);
        self.pass_on();
        if self.live.turn.end() == TurnEnd::Failed
            && let Some(fault) = self.live.turn.fault(Api::OpenAi)
        {
            self.tell_error(&fault);
        }
        self.tell_all(last);
    }

    /// Ends a stream that cannot continue; the run is not affected.
    fn fail(&mut self, error: &ApiError) {
        self.is_over = true;
        self.tell_error(error);
        let failed = Members::Failed {
            code: error.cause().to_owned(),
            message: error.message().to_owned(),
        };
        self.tell("response.failed", failed);
    }

    /// Sends the event `error`. Streams of OpenAI have the error beside `type`, and those of Open Responses in `error`.
    fn tell_error(&mut self, error: &ApiError) {
        let code = error.cause();
        let mut error = error.body().error;
        // A text in both places: clients leave an event away whose code is none.
        error.code = Some(code.to_owned());
        let members = json!({
            "code": code, "message": error.message, "param": error.param, "error": error,
        });
        self.tell("error", Members::These(members));
    }

    fn pass_on(&mut self) {
        for (event, members) in self.output.told() {
            self.tell(event, Members::These(members));
        }
    }

    /// The response in its state of then.
    fn tell_all(&mut self, event: &'static str) {
        self.tell(event, Members::Response);
    }

    fn tell(&mut self, event: &'static str, members: Members) {
        let number = self.number;
        self.number += 1;
        self.ready.push_back(QueuedEvent {
            number,
            event,
            members,
        });
    }

    fn data(&self, queued: QueuedEvent) -> (&'static str, Value) {
        let QueuedEvent {
            number,
            event,
            members,
        } = queued;
        let mut data = Map::new();
        data.insert("type".into(), event.into());
        data.insert("sequence_number".into(), number.into());
        match members {
            Members::These(Value::Object(members)) => data.extend(members),
            Members::These(_) => {}
            Members::Response => {
                data.insert("response".into(), json!(self.response()));
            }
            Members::Failed { code, message } => {
                let response = self.response().failed(code, message);
                data.insert("response".into(), json!(response));
            }
        }
        (event, data.into())
    }

    /// The response in its present state.
    fn response(&self) -> ResponseObject {
        let (turn, output) = (&self.live.turn, &self.output);
        ResponseObject::new(&self.model, &self.kept, turn, output)
    }
}
