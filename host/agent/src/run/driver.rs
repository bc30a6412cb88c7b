//! Performs what the machine asks for: the only place in the loop with I/O, time and concurrency.

use crate::error::RunError;
use crate::event::{Event, EventKind, Journal};
use crate::model::{Delta, Model};
use crate::run::machine::{Action, Input, Machine};
use crate::run::settings::RunRequest;
use crate::toolbox::{ToolCall, Toolbox};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Readers that fall further behind than this hold the run up rather than memory.
const EVENT_QUEUE: usize = 256;

/// Starts runs: a model, tools, and what they are put together with.
#[derive(Debug, Clone)]
pub struct Driver {
    pub model: Arc<dyn Model>,
    pub toolbox: Arc<dyn Toolbox>,
}

/// A run in progress.
#[derive(Debug)]
pub struct Run {
    pub id: Uuid,
    /// What happens, in order; ends after `done`.
    pub events: mpsc::Receiver<Event>,
    /// Stops the run: it still says `done`. Dropping the run stops it too.
    pub cancel: CancellationToken,
    task: JoinHandle<Result<(), RunError>>,
}

impl Run {
    /// Waits for the end of a run whose events were read.
    ///
    /// # Errors
    /// [`RunError::Journal`] if the run was stopped because its record could not be written.
    pub async fn finished(mut self) -> Result<(), RunError> {
        match (&mut self.task).await {
            Ok(result) => result,
            Err(error) => Err(RunError::Journal {
                source: std::io::Error::other(error),
            }),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Aborting drops the model's stream and every guest with it.
        self.task.abort();
    }
}

impl Driver {
    /// Starts a run. Its journal is written by the run alone.
    ///
    /// # Errors
    /// Schemas that are none, or two tools of one name: nothing was sent or called.
    pub fn start(&self, request: RunRequest, journal: Box<dyn Journal>) -> Result<Run, RunError> {
        let id = request.id;
        let timeout = request.settings.timeout;
        let parallel = request.settings.parallel_calls.max(1);
        let machine = Machine::new(request, self.model.name().to_owned(), self.toolbox.tools())?;
        let (sender, events) = mpsc::channel(EVENT_QUEUE);
        let cancel = CancellationToken::new();
        let performer = Performer {
            model: self.model.clone(),
            toolbox: self.toolbox.clone(),
            places: Arc::new(Semaphore::new(parallel)),
            out: Publisher {
                run: id,
                seq: 0,
                journal,
                sender,
            },
        };
        let task = tokio::spawn(performer.perform(machine, timeout, cancel.clone()));
        Ok(Run {
            id,
            events,
            cancel,
            task,
        })
    }
}

struct Performer {
    model: Arc<dyn Model>,
    toolbox: Arc<dyn Toolbox>,
    places: Arc<Semaphore>,
    out: Publisher,
}

impl Performer {
    async fn perform(
        mut self,
        mut machine: Machine,
        timeout: Duration,
        cancel: CancellationToken,
    ) -> Result<(), RunError> {
        let started = Instant::now();
        let deadline = tokio::time::Instant::from_std(started + timeout);
        // Unbounded in count, bounded in bytes: the client caps the size of a reply.
        let (deltas, mut written) = mpsc::unbounded_channel();
        let mut work: FuturesUnordered<BoxFuture<'static, Input>> = FuturesUnordered::new();
        let mut step = 0;
        let mut effects = machine.handle(Input::Start, Duration::ZERO);
        loop {
            for kind in effects.events {
                if let EventKind::Request { step: asked, .. } = kind {
                    step = asked;
                }
                self.out.publish(kind).await?;
            }
            for action in effects.actions {
                match action {
                    Action::Ask(request) => {
                        let (model, deltas) = (self.model.clone(), deltas.clone());
                        work.push(Box::pin(async move {
                            let mut on_delta = |delta| drop(deltas.send(delta));
                            match model.complete(&request, &mut on_delta).await {
                                Ok(completion) => Input::Replied(completion),
                                Err(error) => Input::ModelFailed(error),
                            }
                        }));
                    }
                    Action::Call(call) => work.push(Box::pin(self.call(call))),
                    Action::Finish => return Ok(()),
                }
            }
            let input = loop {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => break Input::Cancelled,
                    () = tokio::time::sleep_until(deadline) => break Input::TimedOut,
                    // Before the work: a reply is complete only after its last delta was shown.
                    Some(delta) = written.recv() => self.out.publish_delta(step, delta).await?,
                    Some(input) = work.next() => break input,
                }
            };
            while let Ok(delta) = written.try_recv() {
                self.out.publish_delta(step, delta).await?;
            }
            effects = machine.handle(input, started.elapsed());
        }
    }

    fn call(&self, call: ToolCall) -> impl Future<Output = Input> + Send + 'static {
        let (toolbox, places) = (self.toolbox.clone(), self.places.clone());
        async move {
            let _place = places.acquire_owned().await;
            let result = toolbox.call(&call).await;
            Input::Called {
                id: call.id,
                result,
            }
        }
    }
}

/// Numbers events, journals them, and only then shows them.
struct Publisher {
    run: Uuid,
    seq: u64,
    journal: Box<dyn Journal>,
    sender: mpsc::Sender<Event>,
}

impl Publisher {
    async fn publish_delta(&mut self, step: u32, delta: Delta) -> Result<(), RunError> {
        let (text, reasoning) = match delta {
            Delta::Content(text) => (text, false),
            Delta::Reasoning(text) => (text, true),
            // Native calls are shown when they are whole, by `plan`.
            Delta::ToolCall { .. } => return Ok(()),
        };
        self.publish(EventKind::Delta {
            step,
            text,
            reasoning,
        })
        .await
    }

    async fn publish(&mut self, kind: EventKind) -> Result<(), RunError> {
        let at_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let event = Event {
            run: self.run,
            seq: self.seq,
            at_ms: u64::try_from(at_ms).unwrap_or(u64::MAX),
            kind,
        };
        self.seq += 1;
        self.journal
            .append(&event)
            .await
            .map_err(|source| RunError::Journal { source })?;
        // A reader that went away does not end the run; its journal is still being written.
        let _ = self.sender.send(event).await;
        Ok(())
    }
}
