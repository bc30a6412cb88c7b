//! `toolhold serve`: agents as an HTTP service, until it is told to stop.

use crate::cli::progress::Loading;
use crate::cli::run::warn_of_failures;
use crate::cli::{Exit, style};
use crate::config::{Config, Flags, Keys};
use crate::connections;
use crate::host;
use crate::renewal;
use crate::serve::http::{App, router};
use crate::serve::{Agents, Dispatcher, Limits, retention};
use crate::watch::{Changed, Seen, Watch};
use anyhow::{Context as _, Result};
use clap::Args;
use rustix::process::Signal;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Address and port; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    #[command(flatten)]
    endpoint: super::endpoint::EndpointArgs,
}

impl ServeArgs {
    pub fn put(&self, flags: &mut Flags) {
        flags.set("--listen", "serve.listen", self.listen.clone());
        self.endpoint.put(flags);
    }
}

pub async fn serve(config: &Config) -> Result<Exit> {
    // A file that may not grow (ulimit -f) is a disk that is full, and no reason to be killed.
    let _too_large = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
    let serve = config.serve.clone();
    let seen = Seen::now(config);
    let registry = host::registry(config)?;
    let loading = Loading::default();
    host::load(&registry, config, None, &|event| loading.on_event(event)).await?;
    warn_of_failures(&registry);
    let agents = Arc::new(Box::pin(Agents::eventually(config, registry)).await?);
    let store = host::store(config).await?;
    let needs_key = match serve.keys {
        Keys::Always => true,
        Keys::Never => false,
        Keys::Auto => !serve.listen.ip().is_loopback() || store.has_keys().await?,
    };
    let limits = Limits {
        places: serve.concurrent_runs,
        places_of_one: serve.key_concurrent_runs,
        waiting: serve.waiting_runs,
        patience: serve.queue_timeout(),
    };
    let telemetry = host::telemetry(config, true)?;
    let cached = agents.registry().clone();
    telemetry.watch_cache(move || cached.cache_lookups());
    let dispatcher = Dispatcher::new(store, agents.clone(), limits, telemetry.clone());
    let listener = TcpListener::bind(serve.listen).await;
    let listener = listener.with_context(|| {
        format!(
            "{} cannot be listened at; choose another with --listen",
            serve.listen
        )
    })?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    dispatcher.resume_all().await;
    let others = dispatcher.clone();
    tokio::spawn(async move { others.heed_others().await });
    let absent = agents.clone();
    tokio::spawn(async move { look_again(&absent).await });
    let broken = dispatcher.clone();
    tokio::spawn(async move { broken.outlast_the_database().await });
    if let Some(days) = config.keep_days() {
        let store = dispatcher.store().clone();
        tokio::spawn(async move { retention::keep(&store, days).await });
    }
    let router = router(App::new(dispatcher.clone(), config), &serve);
    let served = tokio::spawn(connections::serve(
        listener,
        router,
        serve.connections,
        stop.clone(),
    ));
    let offered = agents.all();
    let names: Vec<&str> = offered.ready.keys().map(String::as_str).collect();
    eprintln!(
        "{} http://{address}/v1  agents: {}  {}",
        style::good("serving:"),
        if names.is_empty() {
            "none yet".to_owned()
        } else {
            names.join(", ")
        },
        style::dim(if needs_key {
            "keys are needed"
        } else {
            "no key is needed from this machine"
        })
    );
    for (name, agent) in &offered.waiting {
        eprintln!(
            "{} the agent {name} is offered as soon as its endpoint answers: {}",
            style::warn("waiting:"),
            style::line(&agent.reason)
        );
    }
    drop(offered);
    tokio::select! {
        stopped = stopped() => stopped?,
        failed = keep_up(config, seen, &dispatcher) => match failed? {},
    }
    eprintln!(
        "{}",
        style::dim(&format!(
            "stopping; runs have {} s to end, and go on at the next start if they do not",
            serve.drain().as_secs()
        ))
    );
    let drained = async {
        let lame_duck = tokio::time::sleep(serve.lame_duck());
        tokio::join!(dispatcher.close(serve.drain()), lame_duck)
    };
    tokio::select! {
        _ = drained => {}
        again = stopped() => {
            again?;
            dispatcher.close(Duration::ZERO).await;
        }
    }
    // Only now: whoever came until here was told to go to another server.
    stop.cancel();
    // Connections end with their runs; one that does not is not waited for.
    let _ = tokio::time::timeout(LINGER, served).await;
    telemetry.close().await;
    Ok(Exit::Ok)
}

/// For answers on their way when the last run has ended.
const LINGER: Duration = Duration::from_secs(2);

/// Ctrl-C, or what a service manager sends.
async fn stopped() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed?,
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Loads modules, grants and agents again when their files change, and at SIGHUP. What is wrong is said, and
/// the last that was right goes on.
async fn keep_up(config: &Config, seen: Seen, dispatcher: &Dispatcher) -> Result<Infallible> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut watch = Watch::start(config).since(seen);
    let mut held = config.clone();
    let registry = dispatcher.agents().registry();
    loop {
        let changed = tokio::select! {
            changed = watch.changed() => changed,
            _ = hangup.recv() => Changed::Configuration,
        };
        match changed {
            Changed::Modules => renewal::modules(&held, registry).await,
            Changed::Configuration => reload(&mut held, dispatcher).await,
        }
        warn_of_failures(registry);
    }
}

async fn reload(held: &mut Config, dispatcher: &Dispatcher) {
    let agents = dispatcher.agents();
    let made = async |now: &Config| Box::pin(agents.made(now)).await;
    let renewed = renewal::renewed(held, agents.registry(), made, |made| agents.put(made));
    let renewed = Box::pin(renewed).await;
    match renewed {
        Ok(now) => {
            let secrets = now.secrets();
            dispatcher.telemetry().renew_secrets(secrets.clone());
            dispatcher.store().redaction().renew(secrets);
            *held = now;
            eprintln!("{} agents and grants", style::good("reloaded:"));
        }
        Err(error) => {
            let text = style::chain(&error);
            eprintln!(
                "{} {text}; agents and grants stay as they were",
                style::bad("error:")
            );
        }
    }
}

/// How often endpoints are asked that were away.
const LOOK: Duration = Duration::from_secs(2);

/// Has agents run whose endpoints come back, for as long as it is polled.
async fn look_again(agents: &Agents) {
    loop {
        tokio::time::sleep(LOOK).await;
        match Box::pin(agents.look_again()).await {
            Ok(names) if names.is_empty() => {}
            Ok(names) => eprintln!("{} {}", style::good("ready:"), names.join(", ")),
            Err(error) => tracing::warn!("agents that wait for their endpoints: {error:#}"),
        }
    }
}
