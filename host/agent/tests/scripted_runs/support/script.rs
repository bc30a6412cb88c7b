//! A model that says what it is given to say, and keeps what it was asked.

use super::drive::PATIENCE;
use super::reply::{Beat, Reply};
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use toolhold_model::{ChatRequest, CompletionObserver, ErrorDetail, Model, ModelError};
use toolhold_protocol::completion::{ChatToolCall, Completion, ContextOverflow, Delta, Usage};

/// Says its replies one after the other, and keeps what it was asked.
#[derive(Debug, Default)]
pub struct Script {
    replies: Mutex<VecDeque<Reply>>,
    requests: Mutex<Vec<ChatRequest>>,
}

impl Script {
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Arc<Self> {
        Arc::new(Self {
            replies: Mutex::new(replies.into_iter().collect()),
            requests: Mutex::default(),
        })
    }

    pub fn asked(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Replies that were not requested.
    pub fn left(&self) -> usize {
        self.replies.lock().unwrap().len()
    }

    /// What it was sent.
    pub fn bodies(&self) -> Vec<Value> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(ChatRequest::body).collect()
    }

    /// All that the `n`th request says, as JSON text.
    pub fn told(&self, n: usize) -> String {
        let requests = self.requests.lock().unwrap();
        requests[n].body()["messages"].to_string()
    }
}

impl Model for Script {
    fn name(&self) -> &'static str {
        "script"
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async move {
            self.requests.lock().unwrap().push(request.clone());
            let reply = self.replies.lock().unwrap().pop_front();
            let reply = reply.expect("the script has a reply left");
            let mut completion = Completion {
                usage: reply
                    .tokens
                    .map(|(prompt_tokens, completion_tokens)| Usage {
                        prompt_tokens,
                        completion_tokens,
                        ..Usage::default()
                    }),
                reasoning_names: reply.member.into_iter().map(str::to_owned).collect(),
                ..Completion::default()
            };
            for beat in reply.beats {
                match beat {
                    Beat::Waits(gate) => gate.wait().await,
                    Beat::Forever => std::future::pending().await,
                    Beat::Overflows(numbers) => {
                        let (prompt, window) = numbers.unzip();
                        let overflow = ContextOverflow {
                            prompt_tokens: prompt,
                            window,
                            ..ContextOverflow::default()
                        };
                        return Err(ModelError::Status {
                            status: 400,
                            retry_after: None,
                            detail: Box::new(ErrorDetail {
                                overflow: Some(overflow),
                                ..ErrorDetail::default()
                            }),
                        });
                    }
                    Beat::Breaks => {
                        return Err(ModelError::Truncated {
                            received: Box::new(completion),
                            source: None,
                        });
                    }
                    Beat::Says(delta) => {
                        collect(&delta, &mut completion);
                        watch.delta(delta);
                        tokio::task::yield_now().await;
                    }
                }
            }
            Ok(completion)
        })
    }
}

fn collect(delta: &Delta, completion: &mut Completion) {
    match delta {
        Delta::Content(text) => completion.content.push_str(text),
        Delta::Reasoning(text) => completion.reasoning.push_str(text),
        Delta::ToolCall {
            index,
            id,
            name,
            arguments,
        } => {
            if *index == completion.tool_calls.len() {
                completion.tool_calls.push(ChatToolCall {
                    id: id.clone().unwrap_or_default(),
                    name: name.clone().unwrap_or_default(),
                    ..ChatToolCall::default()
                });
            }
            completion.tool_calls[*index].arguments.push_str(arguments);
        }
    }
}

/// Something that a test waits for.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<Notify>);

impl Gate {
    pub fn open(&self) {
        self.0.notify_one();
    }

    pub async fn wait(&self) {
        let opened = tokio::time::timeout(PATIENCE, self.0.notified()).await;
        assert!(opened.is_ok(), "nothing opened the gate");
    }
}
