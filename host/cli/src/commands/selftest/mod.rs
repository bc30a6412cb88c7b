//! `toolhold selftest`: the hostile suite on this machine, by this binary.

mod table;

use crate::exit::Exit;
use crate::program;
use crate::terminal::{output, style};
use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use serde::Serialize;
use std::cmp::Reverse;
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};
use toolhold_admission::own_work;
use toolhold_hostile::{
    Attack, AttackOutcome, AttackVerdict, ELSEWHERE, Lab, ROWS, Scale, SuiteProgress, run, run_all,
    suite,
};
use toolhold_runtime::config::Configuration;
use toolhold_sandbox::EngineConfig;

/// Longest time of all attacks at full scale by a release build on two cores. A longer time is no failure, because a slow
/// machine or other work on it may cause it.
const MAX_FULL_TIME: Duration = Duration::from_mins(2);

/// Number of attacks that are named where all of them take too long.
const SHOWN_LONGEST: usize = 3;

#[derive(Debug, Args)]
pub struct SelftestArgs {
    /// Run only the attacks of this row of the suite; repeatable.
    #[arg(long = "row", value_name = "N")]
    rows: Vec<u8>,
    /// Use fewer repetitions and longer time limits: takes seconds instead of minutes.
    #[arg(long)]
    quick: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Run this attack in this process and print its verdict: what the command does for each attack.
    #[arg(long, value_name = "NAME", hide = true)]
    attack: Option<String>,
}

/// Runs the suite, each attack in a process of its own, and prints the table meanwhile. Engines have the
/// configured settings.
pub async fn selftest(config: &Configuration, args: SelftestArgs) -> Result<Exit> {
    let engine = config.engine();
    // Attacks block, and each has a runtime of its own.
    own_work(move || {
        let scale = if args.quick {
            Scale::Quick
        } else {
            Scale::Full
        };
        match &args.attack {
            Some(name) => one(name, scale, engine),
            None => all(scale, &args),
        }
    })
    .await?
}

/// One attack, in this process.
fn one(name: &str, scale: Scale, engine: EngineConfig) -> Result<Exit> {
    let attack = suite().into_iter().find(|attack| attack.name == name);
    let attack = attack.ok_or_else(|| anyhow!("there is no attack {name:?}"))?;
    output::json(&run(&attack, &Lab::new(scale, engine)))?;
    std::io::stdout().flush()?;
    // What an attack left blocked in the host must not keep it alive.
    std::process::exit(0);
}

fn all(scale: Scale, args: &SelftestArgs) -> Result<Exit> {
    let attacks = chosen(suite(), &args.rows)?;
    let program = program::own().context("the system does not tell where this program is")?;
    // With this command's own flags: they choose the configuration.
    let flags: Vec<_> = std::env::args_os().skip(1).collect();
    let command = |attack: &Attack| {
        let mut command = Command::new(program);
        command.args(&flags).args(["--attack", attack.name]);
        command
    };
    let started = Instant::now();
    let mut done = Vec::with_capacity(attacks.len());
    let mut progress = table::SelftestProgress::new(attacks.len(), args.json);
    run_all(&attacks, scale, &command, |told| {
        progress.told(&told);
        if let SuiteProgress::Ended(attack, verdict) = told {
            done.push((*attack, verdict));
        }
    });
    progress.over();
    // They end in another order than they stand in.
    let place = |name| attacks.iter().position(|attack| attack.name == name);
    done.sort_by_key(|(attack, _)| place(attack.name));
    let report = Report::of(&done, args, started.elapsed());
    if args.json {
        output::json(&report)?;
    } else {
        table::foot(&report);
    }
    // Of what was not run nobody knows whether it holds.
    Ok(Exit::of(report.held == done.len()))
}

fn chosen(mut suite: Vec<Attack>, rows: &[u8]) -> Result<Vec<Attack>> {
    for row in rows {
        if let Some(other) = ELSEWHERE.iter().find(|other| other.row == *row) {
            let place = other.place;
            bail!("row {row} does not try the sandbox ({place}); choose another");
        }
        if !suite.iter().any(|attack| attack.row == *row) {
            bail!("there is no row {row}; the suite has rows 1 to {ROWS}");
        }
    }
    if !rows.is_empty() {
        suite.retain(|attack| rows.contains(&attack.row));
    }
    Ok(suite)
}

/// All results.
#[derive(Serialize)]
struct Report<'a> {
    toolhold: &'static str,
    scale: &'static str,
    duration_ms: u64,
    /// The time that all attacks may take. Absent for some of the rows, with `--quick` and from a debug build.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_duration_ms: Option<u64>,
    held: usize,
    broke: usize,
    /// Attacks that this machine could not run: their outcome is unknown.
    not_run: usize,
    attacks: Vec<JsonRow<'a>>,
    /// Rows that test other parts of Toolhold.
    elsewhere: Vec<OutsideRow>,
}

