//! Resumes runs that stopped, or ends them.

use crate::runs::dispatcher::{CANCEL_POLL_INTERVAL, Dispatcher};
use crate::runs::log::RunLog;
use crate::runs::refused::RunRefusal;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::TaskTracker;
use toolhold_agent::run::RecordedModules;
use toolhold_agent::run::replay::replay;
use toolhold_agent::{Driver, NoModules};
use toolhold_model::NoModel;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::image::{Image, MAX_ALL_IMAGE_BYTES};
use toolhold_runtime::agents::{Agent, RunClient};
use toolhold_runtime::resume_notes::resume_notes;
use toolhold_runtime::telemetry;
use toolhold_storage::{LeaseState, RecordError, RunRow, Source, Store};
use toolhold_telemetry::{ObservedRun, ResumeCause};
use uuid::Uuid;

/// Longest time between two looks whether the modules of a run are loaded, and its MCP servers have listed their tools.
const STARTUP_POLL_INTERVAL: Duration = Duration::from_secs(10);

impl Dispatcher {
    /// Resumes a run whose process has ended. Completes even if the caller goes away.
    pub async fn resume(&self, row: &RunRow, cause: ResumeCause) -> Result<(), RunRefusal> {
        let (this, row) = (self.clone(), row.clone());
        to_its_end(&self.inner.tasks, async move {
            this.resumed(&row).await?;
            this.telemetry().resumed(cause);
            Ok(())
        })
        .await
    }

    async fn resumed(&self, row: &RunRow) -> Result<(), RunRefusal> {
        self.inner.store.writable()?;
        // A run of a key that is valid no more does not go on.
        self.inner.rights.of_owner(&row.owner).look().await?;
        let agent = self.agent(&row.agent)?;
        self.awaits_startup(row).await?;
        let permit = self.permit(&row.owner).await?;
        permit.right().look().await?;
        let store = &self.inner.store;
        // No request has them, so they count by themselves, before they are read.
        // Bytes of results are read when a Request has them.
        let named = store.image_bytes_of(row.id).await?;
        let images = Image::memory(named.min(MAX_ALL_IMAGE_BYTES as u64));
        let kept = self.agents().registry().kept().of(row.owner.as_str());
        let kept = kept.reserve(images).map_err(RunRefusal::Memory)?;
        let (mut journal, mut events) = store.reopen(row.id).await?;
        store.restore_record(row.id, &mut events).await?;
        let mut replayed = replay(&events)?;
        drop(events);
        let behalf = RunClient {
            owner: row.owner.clone(),
            session: row.turn.map_or(row.id, |(session, _)| session).to_string(),
            tools: replayed.machine.request().allowed.clone(),
            // A key's permits never change.
            grants: store.grants_of(&row.owner).await?,
            ..RunClient::default()
        };
        let quota = Some(self.image_quota());
        let (driver, left_out) = agent.driver(&self.inner.store, &behalf, quota).await;
        // Causes, and lines that a server printed, are for the operator alone.
        for note in &left_out {
            tracing::warn!(run = %row.id, agent = agent.name, "{note}");
        }
        replayed.notes = resume_notes(&driver, &replayed, self.inner.agents.registry());
        for note in &replayed.notes {
            tracing::warn!(run = %row.id, agent = agent.name, "{note}");
        }
        let request = replayed.machine.request();
        let policy = driver.shields.policy(
            &request.settings,
            Some(&replayed.instructions),
            request.depth,
        );
        journal.under(&policy.hash);
        let observer = self.telemetry().observe(ObservedRun {
            run: row.id,
            agent: agent.name.clone(),
            conversation: row.turn.map(|(session, _)| session),
            parent: telemetry::recorded_trace(&self.inner.store, row.id).await,
        });
        let driver = permit.take(driver, row.id);
        let run = driver.resume(replayed, Box::new(journal));
        let log = RunLog::begins(row.id, &row.owner, &agent.name, true);
        // Watchers subscribe by themselves.
        drop(self.go_on(run, permit, observer, log, Some(kept)));
        Ok(())
    }

