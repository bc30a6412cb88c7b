//! Shared by the serving commands: watching for changes from the start, reloading, and the signal to stop.

use crate::commands::loaded::{check_names, warn_of_failures};
use crate::config::{ConfigError, Loaded, ReloadCause};
use crate::terminal::output::{self, NoteMark};
use crate::terminal::progress::Loading;
use anyhow::Result;
use std::convert::Infallible;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use toolhold_admission::own_work;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::startup::Startup;
use toolhold_runtime::watch::{Changed, ConfigDigests, ConfigWatch, Folders};
use toolhold_runtime::{host, renewal};
use toolhold_sandbox::{Policy, Registry};
use toolhold_telemetry::ReloadResult;

/// State that is built from the configuration, and built again when that changes.
pub trait Serving {
    type State;

    /// Its name in messages about reloading.
    const WHAT: &'static str;

    /// The table of the configuration that only this command reads, once, when it starts.
    const TABLE: &'static str;

    /// # Errors
    /// The configuration is wrong.
    async fn build(&self, config: &Configuration) -> Result<Self::State>;

    /// Replaces the present state.
    fn replace(&self, state: Self::State);

    /// Called when the configuration is to be read again; [`Self::read_again`] follows, unless another change comes first.
    fn reload_begins(&self) {}

    /// Counts what came of a configuration that was read again.
    fn read_again(&self, result: ReloadResult);

    /// Replaces the secrets that are removed from records.
    fn renew_secrets(&self, secrets: Vec<(String, String)>);

    /// Called after files were read again; the configuration is the present one.
    ///
    /// # Errors
    /// The process cannot continue.
    async fn reloaded(&self, _: &Configuration) -> Result<()> {
        Ok(())
    }

    /// Completes when a client asks to read the configuration again.
    async fn reload_asked(&self) {
        std::future::pending::<()>().await;
    }
}

/// Time for more modules to become ready before clients are told of the first.
const READY_PERIOD: Duration = Duration::from_millis(200);

/// What a serving command begins with.
pub struct Started {
    /// With the modules that are ready.
    pub registry: Registry,
    /// Of every change since the files were read.
    pub watch: ConfigWatch,
    pub loading: LoadTask,
}

/// Modules that are loaded while the process serves already. Dropping it stops that.
#[derive(Default)]
pub struct LoadTask {
    tasks: JoinSet<Result<()>>,
    /// Over when every module is ready or refused, also where a change of the configuration stopped this.
    pub startup: Startup,
}

impl LoadTask {
    /// Completes when every module is ready or refused.
    ///
    /// # Errors
    /// The modules folder cannot be read.
    pub async fn ended(&mut self) -> Result<()> {
        match self.tasks.join_next().await {
            Some(ended) => ended?,
            None => Ok(()),
        }
    }
}

/// Loads all modules, or those that the command needs. Those that take long are loaded on while the process serves.
pub async fn load_and_watch(loaded: &Loaded) -> Result<Started> {
    let config = &loaded.configuration;
    let seen = ConfigDigests::now(&loaded.files());
    let registry = host::registry(config)?;
    let mut loading = LoadTask::default();
    loading.tasks.spawn({
        let (registry, config, only) = (registry.clone(), config.clone(), loaded.only.clone());
        let startup = loading.startup.clone();
        async move {
            let shown = Loading::default();
            let show = |event| shown.on_event(event);
            let loaded = host::load_needed(&registry, &config, only.as_deref(), &show).await;
            startup.end_modules();
            loaded
        }
    });
    let in_time = timeout(config.start_timeout(), loading.ended()).await;
    // After loading, because the folder of pins may not exist before.
    let watch = watch(loaded).since(seen);
    let folder = config.modules_folder();
    let has_all = in_time.is_ok();
    match in_time {
        Ok(ended) => {
            ended?;
            if folder.exists() {
                // Changes between loading and watching.
                let again = registry.load_folder(folder, loaded.only.as_deref(), &|_| ());
                if let Ok(again) = timeout(config.start_timeout(), again).await {
                    again?;
                }
            }
        }
        Err(_) => output::note(
            NoteMark::Warn("loading:"),
            "some modules take longer than modules.start_timeout_ms; they are offered when they are ready",
        ),
    }
    warn_of_failures(&registry);
    if has_all {
        check_names(config, &registry, loaded.only.as_deref())?;
    }
    Ok(Started {
        registry,
        watch,
        loading,
    })
}

/// A watch of the configuration's files and of the folders that it names.
pub fn watch(loaded: &Loaded) -> ConfigWatch {
    let config = &loaded.configuration;
    let pins = config.module_pins();
    // Nothing is seen of a folder that is made later: the first approval would not reach the server.
    if let Err(error) = pins.prepare() {
        tracing::warn!(%error, "approvals are seen after a reload, because their folder cannot be made");
    }
    let folders = Folders {
        modules: Some(config.modules_folder()),
        requests: Some(config.requests_folder()),
        pins: pins.folder(),
        state: config.state_folder(),
    };
    ConfigWatch::start(loaded.files(), &folders)
}

