//! `toolhold serve`: agents as an HTTP service, until a signal stops it.

use crate::commands::serving::{Serving, Signals, Started};
use crate::commands::{serving, store_wait};
use crate::config::{Flags, Loaded};
use crate::exit::Exit;
use crate::service_manager::ServiceManager;
use crate::terminal::output::{self, NoteMark};
use crate::terminal::style;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolhold_connections as connections;
use toolhold_files::{LivenessFile, living, lock_path};
use toolhold_runtime::agents::{Agents, ServedAgents};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::disks::Disks;
use toolhold_runtime::endpoints::{HeardEndpoint, ask_silent_endpoints, watch_endpoints};
use toolhold_runtime::extract::Extractors;
use toolhold_runtime::server_listing::list_servers;
use toolhold_runtime::telemetry::watch_sandbox;
use toolhold_runtime::{host, knowledge};
use toolhold_server::http::{App, connection_settings, router};
use toolhold_server::knowledge::ServedKnowledge;
use toolhold_server::retention;
use toolhold_server::runs::{Dispatcher, Limits, ServerHealth, takeover};
use toolhold_server::settings::Keys;
use toolhold_storage::{BlobQuota, Store};
use toolhold_telemetry::ReloadResult;
use uuid::Uuid;

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Address and port to listen on; port 0 takes a free one [default: serve.listen].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Have the servers that run on this machine with this configuration's state folder read their files again, as they
    /// are; it confirms a change that a server holds back.
    #[arg(long, conflicts_with = "listen")]
    reload: bool,
    /// Resume no run that a server left: each waits until it is resumed or cancelled by its id, or until a start without
    /// this option. For a database that was restored from a backup.
    #[arg(long, conflicts_with = "reload")]
    hold_runs: bool,
    #[command(flatten)]
    endpoint: super::endpoint::EndpointArgs,
}

/// The folder in which each server has a file as long as it lives. Its name begins with the server's process id; process
/// ids alone are no names, because each container has its own.
fn servers(config: &Configuration) -> PathBuf {
    config.state_folder().join("servers")
}

/// Signals the servers of this state folder that they are to read their files again.
fn reload(config: &Configuration) -> Result<Exit> {
    let folder = servers(config);
    let mut told = 0_u32;
    for name in living(&folder) {
        let id = name.split('-').next().unwrap_or_default();
        let process = id.parse().ok().and_then(Pid::from_raw);
        let Some(process) = process.filter(|_| has_open(id, &folder, &name)) else {
            let text = format!("{name} in {} is of no process here", folder.display());
            output::note(NoteMark::Warn("left out:"), &text);
            continue;
        };
        kill_process(process, Signal::HUP).with_context(|| format!("process {id}"))?;
        println!("process {id} reads its files again; its log tells the outcome");
        told += 1;
    }
    if told == 0 {
        bail!(
            "no server runs with the state folder {}",
            config.state_folder().display()
        );
    }
    Ok(Exit::Ok)
}

/// Whether the process has the file of this name open. A process of another container may have the id of one here. Systems
/// other than Linux do not say it, and the id is believed.
fn has_open(id: &str, folder: &Path, name: &str) -> bool {
    let Ok(open) = std::fs::read_dir(format!("/proc/{id}/fd")) else {
        return !cfg!(target_os = "linux");
    };
    let Ok(path) = lock_path(folder, name).canonicalize() else {
        return false;
    };
    let mut files = open.flatten();
    files.any(|entry| std::fs::read_link(entry.path()).is_ok_and(|file| file == path))
}

impl ServeArgs {
    pub fn put(&self, flags: &mut Flags) {
        flags.set("--listen", "serve.listen", self.listen.clone());
        self.endpoint.put(flags);
    }
}

