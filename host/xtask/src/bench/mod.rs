//! `cargo xtask bench`: the host's cost as a ratio to yardsticks of the same run. Times differ between machines
//! and between hours; the ratios are compared with the last accepted ones. The bench `servers` is a table of its own.

mod measured;
mod ratios;
mod servers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{narrate, project, workspace};
use ratios::{RATIOS, Ratio};

#[derive(Args, Debug)]
#[command(
    after_help = "Builds with optimisations, which takes long the first time, and measures for minutes: have the \
    machine do nothing else meanwhile. The accepted ratios are in host/xtask/bench-ratios.json. Neither .ci/run \
    nor cargo xtask test compares with them: on a shared machine, what runs beside moves ratios, too. They hold a few \
    with wide bounds (tests/costs.rs).\n\n\
    servers: Wassette and ACT are installed from a registry of Python packages into ~/.cache/toolhold-tools, and rmcp is \
    built. The table names what this machine cannot have, and why.\n\n\
    All benches, with criterion's own report: cargo bench -p toolhold-agent"
)]
pub struct BenchArguments {
    /// Benches to run: calls, steps, servers (default: all that have a yardstick, and servers, which is Toolhold beside
    /// other MCP servers over stdio)
    benches: Vec<String>,
    /// Fail if a ratio is worse than the accepted one by more than its bound
    #[arg(long, conflicts_with = "accept")]
    guard: bool,
    /// Accept the ratios of this run
    #[arg(long)]
    accept: bool,
    /// Measure nothing; use the results of the last run
    #[arg(long)]
    last: bool,
    /// A server to measure that this cannot install; its tool is called `show`
    #[arg(long, value_name = "TITLE: COMMAND", value_parser = servers::title_and_command)]
    server: Vec<(String, String)>,
    /// Calls one by one in a round of the servers; four times as many at once
    #[arg(long, default_value_t = 3_000)]
    calls: usize,
    /// Rounds of the servers, of whose numbers the medians are shown
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// The accepted ratios, by name.
type Accepted = BTreeMap<String, f64>;

pub fn run(arguments: &BenchArguments) -> Result<ExitCode> {
    let mut known: BTreeSet<_> = RATIOS.iter().map(|ratio| ratio.bench).collect();
    known.insert(servers::BENCH);
    let mut chosen = chosen(&known, &arguments.benches)?;
    if chosen.remove(servers::BENCH) && !arguments.last {
        servers::measure(&servers::ServersRun {
            given: &arguments.server,
            calls: arguments.calls,
            rounds: arguments.rounds,
        })?;
    }
    if chosen.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let since = if arguments.last {
        SystemTime::UNIX_EPOCH
    } else {
        let now = SystemTime::now();
        measure(&chosen)?;
        now
    };
    let times = measured::times(&project::target_folder()?.join("criterion"), since)?;
    let path = project::xtask_folder().join("bench-ratios.json");
    let mut accepted = read(&path)?;
    let ratios = RATIOS.iter().filter(|ratio| chosen.contains(ratio.bench));
    let compared: Vec<_> = ratios
        .map(|ratio| Compared::new(ratio, &times, &accepted))
        .collect();
    narrate::answer(table(&compared).trim_end());
    if arguments.accept {
        accept(&compared, &mut accepted);
        write(&path, &accepted)?;
        narrate::line(&format!("wrote {}", path.display()));
    }
    let worse: Vec<_> = compared.iter().filter(|it| it.is_worse()).collect();
    if arguments.guard && !worse.is_empty() {
        let names: Vec<_> = worse.iter().map(|it| it.ratio.name).collect();
        bail!(
            "worse than accepted: {}; if that is what it has to cost: cargo xtask bench --accept",
            names.join(", ")
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn chosen<'a>(known: &BTreeSet<&'a str>, wanted: &[String]) -> Result<BTreeSet<&'a str>> {
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(name.as_str())) {
        let known: Vec<_> = known.iter().copied().collect();
        bail!(
            "no bench {unknown:?} with a yardstick; there are: {}",
            known.join(", ")
        );
    }
    let is_wanted = |name: &&str| wanted.is_empty() || wanted.iter().any(|it| it == name);
    Ok(known.iter().copied().filter(is_wanted).collect())
}

/// Runs the benches, each in the crate that has it.
fn measure(benches: &BTreeSet<&str>) -> Result<()> {
    let crates = workspace::crates(&project::root())?;
    for bench in benches {
        let mut owners = crates
            .iter()
            .filter(|each| each.benches.iter().any(|it| it == bench));
        let owner = owners
            .next()
            .with_context(|| format!("no crate has a bench {bench}"))?;
        let mut cargo = project::cargo();
        cargo.args(["bench", "--package", &owner.package, "--bench", bench]);
        project::require(&mut cargo)?;
    }
    Ok(())
}

/// A ratio, as it is and as it was accepted.
struct Compared<'a> {
    ratio: &'a Ratio,
    /// None if one of the two was not measured, for example because a module is not built.
    now: Option<f64>,
    accepted: Option<f64>,
}

