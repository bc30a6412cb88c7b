//! `toolhold build`, and building a module on its first use.

use crate::commands::serving::StopSignal;
use crate::exit::Exit;
use crate::program;
use crate::terminal::output::NoteMark;
use crate::terminal::progress::Spinner;
use crate::terminal::{output, style};
use anyhow::{Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};
use toolhold_admission::own_work;
use toolhold_devkit::build;
use toolhold_devkit::build::{BuildControl, BuildStep, DEFAULT_BUILD_TIMEOUT, Supervisor};
use toolhold_policy::is_name;
use toolhold_runtime::causes::causes;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_sandbox::Policy;
use toolhold_sandbox::base::BaseRunner;

/// The name of the command that is the supervisor of another.
pub const SUPERVISOR_COMMAND: &str = "supervise-build";

/// How long `toolhold build` may take.
#[derive(Debug, Clone, Copy, Args)]
pub struct BuildLimit {
    /// Maximum duration of each build, in seconds; then it is stopped with all that it started.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = DEFAULT_BUILD_TIMEOUT.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    timeout: u64,
}

impl BuildLimit {
    pub fn timeout(self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// Whether a person has read the sources that are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceReview {
    Read,
    /// Not read by a person. Where a module may write them, a build that runs them natively is refused.
    Unread,
}

pub async fn build(
    config: &Configuration,
    folders: &[PathBuf],
    timeout: Duration,
    dev: Option<&BaseRunner>,
    sources: SourceReview,
) -> Result<Exit> {
    let mut exit = Exit::Ok;
    for said in folders {
        let built = match located(config, said) {
            Ok(folder) => one(config, None, &folder, timeout, dev, sources).await,
            Err(error) => Err(error),
        };
        match built {
            Ok(built) => println!(
                "{} {} ({}{})",
                style::good("built"),
                built.component.display(),
                style::bytes(built.bytes),
                dev_mark(&built)
            ),
            Err(error) => {
                let text = format!("{}: {}", said.display(), causes(&error));
                output::note(NoteMark::Bad("error:"), &text);
                exit = Exit::Failed;
            }
        }
    }
    Ok(exit)
}

/// The folder as it is written, or the module of that name in the modules folder.
fn located(config: &Configuration, said: &Path) -> Result<PathBuf> {
    let is_module = |folder: &Path| folder.join("module.toml").is_file();
    if is_module(said) || !said.to_str().is_some_and(is_name) {
        return Ok(said.to_owned());
    }
    let inside = config.modules_folder().join(said);
    if !is_module(&inside) {
        let (said, inside) = (said.display(), inside.display());
        bail!(
            "there is no such module: neither {said} nor {inside} has a module.toml; --modules names another folder"
        );
    }
    Ok(inside)
}

/// What dev builds are made with.
pub fn base_runner(config: &Configuration) -> Result<BaseRunner> {
    Ok(BaseRunner::new(host::engine(config)?, host::cache(config)))
}

/// What is told of a dev build beside its size.
pub fn dev_mark(built: &build::FinishedBuild) -> &'static str {
    if built.is_dev { ", dev build" } else { "" }
}

/// Builds one module, with a spinner that shows the current step. Dropped, it stops the build. `policy` is asked which
/// modules may write its sources; absent: that of `config`.
pub async fn one(
    config: &Configuration,
    policy: Option<Policy>,
    folder: &Path,
    timeout: Duration,
    dev: Option<&BaseRunner>,
    sources: SourceReview,
) -> Result<build::FinishedBuild> {
    let spinner = Spinner::start(format!("building {}", folder.display()));
    let (folder, toolchains) = (folder.to_owned(), config.toolchains_folder());
    let supervisor = program::own().map(|program| Supervisor {
        program: program.to_owned(),
        arguments: vec![SUPERVISOR_COMMAND.into(), "--".into()],
    });
    let mut control = BuildControl::supervised(timeout, supervisor);
    if sources == SourceReview::Unread {
        let (config, folder) = (config.clone(), folder.clone());
        let writer = move || {
            let policy = policy.unwrap_or_else(|| config.policy());
            let inputs = build::inputs(&folder)?;
            let mut writers = inputs
                .iter()
                .filter_map(|input| policy.writer_within(input));
            anyhow::Ok(writers.next().map(str::to_owned))
        };
        if let Some(writer) = own_work(writer).await?? {
            control = control.of_unread(&writer);
        }
    }
    let _stopped = control.cancel_on_drop();
    let running = RunningBuild::begin();
    let dev = dev.cloned();
    let built = own_work(move || {
        let _running = running;
        build::build(
            &folder,
            &toolchains,
            &control,
            dev.as_ref(),
            &|step: BuildStep| {
                spinner.say(step.to_string());
            },
        )
    })
    .await??;
    Ok(built)
}

/// Builds that did not end yet.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Counts one in [`RUNNING`] while it lives.
struct RunningBuild;

impl RunningBuild {
    fn begin() -> Self {
        RUNNING.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for RunningBuild {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Time for a build that was stopped to remove its files.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs a command that builds modules until Ctrl-C or SIGTERM, which stop a build: its processes are in groups of their
/// own, and hear nothing of a key that is pressed at the terminal, or of its end.
pub async fn until_stopped(command: impl Future<Output = Result<Exit>>) -> Result<Exit> {
    let mut stop = StopSignal::listen()?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let exit = tokio::select! {
        ended = command => return ended,
        () = stop.received() => Exit::Interrupted,
        _ = hung_up.recv() => Exit::Interrupted,
    };
    let settled = async {
        while RUNNING.load(Ordering::SeqCst) > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    // Its processes were killed when the command was dropped; what takes longer is only a file less that is removed.
    let _ = timeout(STOP_TIMEOUT, settled).await;
    Ok(exit)
}