pub async fn serve(args: &ServeArgs, loaded: &Loaded) -> Result<Exit> {
    let (config, serve) = (&loaded.configuration, &loaded.serve);
    if args.reload {
        return reload(config);
    }
    let manager = ServiceManager::of_environment();
    // Before all that takes long: the first process of a container gets no signal that it does not listen for.
    let Signals {
        reload,
        stop: mut stop_signal,
    } = Signals::listen()?;
    let started = tokio::select! {
        started = Box::pin(serving::load_and_watch(loaded)) => started?,
        () = stop_signal.received() => {
            manager.stopping();
            return Ok(Exit::Ok);
        }
    };
    let Started {
        registry,
        watch,
        loading,
    } = started;
    let listener = connections::listen(serve.listen).await;
    let listener = listener.with_context(|| {
        format!(
            "{} cannot be listened at; choose another with --listen",
            serve.listen
        )
    })?;
    let address = listener.local_addr()?;
    let socket = listener.into_std()?;
    let beating = manager.clone();
    tokio::spawn(async move { beating.keep_alive().await });
    let telemetry = host::telemetry(config, true)?;
    let bounds = || connection_settings(&telemetry, serve.connections);
    let prepared = async {
        let (store, waiting) = store_wait::open(config, &bounds, &socket, &manager).await?;
        // The model's files are read once, for the API and the runs.
        let knowledge = knowledge::open(
            config,
            store.clone(),
            toolhold_knowledge::Settings::served(),
        );
        let knowledge = Arc::new(knowledge.await?);
        let startup = &loading.startup;
        let agents = Agents::eventually(config, registry, Some(knowledge.clone()), startup.clone());
        let agents = Arc::new(Box::pin(agents).await?);
        tokio::spawn(list_servers(&agents, startup));
        let needs_key = match serve.keys {
            Keys::Always => true,
            Keys::Never => false,
            Keys::Auto => !serve.listen.ip().is_loopback() || store.has_keys().await?,
        };
        // An endpoint that is there has answered before the first client asks whether the server is ready.
        let heard = timeout(FIRST_ANSWER, Box::pin(ask_silent_endpoints(&agents))).await;
        let heard = heard.unwrap_or_default();
        Ok::<_, anyhow::Error>((store, waiting, knowledge, agents, needs_key, heard))
    };
    let (store, waiting, knowledge, agents, needs_key, heard) = tokio::select! {
        prepared = Box::pin(prepared) => prepared?,
        () = stop_signal.received() => {
            manager.stopping();
            return Ok(Exit::Ok);
        }
    };
    let limits = Limits {
        places: serve.concurrent_runs,
        places_of_one: serve.key_concurrent_runs,
        waiting: serve.waiting_runs,
        patience: serve.queue_timeout(),
        images: BlobQuota {
            owner: serve.key_image_bytes,
            all: serve.image_bytes,
        },
    };
    watch_sandbox(&telemetry, agents.registry());
    watch_endpoints(&telemetry, &agents);
    let disks = Disks::default();
    let dispatcher = Dispatcher::new(
        store,
        agents.clone(),
        limits,
        telemetry.clone(),
        loading.startup.clone(),
        disks.clone(),
    );
    let stop = CancellationToken::new();
    if args.hold_runs {
        tell_held(dispatcher.store()).await?;
    } else {
        resume_runs(&dispatcher).await;
    }
    let others = dispatcher.clone();
    tokio::spawn(async move { others.poll_cancellations().await });
    if let Some(days) = config.keep_days() {
        let store = dispatcher.store().clone();
        tokio::spawn(async move { retention::delete_expired(&store, days).await });
    }
    if let Some(days) = config.keep_audit_days() {
        let store = dispatcher.store().clone();
        tokio::spawn(async move { retention::delete_expired_audit(&store, days).await });
    }
    let knowledge = Arc::new(ServedKnowledge::new(
        knowledge,
        Extractors::within(config.clone(), agents.registry().clone()),
    ));
    let measured = telemetry.clone();
    let (state, cache) = (
        config.state_folder().to_owned(),
        config.cache_folder().to_owned(),
    );
    tokio::spawn(async move { disks.watch(&measured, state, cache).await });
    let (store, removed) = (dispatcher.store().clone(), knowledge.clone());
    tokio::spawn(async move { removed.remove_deleted(&store).await });
    let (store, expiring) = (dispatcher.store().clone(), knowledge.clone());
    tokio::spawn(async move { retention::delete_expired_documents(&store, &expiring).await });
    let deleting = dispatcher.store().clone();
    tokio::spawn(async move { retention::give_back_space(&deleting).await });
    let (folder, id) = (servers(config), std::process::id());
    let own = LivenessFile::create(&folder, &format!("{id}-{}", Uuid::now_v7()));
    if let Err(error) = &own {
        let text = format!(
            "`serve --reload` cannot find this server: {}: {error}",
            folder.display()
        );
        output::note(NoteMark::Warn("note:"), &text);
    }
    let router = router(
        App::new(dispatcher.clone(), knowledge, config, serve),
        serve,
    );
    if let Some(waiting) = waiting {
        waiting.end().await;
    }
    let served = tokio::spawn(connections::serve(
        store_wait::listen_on(&socket)?,
        router,
        bounds(),
        stop.clone(),
    ));
    // The service has a listener of its own, with whose end the port is free.
    drop(socket);
    let offered = agents.all();
    let names: Vec<&str> = offered.ready.keys().map(String::as_str).collect();
    let named = if names.is_empty() {
        "none yet".to_owned()
    } else {
        names.join(", ")
    };
    let keys = if needs_key {
        "keys are needed"
    } else {
        "no key is needed from this machine"
    };
    let text = format!("http://{address}/v1  agents: {named}  {keys}");
    output::note(NoteMark::Good("serving:"), &text);
    for (name, agent) in &offered.waiting {
        let reason = &agent.reason;
        let text = format!("the agent {name} is offered as soon as its endpoint answers: {reason}");
        output::note(NoteMark::Warn("waiting:"), &text);
    }
    drop(offered);
    let mut silent = BTreeSet::new();
    tell_heard(heard, &mut silent);
    let absent = agents.clone();
    tokio::spawn(async move { look_again(&absent, silent).await });
    manager.ready("serves");
    let (watched, told) = (dispatcher.clone(), manager.clone());
    tokio::spawn(async move {
        let tell = |health: &ServerHealth| told.status(&status(health));
        watched.watch_health(tell).await;
    });
    let runs = ServedRuns {
        dispatcher: &dispatcher,
        manager: &manager,
    };
    tokio::select! {
        () = stop_signal.received() => {}
        failed = Box::pin(serving::keep_up(loaded, (watch, loading), reload, agents.registry(), &runs)) => match failed? {},
    }
    manager.stopping();
    let seconds = serve.drain().as_secs();
    output::remark(&format!(
        "stopping; runs have {seconds} s to end, and go on at the next start if they do not"
    ));
    let drained = async {
        let lame_duck = tokio::time::sleep(serve.lame_duck());
        tokio::join!(dispatcher.close(serve.drain()), lame_duck)
    };
    tokio::select! {
        _ = drained => {}
        () = stop_signal.received() => dispatcher.close(Duration::ZERO).await,
    }
    // Stops accepting last: until here, clients were told to go to another server.
    stop.cancel();
    // Connections end with their runs; those that do not are closed.
    let _ = timeout(RESPONSE_GRACE, served).await;
    telemetry.close().await;
    Ok(Exit::Ok)
}

