//! The table that `toolhold selftest` prints for people: 100 columns, cells wrapped.

use super::Report;
use crate::terminal::columns::{Column, wrapped_row};
use crate::terminal::output;
use crate::terminal::output::paint;
use crate::terminal::progress::LiveRow;
use crate::terminal::style;
use crate::terminal::style::{bad, bold, dim, good, warn};
use std::io::Write as _;
use toolhold_hostile::{Attack, AttackOutcome, AttackVerdict, SuiteProgress};

/// The row, the attack, what happened, the time and the memory; with the mark and what is between them: 100
/// cells. The last two are as wide as [`style::duration`] (of less than two hours) and [`style::bytes`] get.
const LAYOUT: [Column; 5] = [
    Column::Right(3),
    Column::Left(33),
    Column::Left(36),
    Column::Right(8),
    Column::Right(10),
];
const GAP: u16 = 2;
const HELD: &str = "✓";

/// The table as it grows, and below it, on a terminal, what is running.
pub struct SelftestProgress {
    row: LiveRow,
    attacks: usize,
    ended: usize,
    running: Vec<&'static str>,
    broke: usize,
    is_quiet: bool,
}

impl SelftestProgress {
    /// `is_quiet`: no table is printed.
    pub fn new(attacks: usize, is_quiet: bool) -> Self {
        if !is_quiet {
            let headings = ["row", "attack", "what happened", "time", "memory"];
            for line in wrapped_row(LAYOUT, GAP, headings) {
                output::tell(&paint(bold, &format!("  {line}")));
            }
        }
        Self {
            row: LiveRow::start(count(0, attacks)),
            attacks,
            ended: 0,
            running: Vec::new(),
            broke: 0,
            is_quiet,
        }
    }

    pub fn told(&mut self, told: &SuiteProgress<'_>) {
        match told {
            SuiteProgress::Begun(attack) => self.running.push(attack.name),
            SuiteProgress::Ended(attack, verdict) => {
                self.running.retain(|name| *name != attack.name);
                self.broke += usize::from(verdict.outcome == AttackOutcome::Broke);
                if !self.is_quiet {
                    self.row.beside(|| line(attack, verdict));
                }
                self.ended += 1;
            }
        }
        let broke = match self.broke {
            0 => String::new(),
            broke => format!("{broke} broke; "),
        };
        let running = self.running.join(", ").replace('_', " ");
        let count = count(self.ended, self.attacks);
        self.row.set(format!("{count}: {broke}now {running}"));
    }

    pub fn over(self) {
        drop(self.row);
    }
}

fn count(ended: usize, attacks: usize) -> String {
    format!("{ended} of {attacks}")
}

fn line(attack: &Attack, verdict: &AttackVerdict) {
    let mark = match verdict.outcome {
        AttackOutcome::Held => paint(good, HELD),
        AttackOutcome::Broke => paint(bad, "✗"),
        AttackOutcome::NotRun => paint(warn, "–"),
    };
    for line in lines(&mark, attack, verdict) {
        output::tell(&line);
    }
    // A pipe buffers; its reader should see when a long attack begins.
    let _ = std::io::stdout().flush();
}

fn lines(mark: &str, attack: &Attack, verdict: &AttackVerdict) -> Vec<String> {
    let happened = match verdict.outcome {
        AttackOutcome::Held => verdict.observed.clone(),
        AttackOutcome::Broke => format!("{} (must: {})", verdict.observed, attack.must),
        AttackOutcome::NotRun => format!("not run: {}", verdict.observed),
    };
    let micros = u64::try_from(verdict.duration.as_micros()).unwrap_or(u64::MAX);
    let memory = verdict.memory_bytes.map(style::bytes).unwrap_or_default();
    let row = attack.row.to_string();
    let time = style::duration(micros);
    // Escaped first, so that a line is as wide as it looks.
    let happened = style::line(&happened);
    let cells = [&row, attack.attack, &happened, &time, &memory];
    let mut lines = wrapped_row(LAYOUT, GAP, cells);
    for (at, line) in lines.iter_mut().enumerate() {
        let mark = if at == 0 { mark } else { " " };
        *line = format!("{mark} {line}");
    }
    lines
}

pub fn foot(report: &Report<'_>) {
    let text = format!(
        "\n{} held, {} broke, {} not run",
        report.held, report.broke, report.not_run
    );
    let colour = match (report.broke, report.not_run) {
        (0, 0) => good,
        (0, _) => warn,
        _ => bad,
    };
    println!("{}", paint(colour, &text));
    let took = style::duration(report.duration_ms.saturating_mul(1_000));
    let count = report.attacks.len();
    println!("{count} attacks in {took}, each in a process of its own");
    if let Some(delay) = report.delay() {
        println!("{}", paint(warn, &delay));
    }
    for (mark, outcome) in [("✗", AttackOutcome::Broke), ("–", AttackOutcome::NotRun)] {
        for row in report
            .attacks
            .iter()
            .filter(|row| row.verdict.outcome == outcome)
        {
            println!("{mark} row {}: {}", row.row, row.attack);
        }
    }
    if report.broke > 0 {
        println!("to run the attacks of a row again: toolhold selftest --row N");
    }
    if report.not_run > 0 {
        println!("what was not run is not known to hold: see the reasons above");
    }
    for other in &report.elsewhere {
        let line = format!("row {} is not part of this: {}", other.row, other.place);
        println!("{}", paint(dim, &line));
    }
}

#[cfg(test)]
mod tests {
    use super::{HELD, lines};
    use std::time::Duration;
    use toolhold_hostile::{Attack, AttackOutcome, AttackVerdict, suite};

    fn widest(attack: &Attack, micros: u64, memory_bytes: u64) -> usize {
        let verdict = AttackVerdict {
            outcome: AttackOutcome::Held,
            observed: "x".repeat(200),
            duration: Duration::from_micros(micros),
            memory_bytes: Some(memory_bytes),
        };
        let widths = lines(HELD, attack, &verdict)
            .into_iter()
            .map(|line| line.chars().count());
        widths.max().unwrap_or_default()
    }

    #[test]
    fn no_line_is_wider_than_the_table() {
        let attacks = suite();
        let attack = &attacks[0];
        let sizes = [
            0,
            1_023,
            1_024,
            1_000 << 10,
            1_048_575,
            (1 << 30) - 1,
            1 << 39,
        ];
        for memory in sizes {
            for micros in [0, 999, 238_900, 999_949, 999_950, 999_999, 7_199_999_999] {
                let width = widest(attack, micros, memory);
                assert!(width <= 100, "{micros} µs, {memory} B: {width}");
            }
        }
        assert_eq!(
            widest(attack, 1, 1_000 << 10),
            100,
            "and no column is wasted"
        );
    }
}
