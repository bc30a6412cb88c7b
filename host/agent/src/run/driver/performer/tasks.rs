//! The tasks of the run: each action of its machine begins one, and its end is an input of the machine.

use super::Performer;
use crate::calls::screen::{screen, screen_passages};
use crate::retrieval::retrieve;
use crate::run::counting::count;
use crate::run::driver::heard::{Listener, UpdateSender};
use crate::run::machine::{Action, Input};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{Id, JoinError};
use tokio::time::timeout;
use toolhold_model::chat::ChatRequest;
use toolhold_model::side::SideObserver;
use toolhold_model::{Model, RunContext, SideModel};
use toolhold_policy::ErrorClass;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::decision::{Decision, Pending, Verdict};
use toolhold_protocol::event::RunFailure;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::knowledge::Retrieved;
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::shield::ScreeningResult;
use toolhold_protocol::side_request::SideRole;
use toolhold_protocol::window::{Counted, WrittenSummary};

/// Time limit of a model that sums up a conversation: the run can go on with the statements alone.
const SUMMARY_TIMEOUT: Duration = Duration::from_mins(1);

/// Work of a task, kept for the case that it panics.
pub(in crate::run::driver) enum TaskKind {
    Ask,
    Call(String),
    Decide(Box<Pending>),
    /// Screens the arguments of a call, by its id, or the run itself.
    Screen(Option<String>),
    Retrieve,
    Count,
    SumUp,
}

impl Performer {
    /// Begins the task of an action. `heard` gets the pieces of a reply.
    pub(super) fn start(&mut self, action: Action, heard: &UpdateSender) {
        match action {
            Action::Ask {
                request,
                task,
                candidate,
            } => self.ask(request, &task, candidate.as_deref(), heard),
            Action::Call(work) => {
                let id = work.call.id.clone();
                let taken = if work.again {
                    Ok(())
                } else {
                    self.budget.take_call()
                };
                let call = match taken {
                    Ok(()) => self.call(*work),
                    // Calls that other calls made meanwhile took what was left.
                    Err(failure) => Box::pin(std::future::ready(Input::Called {
                        id: id.clone(),
                        result: ToolResult::failed(failure),
                    })),
                };
                self.spawn(TaskKind::Call(id), call);
            }
            Action::Decide(pending) => {
                let (decider, run) = (self.driver.decider.clone(), self.parent.id);
                self.spawn(TaskKind::Decide(pending.clone()), async move {
                    let decision = decider.decide(run, &pending).await;
                    Input::Decided {
                        id: pending.call.id,
                        decision,
                    }
                });
            }
            Action::Screen(mut screening) => {
                screening.depth = self.sink.call_depth();
                let (shields, events) = (self.driver.shields.clone(), self.events.clone());
                let call = screening.call_id();
                self.spawn(TaskKind::Screen(call.clone()), async move {
                    let (screened, said) = screen(&shields, *screening).await;
                    events.tell_all(said).await;
                    Input::Screened { call, screened }
                });
            }
            Action::Retrieve(question) => {
                let retriever = self.driver.retriever.clone();
                let (shields, events) = (self.driver.shields.clone(), self.events.clone());
                self.spawn(TaskKind::Retrieve, async move {
                    let found = retrieve(retriever.as_deref(), &question).await;
                    let attached = question.retrieval.attached.as_deref();
                    let (found, said) = screen_passages(&shields, found, attached).await;
                    events.tell_all(said).await;
                    Input::Retrieved(found)
                });
            }
            Action::Count(texts) => {
                let counter = self.driver.model.counter();
                let counted = async move { Input::Counted(count(counter, texts).await) };
                self.spawn(TaskKind::Count, counted);
            }
            Action::SumUp(request) => self.sum_up(request, heard),
            // Said by the event `done`, which was published before.
            Action::Finish => {}
        }
    }

    fn ask(
        &mut self,
        mut request: Box<ChatRequest>,
        task: &str,
        candidate: Option<&str>,
        heard: &UpdateSender,
    ) {
        if self.parent.depth > 0
            && let Some(budget) = self.budget.overdrawn()
        {
            let told = std::future::ready(Input::OutOf(budget));
            self.spawn(TaskKind::Ask, told);
            return;
        }
        let model = match candidate {
            None => Some(self.model(task)),
            Some(name) => self.driver.candidates.get(name).cloned(),
        };
        let Some(model) = model else {
            let failure = RunFailure::new(
                ErrorClass::Fatal,
                "this host does not know the model any more: [fallback] models has changed since the run began",
            );
            let failed = std::future::ready(Input::ModelFailed(failure));
            self.spawn(TaskKind::Ask, failed);
            return;
        };
        let (mut heard, end) = (Listener::new(heard.clone()), self.end.clone());
        let blobs = self.driver.blobs.clone();
        self.spawn(TaskKind::Ask, async move {
            // Until the reply is there.
            let _room = blobs.fill(&mut request).await;
            match end.until(model.complete(&request, &mut heard)).await {
                Ok(completion) => Input::Replied(Completion {
                    between_pieces_p95: heard.between_pieces_p95(),
                    ..completion
                }),
                Err(error) => Input::ModelFailed(RunFailure {
                    overflow: error.context_overflow(),
                    retry_after_ms: error.available_after().map(millis),
                    status: error.meant_status(),
                    code: error.own_code().map(str::to_owned),
                    param: error.param().map(str::to_owned),
                    took_ms: Some(millis(heard.asked.elapsed())),
                    ..RunFailure::new(error.class(), error.to_string())
                }),
            }
        });
    }

