//! `toolhold selftest`: the hostile suite on this machine, by this binary.

mod table;

use crate::exit::Exit;
use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;
use toolhold_hostile::{Attack, AttackOutcome, AttackVerdict, ELSEWHERE, Lab, Scale, run, suite};
use toolhold_runtime::config::Configuration;

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
}

/// Runs the suite and prints the table meanwhile. Engines have the configured settings.
pub async fn selftest(config: &Configuration, args: SelftestArgs) -> Result<Exit> {
    let attacks = chosen(suite(), &args.rows)?;
    let engine = config.engine();
    // Attacks block, and each has a runtime of its own.
    tokio::task::spawn_blocking(move || {
        let scale = if args.quick {
            Scale::Quick
        } else {
            Scale::Full
        };
        let lab = Lab::new(scale, engine);
        let mut done = Vec::with_capacity(attacks.len());
        if !args.json {
            table::head();
        }
        for attack in attacks {
            let verdict = run(&attack, &lab);
            if !args.json {
                table::line(&attack, &verdict);
            }
            done.push((attack, verdict));
        }
        let report = Report::of(&done, &args);
        if args.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            table::foot(&report);
        }
        Ok(if report.broke == 0 {
            Exit::Ok
        } else {
            Exit::Failed
        })
    })
    .await?
}

fn chosen(mut suite: Vec<Attack>, rows: &[u8]) -> Result<Vec<Attack>> {
    for row in rows {
        if let Some(other) = ELSEWHERE.iter().find(|other| other.row == *row) {
            let place = other.place;
            bail!("row {row} does not try the sandbox ({place}); choose another");
        }
        if !suite.iter().any(|attack| attack.row == *row) {
            bail!("there is no row {row}; the suite has rows 1 to 30");
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
    fn of(done: &'a [(Attack, AttackVerdict)], args: &SelftestArgs) -> Self {
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
        Self {
            toolhold: env!("CARGO_PKG_VERSION"),
            scale: if args.quick { "quick" } else { "full" },
            held: count(AttackOutcome::Held),
            broke: count(AttackOutcome::Broke),
            not_run: count(AttackOutcome::NotRun),
            attacks: lines.collect(),
            elsewhere: elsewhere.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_number() {
        let rows = chosen(suite(), &[20, 1]).unwrap();
        assert!(rows.iter().all(|attack| [1, 20].contains(&attack.row)));
        for (row, expect) in [(24, "does not try the sandbox"), (99, "rows 1 to 30")] {
            let error = chosen(suite(), &[row]).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }
}