    /// # Errors
    /// [`RunRefusal::ModulesLoad`] while a module that the run works with is still being loaded;
    /// [`RunRefusal::SilentServers`] while an MCP server whose tools it has is still asked for them.
    async fn awaits_startup(&self, row: &RunRow) -> Result<(), RunRefusal> {
        let startup = &self.inner.startup;
        if startup.is_over() {
            return Ok(());
        }
        let store = &self.inner.store;
        let (first, _) = store.ends(row.id).await?;
        let EventKind::Run { tools, .. } = &first.kind else {
            return Ok(());
        };
        let registry = self.inner.agents.registry();
        let mut awaited = startup.awaited(tools, &BTreeMap::new(), registry);
        // The whole record is read only where all modules are loaded in some version, and another one may come.
        if awaited.is_empty() && startup.awaits_versions(tools, registry) {
            let mut modules = RecordedModules::at_the_begin(tools);
            let source = Source::Run(row.id);
            store
                .scan(&source, |event| modules.take(&event.kind))
                .await?;
            awaited = startup.awaited(tools, &modules.digests(), registry);
        }
        if !awaited.is_empty() {
            return Err(RunRefusal::ModulesLoad {
                names: awaited.into_iter().collect(),
            });
        }
        let silent = startup.awaited_servers_of(&row.agent, tools);
        if silent.is_empty() {
            return Ok(());
        }
        Err(RunRefusal::SilentServers {
            names: silent.into_iter().collect(),
        })
    }

    fn agent(&self, name: &str) -> Result<Arc<Agent>, RunRefusal> {
        let offered = self.inner.agents.all();
        let name = name.to_owned();
        match offered.ready.get(&name) {
            Some(agent) => Ok(agent.clone()),
            None if offered.waiting.contains_key(&name) => Err(RunRefusal::AgentWaits { name }),
            None => Err(RunRefusal::NoAgent { name }),
        }
    }

    /// Resumes all runs of a process that has ended.
    pub async fn resume_all(&self) {
        match self.inner.store.resumable().await {
            Ok(left) => self.go_on_with_each(left, ResumeCause::Start),
            Err(error) => tracing::error!(%error, "runs that were left behind cannot be found"),
        }
    }

    /// Resumes the runs that this process gave up during an outage, as soon as the database can be written
    /// again; runs for as long as it is polled. No other process takes these runs while the lease of this process
    /// holds, so it polls until it sees them.
    pub async fn resume_after_recovery(&self) {
        let store = &self.inner.store;
        loop {
            store.health().breaks().await;
            let left = loop {
                store.health().recovers().await;
                match store.resumable_here().await {
                    Ok(left) => break left,
                    Err(error) => {
                        tracing::warn!(%error, "runs that stopped here cannot be found yet");
                    }
                }
                if !self.waits(CANCEL_POLL_INTERVAL).await {
                    return;
                }
            };
            self.go_on_with_each(left, ResumeCause::Recovery);
        }
    }

    fn go_on_with_each(&self, left: Vec<RunRow>, cause: ResumeCause) {
        for row in left {
            self.spawn_resume(row, cause);
        }
    }

    /// Resumes a run that no process holds, as soon as there is a place for it.
    pub(super) fn spawn_resume(&self, row: RunRow, cause: ResumeCause) {
        let this = self.clone();
        self.inner.tasks.spawn(async move {
            let mut is_told = false;
            loop {
                match this.resume(&row, cause).await {
                    Ok(()) => tracing::info!(run = %row.id, key = row.key(), "goes on"),
                    Err(refused) if refused.may_pass() => {
                        if matches!(refused, RunRefusal::NoAgent { .. }) {
                            if !this.is_left(row.id).await {
                                return;
                            }
                            if !is_told {
                                tracing::error!(run = %row.id, key = row.key(), "cannot go on yet: {refused}");
                                is_told = true;
                            }
                        }
                        if refused.awaits_startup() && !is_told {
                            tracing::warn!(run = %row.id, key = row.key(), "waits: {refused}");
                            is_told = true;
                        }
                        if refused.awaits_startup() {
                            let registry = this.inner.agents.registry();
                            tokio::select! {
                                () = this.inner.startup.goes_on(registry) => {}
                                // One may have become ready between the look and the wait.
                                () = tokio::time::sleep(STARTUP_POLL_INTERVAL) => {}
                                () = this.inner.closing.cancelled() => return,
                            }
                        }
                        tokio::select! {
                            () = tokio::time::sleep(CANCEL_POLL_INTERVAL) => continue,
                            () = this.inner.closing.cancelled() => {}
                        }
                    }
                    // Another process took it first; or it stays for other processes.
                    Err(
                        RunRefusal::Record(RecordError::Held | RecordError::Over { .. })
                        | RunRefusal::Closing,
                    ) => {}
                    Err(RunRefusal::Right(end)) => {
                        this.end_left(row.id, Some(end.to_string()));
                    }
                    Err(error) => {
                        tracing::error!(run = %row.id, key = row.key(), %error, "cannot go on");
                    }
                }
                return;
            }
        });
    }