/// A watch of what a person decides: of the configuration's files and of the pins. For a process that loads nothing again.
pub fn watch_decisions(loaded: &Loaded) -> ConfigWatch {
    let config = &loaded.configuration;
    let pins = config.module_pins();
    let folders = Folders {
        modules: None,
        requests: None,
        pins: pins.folder(),
        state: config.state_folder(),
    };
    ConfigWatch::start(loaded.files(), &folders)
}

/// The signals that a serving command answers. It listens for them before it says that it serves: a signal
/// that nothing listens for ends the process at once.
pub struct Signals {
    pub reload: Signal,
    pub stop: StopSignal,
}

/// Ctrl-C, or the signal of a service manager.
pub struct StopSignal {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// # Errors
    /// The process cannot listen for signals.
    pub fn listen() -> Result<Self> {
        Ok(Self {
            reload: signal(SignalKind::hangup())?,
            stop: StopSignal::listen()?,
        })
    }
}

impl StopSignal {
    /// # Errors
    /// As [`Signals::listen`].
    pub fn listen() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Completes with the next signal, or with one that came since this was last asked.
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// What is worked on while changes are listened for.
enum ReloadTask {
    /// Nothing: waits for a change.
    Idle,
    /// Loading that began when the process did.
    Start(LoadTask),
    Changed(Changed, ReloadCause),
}

/// Reloads modules and grants when their files change or a signal asks for it, and updates `serving`. An error
/// is logged, and the previous state stays in use.
///
/// What is taken back holds at once, whatever is loaded or built at that moment. A change of the configuration
/// stops work for an older one.
pub async fn keep_up<S: Serving>(
    loaded: &Loaded,
    started: (ConfigWatch, LoadTask),
    mut reload_signal: Signal,
    registry: &Registry,
    serving: &S,
) -> Result<Infallible> {
    let (watch, loading) = started;
    let mut changes = changes(watch);
    let mut ready = registry.changes();
    let mut held = loaded.clone();
    let startup = loading.startup.clone();
    let mut due = (!loading.tasks.is_empty()).then_some(ReloadTask::Start(loading));
    loop {
        let task = due.take().unwrap_or(ReloadTask::Idle);
        let is_idle = matches!(task, ReloadTask::Idle);
        // Who asked for what is begun now, which a change stops and begins anew.
        let running = match task {
            ReloadTask::Changed(Changed::Configuration, cause) => cause,
            _ => ReloadCause::Change,
        };
        if let ReloadTask::Start(_) = task {
            // Changes between loading and watching.
            due = Some(ReloadTask::Changed(Changed::Modules, ReloadCause::Change));
        }
        let now = {
            let mut work = Box::pin(work(task, (loaded, &held), registry, serving));
            loop {
                let (changed, cause) = tokio::select! {
                    biased;
                    Some(changed) = changes.told.recv() => (changed, ReloadCause::Change),
                    _ = reload_signal.recv() => (Changed::Configuration, ReloadCause::Person),
                    () = serving.reload_asked() => (Changed::Configuration, ReloadCause::Person),
                    () = more_ready(&mut ready) => {
                        serving.reloaded(&held.configuration).await?;
                        continue;
                    }
                    now = &mut work => break now,
                };
                let cause = cause.max(running);
                let changed = take_back(changed, cause, &held, registry).await;
                serving.reloaded(&held.configuration).await?;
                // Reading the configuration again loads the modules, too.
                if !matches!(due, Some(ReloadTask::Changed(Changed::Configuration, _))) {
                    due = Some(ReloadTask::Changed(changed, cause));
                }
                if is_idle || changed == Changed::Configuration {
                    break None;
                }
            }
        };
        if let Some(now) = now {
            held = now;
        }
        if !is_idle && due.is_none() {
            startup.end_modules();
        }
        if !is_idle {
            warn_of_failures(registry);
            serving.reloaded(&held.configuration).await?;
        }
    }
}

/// The changes that a watch reports, none of which is lost when nothing listens for a moment.
pub struct Changes {
    pub told: mpsc::Receiver<Changed>,
    /// Stops with this.
    _watch: JoinSet<()>,
}

/// Starts to report what `watch` sees.
pub fn changes(mut watch: ConfigWatch) -> Changes {
    let (tell, told) = mpsc::channel(1);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { while tell.send(watch.changed().await).await.is_ok() {} });
    Changes {
        told,
        _watch: tasks,
    }
}

