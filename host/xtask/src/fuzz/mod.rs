//! `cargo xtask fuzz`: builds the targets of `host/fuzz` with libFuzzer and runs them, on the stable
//! compiler and with the dependencies that are compiled already (see [`instrument`]).

pub mod instrument;
mod session;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::workspace::{self, Crate};
use crate::{interrupt, narrate, project};
use session::{Folders, FuzzOutcome};

#[derive(Args, Debug)]
#[command(
    after_help = "Without --seed every run tries other inputs: cargo xtask fuzz --minutes 60 looks for new \
    faults and may be started by hand anywhere. With --seed, as .ci/run does, a change is judged by what it changed.\n\n\
    Inputs are kept in the target folder, under fuzz/corpus/TARGET, so that each run \
    begins where the last one ended; what breaks a target, under fuzz/artifacts/TARGET. A run with a seed \
    begins anew, under fuzz/seeded.\n\n\
    With a nightly toolchain the same targets run under cargo-fuzz, with AddressSanitizer:\n  \
    cargo +nightly fuzz run TARGET --fuzz-dir host/fuzz --features libfuzzer host/fuzz/seeds/TARGET"
)]
pub struct FuzzArguments {
    /// Targets to run (default: all)
    targets: Vec<String>,
    /// Seconds that each target runs
    #[arg(long, default_value_t = 60, conflicts_with = "minutes")]
    seconds: u64,
    /// Minutes that all targets run together, in equal parts
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: Option<u64>,
    /// Targets that run at the same time (default: one per core)
    #[arg(long)]
    jobs: Option<usize>,
    /// Seed; the same seed gives the same inputs in the same order (default: random)
    // libFuzzer takes 0 for none.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    seed: Option<u32>,
}

pub fn run(arguments: &FuzzArguments) -> Result<ExitCode> {
    let crate_folder = project::root().join("host/fuzz");
    let targets = chosen(&crate_folder, &arguments.targets)?;
    narrate::line("building the fuzz targets");
    let target_folder = project::target_folder()?;
    let crates = workspace::crates(&project::root())?;
    instrument::build(&targets, &instrumented(&crates))?;
    let mut folders = Folders {
        binaries: target_folder.join("debug"),
        seeds: crate_folder.join("seeds"),
        work: target_folder.join("fuzz"),
    };
    if arguments.seed.is_some() {
        // Inputs of earlier runs would change the order of this one, so it begins with empty corpora of its own.
        folders.work.push("seeded");
        let corpora = folders.work.join("corpus");
        if corpora.exists() {
            fs::remove_dir_all(&corpora)
                .with_context(|| format!("could not remove {}", corpora.display()))?;
        }
    }
    let components = folders.corpus("load");
    if targets.iter().any(|target| target == "load") {
        instrument::smith(&folders.binaries, &components, arguments.seed)?;
    }

    let cores = thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.unwrap_or(cores).clamp(1, targets.len());
    let seconds = arguments
        .minutes
        .map_or(arguments.seconds, |all| share(all, targets.len(), jobs));
    narrate::line(&format!(
        "{} targets, {seconds} seconds each, {jobs} at a time",
        targets.len(),
    ));
    let time = Duration::from_secs(seconds);
    let outcomes = run_all(&folders, &targets, time, jobs, arguments.seed)?;
    let broken: Vec<_> = outcomes
        .iter()
        .filter(|outcome| outcome.is_broken)
        .collect();
    if broken.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    for outcome in &broken {
        narrate::block(&outcome.last_words);
    }
    let names: Vec<_> = broken
        .iter()
        .map(|outcome| outcome.target.as_str())
        .collect();
    bail!(
        "{} of {} targets broke: {} (what broke them is named above)",
        broken.len(),
        outcomes.len(),
        names.join(", ")
    )
}

/// The crates to instrument, by rustc's names: the targets' crate and its dependencies in this workspace. The
/// engine is fuzzed by its makers.
fn instrumented(crates: &[Crate]) -> Vec<String> {
    let mut names: Vec<&str> = vec!["fuzz"];
    let mut next = 0;
    while let Some(name) = names.get(next) {
        let found = crates.iter().find(|each| each.name == *name);
        for used in found.into_iter().flat_map(|each| &each.uses) {
            if !names.contains(&used.as_str()) {
                names.push(used);
            }
        }
        next += 1;
    }
    let crates = crates
        .iter()
        .filter(|each| names.contains(&each.name.as_str()));
    crates.map(|each| each.package.replace('-', "_")).collect()
}

/// Seconds per target if all targets take so many minutes together.
fn share(minutes: u64, targets: usize, jobs: usize) -> u64 {
    let rounds = targets.div_ceil(jobs) as u64;
    (minutes * 60 / rounds.max(1)).max(1)
}

/// Runs all targets, even after one failed, and prints the result of each as soon as it ends.
fn run_all(
    folders: &Folders,
    targets: &[String],
    time: Duration,
    jobs: usize,
    seed: Option<u32>,
) -> Result<Vec<FuzzOutcome>> {
    let queue = Mutex::new(targets.iter());
    let next = || queue.lock().ok().and_then(|mut queue| queue.next());
    let outcomes = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(target) = next() {
                    let outcome = session::run(folders, target, time, seed);
                    match &outcome {
                        Ok(outcome) => narrate::line(&outcome.summary),
                        Err(error) => narrate::line(&format!("{target}: {error:#}")),
                    }
                    if let Ok(mut outcomes) = outcomes.lock() {
                        outcomes.push(outcome);
                    }
                }
            });
        }
    });
    if interrupt::happened() {
        bail!("interrupted");
    }
    outcomes
        .into_inner()
        .map_err(|_| anyhow::anyhow!("a session panicked"))?
        .into_iter()
        .collect()
}

/// The named targets, or all files of `fuzz_targets/`.
fn chosen(crate_folder: &Path, wanted: &[String]) -> Result<Vec<String>> {
    let known = known(&crate_folder.join("fuzz_targets"))?;
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(name)) {
        bail!(
            "no fuzz target {unknown:?}; there are: {}",
            known.join(", ")
        );
    }
    Ok(if wanted.is_empty() {
        known
    } else {
        wanted.to_vec()
    })
}

fn known(folder: &Path) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))?;
    let mut names = entries
        .map(|entry| {
            let path: PathBuf = entry?.path();
            Ok(path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned())
        })
        .collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_of_the_targets_are_instrumented() {
        let crates = workspace::crates(&project::root()).unwrap();
        let names = instrumented(&crates);
        let has = |name: &str| names.iter().any(|it| it == name);
        assert!(has("toolhold_fuzz") && has("toolhold_sandbox"), "{names:?}");
        assert!(!has("toolhold") && !has("xtask"), "{names:?}");
    }

    #[test]
    fn minutes_are_shared_by_the_targets() {
        assert_eq!(share(10, 11, 2), 100);
        assert_eq!(share(10, 1, 1), 600);
        assert_eq!(share(1, 100, 1), 1);
    }

    #[test]
    fn an_unknown_target_is_answered_with_the_known_ones() {
        let folder = project::root().join("host/fuzz");
        let refused = chosen(&folder, &["lode".into()]).unwrap_err().to_string();
        assert!(
            refused.contains("\"lode\"") && refused.contains("load"),
            "{refused}"
        );
    }

    #[test]
    fn every_target_has_seeds() {
        let folder = project::root().join("host/fuzz");
        for target in chosen(&folder, &[]).unwrap() {
            let seeds = fs::read_dir(folder.join("seeds").join(&target));
            assert!(seeds.is_ok_and(|seeds| seeds.count() > 0), "{target}");
        }
    }
}
