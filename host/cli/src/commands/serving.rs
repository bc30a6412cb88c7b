//! Shared by the serving commands: watching for changes from the start, reloading, and the signal to stop.

use crate::commands::loaded::{self, warn_of_failures};
use crate::config::Loaded;
use crate::terminal::style;
use anyhow::Result;
use std::convert::Infallible;
use tokio::signal::unix::{Signal, SignalKind, signal};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::renewal;
use toolhold_runtime::watch::{Changed, ConfigStamps, ConfigWatch, Folders};
use toolhold_sandbox::Registry;

/// State that is built from the configuration, and built again when that changes.
pub trait Serving {
    type State;

    /// Its name in messages about reloading.
    const WHAT: &'static str;

    /// # Errors
    /// The configuration is wrong.
    async fn build(&self, config: &Configuration) -> Result<Self::State>;

    /// Replaces the present state.
    fn replace(&self, state: Self::State);

    /// Replaces the secrets that are removed from records.
    fn renew_secrets(&self, secrets: Vec<(String, String)>);

    /// Called after files were read again; the configuration is the present one.
    ///
    /// # Errors
    /// The process cannot continue.
    async fn reloaded(&self, _: &Configuration) -> Result<()> {
        Ok(())
    }
}

/// A registry with all modules, and a watch of every change since they were read.
pub async fn load_and_watch(loaded: &Loaded) -> Result<(Registry, ConfigWatch)> {
    let config = &loaded.configuration;
    let seen = ConfigStamps::now(&loaded.files());
    let registry = loaded::modules(config, None).await?;
    // After loading, because the approvals file may not exist before.
    let watch = watch(loaded).since(seen);
    let folder = config.modules_folder();
    if folder.exists() {
        // Changes between loading and watching.
        registry.load_folder(folder, None, &|_| ()).await?;
    }
    warn_of_failures(&registry);
    Ok((registry, watch))
}

/// A watch of the configuration's files and of the folders that it names.
pub fn watch(loaded: &Loaded) -> ConfigWatch {
    let config = &loaded.configuration;
    let approvals = config.approvals();
    let folders = Folders {
        modules: config.modules_folder(),
        requests: config.requests_folder(),
        approvals: approvals.folder(),
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
            stop: StopSignal {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
            },
        })
    }
}

impl StopSignal {
    /// Completes with the next signal, or with one that came since this was last asked.
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Reloads modules and grants when their files change or a signal asks for it, and updates `serving`. An error
/// is logged, and the previous state stays in use.
pub async fn keep_up<S: Serving>(
    loaded: &Loaded,
    mut watch: ConfigWatch,
    mut reload_signal: Signal,
    registry: &Registry,
    serving: &S,
) -> Result<Infallible> {
    let mut held = loaded.clone();
    loop {
        let changed = tokio::select! {
            changed = watch.changed() => changed,
            _ = reload_signal.recv() => Changed::Configuration,
        };
        match changed {
            Changed::Modules => renewal::reload_modules(&held.configuration, registry).await,
            Changed::Configuration => reload(&mut held, registry, serving).await,
        }
        warn_of_failures(registry);
        serving.reloaded(&held.configuration).await?;
    }
}

async fn reload<S: Serving>(held: &mut Loaded, registry: &Registry, serving: &S) {
    let made = async |now: &Configuration| Box::pin(serving.build(now)).await;
    let renewed = async {
        let now = held.again()?;
        now.servable()?;
        let (before, configuration) = (&held.configuration, now.configuration.clone());
        let put = |made| serving.replace(made);
        renewal::apply(before, configuration, registry, made, put).await?;
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
