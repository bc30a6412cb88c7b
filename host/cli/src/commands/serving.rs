//! What the commands that serve have in common: they notice from their start on what changes, keep up with
//! it, and hear when they are to stop.

use crate::commands::run::warn_of_failures;
use crate::config::Loaded;
use crate::terminal::progress::Loading;
use crate::terminal::style;
use anyhow::Result;
use std::convert::Infallible;
use tokio::signal::unix::{SignalKind, signal};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::renewal;
use toolhold_runtime::watch::{Changed, Folders, Seen, Watch};
use toolhold_sandbox::Registry;

/// What follows from the configuration, and is made anew when that changes.
pub trait Serving {
    type Made;

    /// In words, for the message that it was read again, or could not be.
    const WHAT: &'static str;

    /// # Errors
    /// What is wrong with it.
    async fn made(&self, config: &Configuration) -> Result<Self::Made>;

    /// Puts it in the place of what was there.
    fn put(&self, made: Self::Made);

    /// None of these is in any record from now on.
    fn renew_secrets(&self, secrets: Vec<(String, String)>);

    /// Files were read again, under this configuration now.
    ///
    /// # Errors
    /// What cannot be gone on without.
    async fn reloaded(&self, _: &Configuration) -> Result<()> {
        Ok(())
    }
}

/// A registry with all modules loaded, and what tells of every change from when they were looked at.
pub async fn loaded(loaded: &Loaded) -> Result<(Registry, Watch)> {
    let config = &loaded.configuration;
    let seen = Seen::now(&loaded.files());
    let registry = host::registry(config)?;
    let loading = Loading::default();
    host::load(&registry, config, None, &|event| loading.on_event(event)).await?;
    // After it was loaded: only then are there approvals to watch, too.
    let watch = watch(loaded).since(seen);
    let folder = config.modules_folder();
    if folder.exists() {
        // What changed before it was watched.
        registry.load_folder(folder, None, &|_| ()).await?;
    }
    warn_of_failures(&registry);
    Ok((registry, watch))
}

/// What tells of changes of the configuration's files and of the folders that it names, from now on.
pub fn watch(loaded: &Loaded) -> Watch {
    let config = &loaded.configuration;
    let approvals = config.approvals();
    let folders = Folders {
        modules: config.modules_folder(),
        requests: config.requests_folder(),
        approvals: approvals.folder(),
    };
    Watch::start(loaded.files(), &folders)
}

/// Loads modules and grants again when their files change, and at SIGHUP, and has `serving` follow. What is
/// wrong is said, and the last that was right goes on.
pub async fn keep_up<S: Serving>(
    loaded: &Loaded,
    mut watch: Watch,
    registry: &Registry,
    serving: &S,
) -> Result<Infallible> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut held = loaded.clone();
    loop {
        let changed = tokio::select! {
            changed = watch.changed() => changed,
            _ = hangup.recv() => Changed::Configuration,
        };
        match changed {
            Changed::Modules => renewal::modules(&held.configuration, registry).await,
            Changed::Configuration => reload(&mut held, registry, serving).await,
        }
        warn_of_failures(registry);
        serving.reloaded(&held.configuration).await?;
    }
}

async fn reload<S: Serving>(held: &mut Loaded, registry: &Registry, serving: &S) {
    let made = async |now: &Configuration| Box::pin(serving.made(now)).await;
    let renewed = async {
        let now = held.again()?;
        let (before, configuration) = (&held.configuration, now.configuration.clone());
        let put = |made| serving.put(made);
        renewal::renewed(before, configuration, registry, made, put).await?;
        Ok::<_, anyhow::Error>(now)
    };
    match Box::pin(renewed).await {
        Ok(now) => {
            serving.renew_secrets(now.configuration.secrets());
            *held = now;
            eprintln!("{} {}", style::good("reloaded:"), S::WHAT);
        }
        Err(error) => eprintln!(
            "{} {}; {} stay as they were",
            style::bad("error:"),
            style::chain(&error),
            S::WHAT
        ),
    }
}

/// Ctrl-C, or what a service manager sends.
pub async fn stopped() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed?,
        _ = terminate.recv() => {}
    }
    Ok(())
}