    fn sum_up(&mut self, request: Box<ChatRequest>, heard: &UpdateSender) {
        let model = self.summarizer();
        let (mut heard, end) = (Listener::new(heard.clone()), self.end.clone());
        self.spawn(TaskKind::SumUp, async move {
            let mut aside = SideObserver(&mut heard);
            let asked = end.until(model.complete(&request, &mut aside));
            Input::SummedUp(match timeout(SUMMARY_TIMEOUT, asked).await {
                Ok(Ok(completion)) if completion.content.trim().is_empty() => {
                    unwritten("it wrote nothing")
                }
                Ok(Ok(completion)) => WrittenSummary {
                    text: completion.content,
                    failure: None,
                },
                Ok(Err(error)) => unwritten(error.to_string()),
                Err(_) => {
                    let seconds = SUMMARY_TIMEOUT.as_secs();
                    unwritten(format!("it took longer than {seconds} s"))
                }
            })
        });
    }

    /// The model of the run, chosen with the first request and then kept.
    fn model(&mut self, task: &str) -> Arc<dyn Model> {
        let (model, class) = (&self.driver.model, self.class.as_deref());
        let session = self.session.get_or_insert_with(|| {
            let session = RunContext { task, class };
            model.session(&session).unwrap_or_else(|| model.clone())
        });
        session.clone()
    }

    /// The model that sums up conversations: the one that is named for it, or the run's own.
    fn summarizer(&self) -> Arc<dyn Model> {
        let own = &self.driver.model;
        self.driver.summarizer.clone().unwrap_or_else(|| {
            Arc::new(SideModel {
                role: SideRole::Summary,
                endpoint: own.name().to_owned(),
                model: own.clone(),
                price: self.parent.settings.price,
            })
        })
    }

    fn spawn(&mut self, doing: TaskKind, work: impl Future<Output = Input> + Send + 'static) {
        let task = self.work.spawn(work);
        self.doing.insert(task.id(), doing);
    }

    /// The machine's input from a task that has ended.
    pub(super) fn input(&mut self, done: Result<(Id, Input), JoinError>) -> Input {
        match done {
            Ok((id, input)) => {
                self.doing.remove(&id);
                input
            }
            Err(error) => match self.doing.remove(&error.id()) {
                Some(TaskKind::Call(id)) => Input::Called {
                    id,
                    result: ToolResult::failed(ToolFailure {
                        kind: "crash".into(),
                        class: ErrorClass::Fatal,
                        message: "the host's code for this tool crashed; do without it".into(),
                    }),
                },
                Some(TaskKind::Decide(pending)) => Input::Decided {
                    id: pending.call.id,
                    decision: Decision {
                        digest: pending.digest,
                        verdict: Verdict::Refuse {
                            reason: "the host's code that asks for decisions crashed".into(),
                        },
                        by: None,
                    },
                },
                Some(TaskKind::Screen(call)) => Input::Screened {
                    call,
                    screened: ScreeningResult::Blocked {
                        shield: "host".into(),
                        reason: "its code that asks the shields crashed".into(),
                    },
                },
                Some(TaskKind::Retrieve) => Input::Retrieved(Retrieved {
                    notes: vec!["the host's code that looks for passages crashed".into()],
                    ..Retrieved::default()
                }),
                Some(TaskKind::Count) => Input::Counted(Counted {
                    tokens: Vec::new(),
                    failure: Some("the host's code that asks for counts crashed".into()),
                }),
                Some(TaskKind::SumUp) => {
                    Input::SummedUp(unwritten("the host's code that asks for summaries crashed"))
                }
                Some(TaskKind::Ask) | None => Input::ModelFailed(RunFailure::new(
                    ErrorClass::Fatal,
                    "the host's code that asks the model crashed",
                )),
            },
        }
    }
}

fn unwritten(reason: impl Into<String>) -> WrittenSummary {
    WrittenSummary {
        text: String::new(),
        failure: Some(reason.into()),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