impl<'a> Compared<'a> {
    fn new(ratio: &'a Ratio, times: &BTreeMap<String, f64>, accepted: &Accepted) -> Self {
        let time = |name: &str| times.get(name).copied().filter(|time| *time > 0.0);
        Self {
            ratio,
            now: time(ratio.of).zip(time(ratio.to)).map(|(of, to)| of / to),
            accepted: accepted.get(ratio.name).copied(),
        }
    }

    fn is_worse(&self) -> bool {
        self.now
            .zip(self.accepted)
            .is_some_and(|(now, accepted)| now > accepted * self.ratio.bound)
    }

    fn verdict(&self) -> &'static str {
        match (self.now, self.accepted) {
            (None, _) => "not measured",
            (Some(_), None) => "not accepted yet",
            (Some(_), Some(_)) if self.is_worse() => "WORSE",
            (Some(now), Some(accepted)) if now * self.ratio.bound < accepted => "better",
            _ => "as accepted",
        }
    }
}

fn table(compared: &[Compared<'_>]) -> String {
    let shown = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), significant);
    let mut text = format!(
        "{:<52}{:>10}{:>10}{:>8}\n",
        "ratio", "now", "accepted", "bound"
    );
    for it in compared {
        let _ = writeln!(
            text,
            "{:<52}{:>10}{:>10}{:>8}  {}",
            it.ratio.name,
            shown(it.now),
            shown(it.accepted),
            format!("x{}", it.ratio.bound),
            it.verdict()
        );
    }
    text
}

/// Three significant digits: 1.05, 0.00213.
fn significant(number: f64) -> String {
    let decimals = (2.0 - number.log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{number:.decimals$}")
}

/// Replaces the accepted ratios by the measured ones. Unmeasured ratios stay, unless they no longer exist.
fn accept(compared: &[Compared<'_>], accepted: &mut Accepted) {
    accepted.retain(|name, _| RATIOS.iter().any(|ratio| ratio.name == name));
    for it in compared {
        if let Some(now) = it.now {
            let rounded = significant(now).parse().unwrap_or(now);
            accepted.insert(it.ratio.name.to_owned(), rounded);
        }
    }
}

fn read(path: &Path) -> Result<Accepted> {
    let text =
        fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is not names and numbers", path.display()))
}

fn write(path: &PathBuf, accepted: &Accepted) -> Result<()> {
    let text = serde_json::to_string_pretty(accepted)?;
    fs::write(path, text + "\n").with_context(|| format!("could not write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATIO: Ratio = Ratio {
        name: "a call",
        bench: "calls",
        of: "call/ours",
        to: "call/bare",
        bound: 1.2,
    };

    fn compared(ours: f64, accepted: Option<f64>) -> Compared<'static> {
        let times = [
            ("call/ours".to_owned(), ours),
            ("call/bare".to_owned(), 100.0),
        ];
        let accepted = accepted.map(|ratio| (RATIO.name.to_owned(), ratio));
        Compared::new(
            &RATIO,
            &times.into_iter().collect(),
            &accepted.into_iter().collect(),
        )
    }

    #[test]
    fn a_ratio_is_held_against_the_accepted_one() {
        for (ours, accepted, verdict, is_worse) in [
            (105.0, Some(1.0), "as accepted", false),
            (119.0, Some(1.0), "as accepted", false),
            (121.0, Some(1.0), "WORSE", true),
            (80.0, Some(1.0), "better", false),
            (500.0, None, "not accepted yet", false),
            (0.0, Some(1.0), "not measured", false),
        ] {
            let it = compared(ours, accepted);
            assert_eq!((it.verdict(), it.is_worse()), (verdict, is_worse), "{ours}");
        }
    }

    #[test]
    fn accepting_keeps_unmeasured_ratios_and_drops_unknown_ones() {
        let kept = RATIOS[1].name;
        let mut accepted: Accepted = [(kept.to_owned(), 2.0), ("gone".to_owned(), 3.0)].into();
        accept(
            &[compared(104.567, None), compared(0.0, None)],
            &mut accepted,
        );
        let expected: Accepted = [(kept.to_owned(), 2.0), ("a call".to_owned(), 1.05)].into();
        assert_eq!(accepted, expected);
    }

    #[test]
    fn the_table_shows_three_digits() {
        assert_eq!(
            [1.0512, 0.002_134, 12_345.6, 130.0].map(significant),
            ["1.05", "0.00213", "12346", "130"]
        );
        let table = table(&[compared(105.0, Some(1.0))]);
        assert!(
            table.contains(" 1.05 ") && table.ends_with("x1.2  as accepted\n"),
            "{table}"
        );
    }

    #[test]
    fn the_committed_file_is_of_our_ratios() {
        let accepted = read(&project::xtask_folder().join("bench-ratios.json")).unwrap();
        for name in accepted.keys() {
            assert!(RATIOS.iter().any(|ratio| ratio.name == name), "{name}");
        }
    }

    #[test]
    fn an_unknown_bench_is_answered_with_the_known_ones() {
        let known = ["calls", "steps"].into();
        assert_eq!(chosen(&known, &[]).unwrap(), known);
        assert_eq!(chosen(&known, &["steps".into()]).unwrap(), ["steps"].into());
        let refused = chosen(&known, &["step".into()]).unwrap_err().to_string();
        assert!(refused.contains("\"step\"") && refused.contains("calls, steps"));
    }
}