/// The server in a line, for the service manager.
fn status(health: &ServerHealth) -> String {
    match &health.obstacle {
        None => format!(
            "ready: {}; {}",
            health.endpoints.detail, health.modules.detail
        ),
        Some(obstacle) => format!("not ready: {obstacle}"),
    }
}

/// Resumes the runs that servers left, now and later.
async fn resume_runs(dispatcher: &Dispatcher) {
    dispatcher.resume_all().await;
    let gone = dispatcher.clone();
    tokio::spawn(async move { takeover::take_over(&gone).await });
    let broken = dispatcher.clone();
    tokio::spawn(async move { broken.resume_after_recovery().await });
}

/// Tells which runs do not go on because of `--hold-runs`.
async fn tell_held(store: &Store) -> Result<()> {
    let left = store.left_by_servers().await?;
    let named: Vec<String> = left
        .iter()
        .take(NAMED_RUNS)
        .map(|run| run.id.to_string())
        .collect();
    let others = if left.len() > named.len() {
        " and others"
    } else {
        ""
    };
    let which = match left.len() as u64 {
        0 => "no run was left by a server".to_owned(),
        count => format!(
            "{} left by a server: {}{others}; toolhold resume ID or POST /v1/runs/ID/resume goes on with one, toolhold \
             runs cancel ID ends it",
            style::plural(count, "run"),
            named.join(", ")
        ),
    };
    let text = format!("{which}; none goes on by itself until a start without --hold-runs");
    output::note(NoteMark::Warn("held:"), &text);
    Ok(())
}

