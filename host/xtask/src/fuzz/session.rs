//! One target's run, and libFuzzer's report about it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::project;

/// Seconds for one input. The slowest input is a component, which is compiled.
const INPUT_TIMEOUT: u64 = 20;
/// MiB of this process; the engine's reserved address space does not count.
const MEMORY_MIB: u64 = 2_048;
/// Lines of a broken target's log that are shown.
const LAST_LINES: usize = 60;

pub struct Folders {
    pub binaries: PathBuf,
    /// Committed inputs, a folder a target.
    pub seeds: PathBuf,
    /// Corpora, artifacts and logs.
    pub work: PathBuf,
}

impl Folders {
    /// Inputs that reached new code, kept between runs.
    pub fn corpus(&self, target: &str) -> PathBuf {
        self.work.join("corpus").join(target)
    }
}

pub struct FuzzOutcome {
    pub target: String,
    pub is_broken: bool,
    pub summary: String,
    /// The end of the log, with the reason and the path of the input, where it is broken.
    pub last_words: String,
}

pub fn run(
    folders: &Folders,
    target: &str,
    time: Duration,
    seed: Option<u32>,
) -> Result<FuzzOutcome> {
    let corpus = folders.corpus(target);
    let artifacts = folders.work.join("artifacts").join(target);
    for folder in [&corpus, &artifacts] {
        fs::create_dir_all(folder)
            .with_context(|| format!("could not make {}", folder.display()))?;
    }
    let log = folders.work.join(format!("{target}.log"));
    let file = File::create(&log).with_context(|| format!("could not write {}", log.display()))?;
    let mut fuzz = Command::new(folders.binaries.join(target));
    fuzz.args([&corpus, &folders.seeds.join(target)])
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(format!("-max_total_time={}", time.as_secs()))
        .arg(format!("-timeout={INPUT_TIMEOUT}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .args(["-print_final_stats=1", "-reload=0"])
        .args(seed.map(|seed| format!("-seed={seed}")))
        .stdout(file.try_clone()?)
        .stderr(file);
    let status = project::run(&mut fuzz)?;
    let said = fs::read(&log).with_context(|| format!("could not read {}", log.display()))?;
    Ok(outcome(
        target,
        status.success(),
        &String::from_utf8_lossy(&said),
        &log,
    ))
}

fn outcome(target: &str, is_whole: bool, said: &str, log: &Path) -> FuzzOutcome {
    let value_of = |name: &str| last_word_after(said, name).unwrap_or("?");
    let mut summary = format!(
        "{target:>10}: {} executions, {} a second, {} branches reached, {} inputs kept, {} MiB",
        value_of("stat::number_of_executed_units:"),
        value_of("stat::average_exec_per_sec:"),
        value_of(" cov:"),
        value_of(" corp:").split('/').next().unwrap_or("?"),
        value_of("stat::peak_rss_mb:"),
    );
    if !is_whole {
        let _ = write!(summary, "; BROKEN, see {}", log.display());
    }
    let lines: Vec<_> = said.lines().collect();
    FuzzOutcome {
        target: target.to_owned(),
        is_broken: !is_whole,
        summary,
        last_words: lines[lines.len().saturating_sub(LAST_LINES)..].join("\n"),
    }
}

fn last_word_after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.rsplit_once(name)?;
    rest.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
#2\tINITED cov: 10 ft: 11 corp: 2/12b exec/s: 0 rss: 30Mb
#900\tDONE   cov: 34 ft: 60 corp: 12/80b lim: 4 exec/s: 0 rss: 31Mb
stat::number_of_executed_units: 900
stat::average_exec_per_sec:     450
stat::new_units_added:          10
stat::slowest_unit_time_sec:    0
stat::peak_rss_mb:              31
";

    #[test]
    fn the_last_of_each_number_counts() {
        let outcome = outcome("load", true, SAID, Path::new("load.log"));
        assert_eq!(
            outcome.summary.trim(),
            "load: 900 executions, 450 a second, 34 branches reached, 12 inputs kept, 31 MiB"
        );
    }

    #[test]
    fn a_broken_target_says_where_to_look() {
        let said = format!("{SAID}Test unit written to artifacts/load/crash-1\n");
        let outcome = outcome("load", false, &said, Path::new("load.log"));
        assert!(outcome.is_broken);
        assert!(outcome.summary.ends_with("BROKEN, see load.log"));
        assert!(outcome.last_words.ends_with("crash-1"));
    }
}
