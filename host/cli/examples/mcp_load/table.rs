//! The table of one run: medians of the rounds.

use crate::client::Load;
use crate::process::Used;
use crate::{Started, Titled};
use std::fmt::Write as _;
use std::time::Duration;

/// One load in one round. Times are microseconds.
#[derive(Clone, Copy)]
pub struct Measured {
    rate: f64,
    p50: f64,
    p99: f64,
    processor_time: f64,
    switches: f64,
}

impl Measured {
    pub fn of(load: &Load, used: &Used) -> Self {
        let calls = load.times.len().max(1) as f64;
        Self {
            rate: calls / load.took.as_secs_f64(),
            p50: microseconds(load.percentile(50)),
            p99: microseconds(load.percentile(99)),
            processor_time: microseconds(used.processor_time) / calls,
            switches: used.switches as f64 / calls,
        }
    }
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The loads of a server in their order, each with what its rounds measured.
#[derive(Default)]
pub struct Rounds(Vec<(String, Vec<Measured>)>);

impl Rounds {
    pub fn add(&mut self, load: &str, measured: Measured) {
        match self.0.iter_mut().find(|(name, _)| name == load) {
            Some((_, rounds)) => rounds.push(measured),
            None => self.0.push((load.to_owned(), vec![measured])),
        }
    }
}

fn median(rounds: &[Measured], of: fn(&Measured) -> f64) -> f64 {
    let mut values: Vec<_> = rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    // Of two in the middle the first, which is a measured one.
    let middle = values.len().saturating_sub(1) / 2;
    values.get(middle).copied().unwrap_or_default()
}

/// In Markdown.
pub fn of(servers: &[Started], left_out: &[Titled]) -> String {
    let mut text = String::from(
        "| server | at a time | calls/s | p50 | p99 | CPU a call | switches a call |\n\
         |---|--:|--:|--:|--:|--:|--:|",
    );
    for server in servers {
        for (load, rounds) in &server.rounds.0 {
            let time = |of: fn(&Measured) -> f64| format!("{:.0} µs", median(rounds, of));
            let _ = write!(
                text,
                "\n| {} | {load} | {:.0} | {} | {} | {} | {:.2} |",
                server.title,
                median(rounds, |it| it.rate),
                time(|it| it.p50),
                time(|it| it.p99),
                time(|it| it.processor_time),
                median(rounds, |it| it.switches),
            );
        }
    }
    for Titled { title, text: why } in left_out {
        // A line feed would end the table.
        let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = write!(text, "\n| {title} | LEFT OUT: {why} | | | | | |");
    }
    text
}