#[derive(Serialize)]
struct JsonRow<'a> {
    row: u8,
    name: &'a str,
    attack: &'a str,
    must: &'a str,
    #[serde(flatten)]
    verdict: &'a AttackVerdict,
}

#[derive(Serialize)]
struct OutsideRow {
    row: u8,
    place: &'static str,
}

impl<'a> Report<'a> {
    fn of(done: &'a [(Attack, AttackVerdict)], args: &SelftestArgs, took: Duration) -> Self {
        let count = |outcome| done.iter().filter(|(_, v)| v.outcome == outcome).count();
        let lines = done.iter().map(|(attack, verdict)| JsonRow {
            row: attack.row,
            name: attack.name,
            attack: attack.attack,
            must: attack.must,
            verdict,
        });
        let elsewhere = ELSEWHERE
            .iter()
            .filter(|_| args.rows.is_empty())
            .map(|other| OutsideRow {
                row: other.row,
                place: other.place,
            });
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let is_whole = args.rows.is_empty() && !args.quick;
        Self {
            toolhold: env!("CARGO_PKG_VERSION"),
            scale: if args.quick { "quick" } else { "full" },
            duration_ms: millis(took),
            max_duration_ms: (is_whole && !cfg!(debug_assertions)).then(|| millis(MAX_FULL_TIME)),
            held: count(AttackOutcome::Held),
            broke: count(AttackOutcome::Broke),
            not_run: count(AttackOutcome::NotRun),
            attacks: lines.collect(),
            elsewhere: elsewhere.collect(),
        }
    }

    /// Returns the words about a suite that took longer than it may, with the longest attacks.
    fn delay(&self) -> Option<String> {
        let most = self
            .max_duration_ms
            .filter(|most| self.duration_ms > *most)?;
        let mut longest: Vec<&JsonRow<'_>> = self.attacks.iter().collect();
        longest.sort_by_key(|row| Reverse(row.verdict.duration));
        let longest = longest.iter().take(SHOWN_LONGEST).map(|row| {
            let micros = u64::try_from(row.verdict.duration.as_micros()).unwrap_or(u64::MAX);
            format!("row {} {}", row.row, style::duration(micros))
        });
        let longest: Vec<String> = longest.collect();
        Some(format!(
            "that is more than the {} that it may take on two cores without other work; the longest: {}",
            style::duration(most.saturating_mul(1_000)),
            longest.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_are_chosen_by_number() {
        let rows = chosen(suite(), &[20, 1]).unwrap();
        assert!(rows.iter().all(|attack| [1, 20].contains(&attack.row)));
        let beyond = format!("rows 1 to {ROWS}");
        for (row, expect) in [(24, "does not try the sandbox"), (99, &beyond)] {
            let error = chosen(suite(), &[row]).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn without_rows_all_attacks_are_run_and_every_row_is_reported() {
        let attacks = chosen(suite(), &[]).unwrap();
        assert_eq!(attacks.len(), suite().len());
        let verdict = |outcome| AttackVerdict {
            outcome,
            observed: String::new(),
            duration: Duration::ZERO,
            memory_bytes: None,
        };
        let mut done: Vec<(Attack, AttackVerdict)> = attacks
            .into_iter()
            .map(|attack| (attack, verdict(AttackOutcome::Held)))
            .collect();
        done[0].1 = verdict(AttackOutcome::Broke);
        done[1].1 = verdict(AttackOutcome::NotRun);
        let args = SelftestArgs {
            rows: Vec::new(),
            quick: true,
            json: true,
            attack: None,
        };
        let mut report = Report::of(&done, &args, Duration::ZERO);
        assert_eq!(report.max_duration_ms, None);
        report.max_duration_ms = Some(120_000);
        report.duration_ms = 120_000;
        assert_eq!(report.delay(), None);
        report.duration_ms += 1;
        let delay = report.delay().unwrap();
        assert!(delay.contains("more than the 120.0 s"), "{delay}");
        assert_eq!(delay.matches("row ").count(), SHOWN_LONGEST, "{delay}");
        assert_eq!(
            (report.held, report.broke, report.not_run),
            (done.len() - 2, 1, 1)
        );
        let here = report.attacks.iter().map(|line| line.row);
        let listed: BTreeSet<u8> = here
            .chain(report.elsewhere.iter().map(|other| other.row))
            .collect();
        assert_eq!(listed, (1..=ROWS).collect());
    }
}