/// Runs that the note about held ones names.
const NAMED_RUNS: usize = 8;
/// Grace period for responses after the last run has ended.
const RESPONSE_GRACE: Duration = Duration::from_secs(2);

/// The runs of the server, and the service manager that hears of reloads.
struct ServedRuns<'a> {
    dispatcher: &'a Dispatcher,
    manager: &'a ServiceManager,
}

impl Serving for ServedRuns<'_> {
    type State = ServedAgents;

    const WHAT: &'static str = "agents and grants";
    const TABLE: &'static str = "serve";

    async fn build(&self, config: &Configuration) -> Result<ServedAgents> {
        self.dispatcher.agents().made(config).await
    }

    fn replace(&self, made: ServedAgents) {
        self.dispatcher.agents().put(made);
    }

    async fn reload_asked(&self) {
        self.dispatcher.reload_asked().await;
    }

    fn reload_begins(&self) {
        self.manager.reloading();
    }

    fn read_again(&self, result: ReloadResult) {
        self.dispatcher.telemetry().reloaded(result);
        self.manager.reloaded();
    }

    fn renew_secrets(&self, secrets: Vec<(String, String)>) {
        self.dispatcher.telemetry().renew_secrets(secrets.clone());
        self.dispatcher.store().redaction().renew(secrets);
    }
}

/// Poll interval for endpoints that did not answer.
const ENDPOINT_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Time for endpoints to answer before the server says that it serves.
const FIRST_ANSWER: Duration = Duration::from_secs(2);

/// Offers agents whose endpoints answer again, and asks endpoints that have never answered, for as long as it is polled.
/// `silent`: names of those that were told.
async fn look_again(agents: &Agents, mut silent: BTreeSet<String>) {
    loop {
        tokio::time::sleep(ENDPOINT_POLL_INTERVAL).await;
        match Box::pin(agents.look_again()).await {
            Ok(names) if names.is_empty() => {}
            Ok(names) => output::note(NoteMark::Good("ready:"), &names.join(", ")),
            Err(error) => tracing::warn!("agents that wait for their endpoints: {error:#}"),
        }
        let heard = Box::pin(ask_silent_endpoints(agents)).await;
        tell_heard(heard, &mut silent);
    }
}

/// Tells of each endpoint once that it does not answer, and then that it does.
fn tell_heard(heard: Vec<HeardEndpoint>, silent: &mut BTreeSet<String>) {
    for HeardEndpoint { name, silence } in heard {
        match silence {
            Some(reason) if silent.insert(name.clone()) => {
                let text = format!("the endpoint {name} has not answered yet: {reason}");
                output::note(NoteMark::Warn("waiting:"), &text);
            }
            None if silent.remove(&name) => {
                let text = format!("the endpoint {name} answers");
                output::note(NoteMark::Good("ready:"), &text);
            }
            _ => {}
        }
    }
}
