//! Shows a run until it is over or parked.

use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::style::{bad, warn};
use crate::terminal::view::{EventPrinter, QUIET_PERIOD};
use anyhow::Result;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use toolhold_agent::Run;
use toolhold_protocol::event::{EventKind, StopReason};
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
/// cancel` cancels it. A cancelled run still has a last event.
pub async fn watch(
    mut run: Run,
    store: Option<&Store>,
    mut observer: Observer,
    mut view: EventPrinter,
) -> Result<Watched> {
    let mut ctrl_c = signal(SignalKind::interrupt())?;
    if let Some(store) = store.cloned() {
        let (cancel, id) = (run.cancel.clone(), run.id);
        tokio::spawn(async move {
            toolhold_runtime::cancellation::wait_for_request(&store, id).await;
            cancel.cancel();
        });
    }
    let mut exit = Exit::Failed;
    loop {
        let event = tokio::select! {
            event = run.events.recv() => event,
            _ = ctrl_c.recv() => match store {
                Some(store) => {
                    park(run, store, ctrl_c).await?;
                    return Ok(Watched::Interrupted);
                }
                None if run.cancel.is_cancelled() => return Ok(Watched::Interrupted),
                None => {
                    run.cancel.cancel();
                    continue;
                }
            },
            () = tokio::time::sleep(QUIET_PERIOD), if !view.is_json() => {
                view.quiet();
                continue;
            }
        };
        let Some(event) = event else {
            break;
        };
        observer.take(&event);
        view.print(&event)?;
        if let EventKind::Done { reason, .. } = event.kind {
            exit = exit_of(reason);
        }
    }
    run.finished().await?;
    Ok(Watched::Over(exit))
}

/// Stops the run where it is, so that `toolhold resume` goes on with it, unless Ctrl-C comes again.
async fn park(run: Run, store: &Store, mut ctrl_c: Signal) -> Result<()> {
    let id = run.id;
    run.stop().await;
    let row = store.run(id).await?;
    // Ctrl-C may come while the run ends, or before there is anything of it.
    if row.is_none_or(|row| row.ended.is_some()) {
        return Ok(());
    }
    let text = format!("toolhold resume {id} goes on with the run; Ctrl-C again ends it");
    output::note(&format!("\n{}", warn("parked:")), &text);
    if tokio::time::timeout(SECOND_CTRL_C, ctrl_c.recv())
        .await
        .is_ok()
    {
        cancel_orphan(store, id).await?;
        let text = format!("the run {id}; toolhold show {id} prints its steps");
        output::note(&bad("cancelled:"), &text);
    }
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