/// Completes when the registry changed, and not much more followed.
async fn more_ready(ready: &mut watch::Receiver<()>) {
    if ready.changed().await.is_err() {
        return std::future::pending().await;
    }
    tokio::time::sleep(READY_PERIOD).await;
    ready.mark_unchanged();
}

/// Lets revocations hold: pins that were taken back, and grants that the new configuration gives no more.
/// It reads files, and waits for nothing that is loaded or built, and for no keyring.
///
/// Returns what to read again: the configuration, if it takes something back, whatever was reported first.
pub async fn take_back(
    changed: Changed,
    cause: ReloadCause,
    held: &Loaded,
    registry: &Registry,
) -> Changed {
    let mut due = changed;
    if let Ok(now) = policy_again(held, cause).await
        && registry.withdraw(&now).await
    {
        due = Changed::Configuration;
    }
    registry.reconsider().await;
    due
}

async fn policy_again(held: &Loaded, cause: ReloadCause) -> Result<Policy> {
    let held = held.clone();
    Ok(own_work(move || held.policy_again(cause)).await??)
}

/// Reads the configuration again. It may wait for the keyring, and nothing else waits for that.
async fn again(held: &Loaded, cause: ReloadCause) -> Result<Loaded> {
    let held = held.clone();
    Ok(own_work(move || held.again(cause)).await??)
}

/// Works on what changed. Returns the new configuration, if there is one.
async fn work<S: Serving>(
    task: ReloadTask,
    (start, held): (&Loaded, &Loaded),
    registry: &Registry,
    serving: &S,
) -> Option<Loaded> {
    match task {
        ReloadTask::Idle => std::future::pending().await,
        ReloadTask::Start(mut loading) => {
            if let Err(error) = loading.ended().await {
                tracing::error!("{error:#}");
            }
            None
        }
        ReloadTask::Changed(Changed::Modules, _) => {
            renewal::reload_modules(&held.configuration, registry, held.only.as_deref()).await;
            None
        }
        ReloadTask::Changed(Changed::Configuration, cause) => {
            reload(start, held, cause, registry, serving).await
        }
    }
}

async fn reload<S: Serving>(
    start: &Loaded,
    held: &Loaded,
    cause: ReloadCause,
    registry: &Registry,
    serving: &S,
) -> Option<Loaded> {
    serving.reload_begins();
    let made = async |now: &Configuration| Box::pin(serving.build(now)).await;
    let renewed = async {
        let mut now = again(held, cause).await?;
        if let Some(emptied) = &now.emptied {
            output::note(NoteMark::Warn("held back:"), &emptied.to_string());
        }
        if now.configuration.keep_modules_folder(&held.configuration) {
            let text = "there is another modules folder now than when this began; it is used after a restart";
            output::note(NoteMark::Warn("modules:"), text);
        }
        now.servable()?;
        let (before, configuration) = (&held.configuration, now.configuration.clone());
        let put = |made| serving.replace(made);
        let only = held.only.as_deref();
        renewal::apply(before, configuration, registry, only, made, put).await?;
        Ok::<_, anyhow::Error>(now)
    };
    match Box::pin(renewed).await {
        Ok(now) => {
            serving.read_again(match &now.emptied {
                Some(_) => ReloadResult::HeldBack,
                None => ReloadResult::Applied,
            });
            serving.renew_secrets(now.configuration.secrets());
            output::note(NoteMark::Good("reloaded:"), S::WHAT);
            let waiting = start.awaiting_restart(&now, S::TABLE);
            if !waiting.is_empty() && waiting != start.awaiting_restart(held, S::TABLE) {
                let keys: Vec<String> = waiting.into_iter().collect();
                let text = format!("changes of {} hold after a restart", keys.join(", "));
                output::note(NoteMark::Warn("restart:"), &text);
            }
            Some(now)
        }
        Err(error) => {
            serving.read_again(ReloadResult::Refused);
            // Grants that it takes back were taken back already. That stays so where only a secret or a person's trust is
            // missing: neither a locked keyring nor a module that writes the file gives anything back.
            let stays = matches!(
                error.downcast_ref(),
                Some(ConfigError::Secret(_) | ConfigError::WrittenByModules { .. })
            );
            if !stays {
                registry.govern(held.configuration.policy()).await;
            }
            output::failed(&error, &format!("; {} stay as they were", S::WHAT));
            // What changed in their folder, if this stopped a look at that.
            renewal::reload_modules(&held.configuration, registry, held.only.as_deref()).await;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[tokio::test]
    async fn a_signal_that_comes_before_it_is_asked_for_is_not_lost() {
        let mut signals = Signals::listen().unwrap();
        for name in ["TERM", "INT"] {
            let sent = Command::new("sh")
                .args(["-c", "kill -s \"$0\" $PPID", name])
                .status();
            assert!(sent.unwrap().success());
            signals.stop.received().await;
        }
    }
}