    /// Whether no process has resumed or ended the run. If that cannot be read, `true`.
    async fn is_left(&self, run: Uuid) -> bool {
        !matches!(
            self.inner.store.lease_state(run).await,
            Ok(LeaseState::Held | LeaseState::Ended)
        )
    }

    /// Ends a run that no process drives. Completes even if the caller goes away.
    pub async fn end(&self, run: Uuid) -> Result<(), RunRefusal> {
        let store = self.inner.store.clone();
        to_its_end(&self.inner.tasks, async move {
            cancel_orphan(&store, run, None).await
        })
        .await
    }

    /// Ends a cancelled run that this process does not drive, if its lease is free: no other process does it.
    pub(super) async fn end_if_left(&self, run: Uuid) {
        match self.inner.store.lease_state(run).await {
            Ok(LeaseState::Free) => {}
            Ok(LeaseState::Held | LeaseState::Ended) => return,
            Err(error) => {
                tracing::warn!(%run, %error, "cannot tell whether the run that is to be stopped goes on elsewhere");
                return;
            }
        }
        self.end_left(run, None);
    }

    /// Ends a run whose lease is free, as cancelled for this reason.
    fn end_left(&self, run: Uuid, reason: Option<String>) {
        let store = self.inner.store.clone();
        self.inner.tasks.spawn(async move {
            match cancel_orphan(&store, run, reason).await {
                Ok(()) => tracing::info!(%run, "was to be stopped, went on nowhere, and is ended"),
                // Another process took it first.
                Err(RunRefusal::Record(RecordError::Held | RecordError::Over { .. })) => {}
                Err(error) => tracing::warn!(%run, %error, "is to be stopped, and cannot be ended"),
            }
        });
    }
}

/// Ends a run that no process drives, as cancelled, with a reason where there is one.
///
/// # Errors
/// [`RunRefusal`]: another process took the run or ended it, or its record cannot be read or written.
pub async fn cancel_orphan(
    store: &Store,
    run: Uuid,
    reason: Option<String>,
) -> Result<(), RunRefusal> {
    let (journal, events) = store.reopen(run).await?;
    let replayed = replay(&events)?;
    let driver = Driver::new(Arc::new(NoModel), Arc::new(NoModules));
    let mut run = driver.cancel(replayed, Box::new(journal), reason);
    while run.events.recv().await.is_some() {}
    Ok(run.finished().await?)
}

/// Runs the work in a task of its own: dropping the caller must not lose a run that was already taken.
async fn to_its_end<T: Send + 'static>(
    tasks: &TaskTracker,
    work: impl Future<Output = Result<T, RunRefusal>> + Send + 'static,
) -> Result<T, RunRefusal> {
    tasks.spawn(work).await?
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn work_finishes_after_its_waiter_was_dropped() {
        let tasks = TaskTracker::new();
        let (go, goes) = oneshot::channel();
        let (done, is_done) = oneshot::channel();
        let work = to_its_end(&tasks, async move {
            goes.await.unwrap();
            done.send(()).unwrap();
            Ok(())
        });
        let waited = tokio::time::timeout(Duration::from_millis(10), work).await;
        assert!(waited.is_err(), "it went away");
        assert_eq!(tasks.len(), 1, "a server that closes waits for it");
        go.send(()).unwrap();
        is_done.await.unwrap();
    }
}
