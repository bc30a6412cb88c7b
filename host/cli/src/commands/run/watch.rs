//! Shows a run until it is over or parked.

use crate::commands::record::STILL_IN_LOG;
use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::style::{bad, warn};
use crate::terminal::view::{EventPrinter, QUIET_PERIOD};
use anyhow::Result;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use toolhold_agent::Run;
use toolhold_protocol::event::{Event, EventKind, StopReason};
use toolhold_server::runs::cancel_orphan;
use toolhold_storage::Store;
use toolhold_telemetry::Observer;

/// Time for a second Ctrl-C, which ends a run that the first one parked.
const SECOND_CTRL_C: Duration = Duration::from_millis(1_500);

/// How watching ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    Over(Exit),
    /// Ctrl-C stopped it; the person was told how to go on.
    Interrupted,
}

impl Watched {
    pub fn exit(self) -> Exit {
        match self {
            Self::Over(exit) => exit,
            Self::Interrupted => Exit::Interrupted,
        }
    }
}

/// Shows a run until it is over. Ctrl-C parks a recorded run, and cancels one that is not recorded; `toolhold runs
/// cancel` cancels it. A cancelled run still has a last event. From then on, the next Ctrl-C ends the process: what is
/// still to be closed may not answer.
pub async fn watch(
    run: Run,
    store: Option<&Store>,
    observer: Observer,
    view: EventPrinter,
) -> Result<Watched> {
    let mut watcher = Watcher {
        observer,
        view,
        exit: None,
    };
    let watched = Box::pin(watcher.watch(run, store)).await;
    end_process_at(1)?;
    if let (Some(store), Ok(Watched::Over(_))) = (store, &watched) {
        redact(store).await;
    }
    watched
}

/// Takes texts out of the record that were deleted or forgotten while the run needed them. After an error they go with the
/// next command that deletes something, or with the next look of a server.
pub async fn redact(store: &Store) {
    match Box::pin(store.redact_records()).await {
        Ok(redacted) if redacted.is_in_log => output::remark(STILL_IN_LOG),
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(%error, "what was forgotten could not be taken out of the run's record");
        }
    }
}

/// What is told of the events.
struct Watcher {
    observer: Observer,
    view: EventPrinter,
    /// Present after the run's last event.
    exit: Option<Exit>,
}

impl Watcher {
    async fn watch(&mut self, mut run: Run, store: Option<&Store>) -> Result<Watched> {
        let mut ctrl_c = signal(SignalKind::interrupt())?;
        if let Some(store) = store.cloned() {
            let (cancel, id) = (run.cancel.clone(), run.id);
            tokio::spawn(async move {
                toolhold_runtime::cancellation::wait_for_request(&store, id).await;
                cancel.cancel();
            });
        }
        loop {
            let event = tokio::select! {
                event = run.events.recv() => event,
                _ = ctrl_c.recv() => match store {
                    Some(store) => return self.park(run, store, ctrl_c).await,
                    None if run.cancel.is_cancelled() => return Ok(Watched::Interrupted),
                    None => {
                        run.cancel.cancel();
                        continue;
                    }
                },
                () = tokio::time::sleep(QUIET_PERIOD), if !self.view.is_json() => {
                    self.view.quiet();
                    continue;
                }
            };
            let Some(event) = event else {
                break;
            };
            self.take(&event)?;
        }
        run.finished().await?;
        Ok(Watched::Over(self.exit.unwrap_or(Exit::Failed)))
    }

    fn take(&mut self, event: &Event) -> Result<()> {
        self.observer.take(event);
        self.view.print(event)?;
        if let EventKind::Done { reason, .. } = event.kind {
            self.exit = Some(exit_of(reason));
        }
        Ok(())
    }

    /// Stops the run where it is, so that `toolhold resume` goes on with it, unless Ctrl-C comes again. What is in the
    /// record by then is shown: the run may have ended.
    async fn park(&mut self, mut run: Run, store: &Store, mut ctrl_c: Signal) -> Result<Watched> {
        end_process_at(2)?;
        let id = run.id;
        let mut events = std::mem::replace(&mut run.events, mpsc::channel(1).1);
        run.stop().await;
        while let Some(event) = events.recv().await {
            self.take(&event)?;
        }
        if let Some(exit) = self.exit {
            return Ok(Watched::Over(exit));
        }
        match store.run(id).await? {
            // There is nothing of it yet.
            None => {}
            Some(row) if row.ended.is_some() => {
                let mark = format!("\n{}", warn("over:"));
                let before = format!("the run {id} had ended; ");
                output::say_command(&mark, &before, &format!("toolhold show {id}"), " prints it");
            }
            Some(_) => {
                // Now, because nobody may ever resume it.
                if let Err(error) = store.audit_parked(id).await {
                    tracing::warn!(%error, "the calls that were interrupted are not in the audit log yet");
                }
                let (mark, command) = (
                    format!("\n{}", warn("parked:")),
                    format!("toolhold resume {id}"),
                );
                let after = " goes on with the run; Ctrl-C again ends it";
                output::say_command(&mark, "", &command, after);
                if tokio::time::timeout(SECOND_CTRL_C, ctrl_c.recv())
                    .await
                    .is_ok()
                {
                    cancel_orphan(store, id, None).await?;
                    let (before, command) =
                        (format!("the run {id}; "), format!("toolhold show {id}"));
                    let mark = bad("cancelled:");
                    output::say_command(&mark, &before, &command, " prints its steps");
                }
            }
        }
        Ok(Watched::Interrupted)
    }
}

/// Ends the process when Ctrl-C has come so often from now on.
fn end_process_at(presses: u32) -> Result<()> {
    let mut ctrl_c = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        for _ in 0..presses {
            ctrl_c.recv().await;
        }
        std::process::exit(130);
    });
    Ok(())
}

/// Cancels at Ctrl-C. A second one ends the process.
pub fn cancel_on_ctrl_c(cancel: CancellationToken) {
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            cancel.cancel();
        }
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(130);
        }
    });
}

pub fn exit_of(reason: StopReason) -> Exit {
    match reason {
        StopReason::Output | StopReason::Planned | StopReason::ToolCalls => Exit::Ok,
        StopReason::Model | StopReason::Unusable => Exit::Endpoint,
        StopReason::Cancelled => Exit::Interrupted,
        StopReason::Incomplete => Exit::Tool,
        StopReason::Blocked => Exit::Blocked,
        StopReason::MaxSteps
        | StopReason::TokenBudget
        | StopReason::MaxCost
        | StopReason::MaxToolCalls
        | StopReason::Timeout => Exit::Limit,
    }
}
