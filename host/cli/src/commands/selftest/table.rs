//! The table that `toolhold selftest` prints for people: 100 columns, cells wrapped.

use super::Report;
use crate::terminal::style;
use crate::terminal::style::{bad, bold, dim, good, plain, warn};
use std::io::{IsTerminal as _, Write as _};
use toolhold_hostile::{Attack, AttackOutcome, AttackVerdict};

/// Columns of each cell; with the mark, the row and what is between them: 100.
const ATTACK: usize = 33;
const HAPPENED: usize = 38;
const HELD: &str = "✓";
/// As wide as [`style::duration`] (of less than two hours) and [`style::bytes`] get.
const TIME: usize = 8;
const MEMORY: usize = 10;

/// stdout is where the table goes, whatever stderr is.
fn paint(colour: fn(&str) -> String, text: &str) -> String {
    if std::io::stdout().is_terminal() {
        colour(text)
    } else {
        text.to_owned()
    }
}

pub fn head() {
    let line = format!(
        "  row  {:ATTACK$}  {:HAPPENED$} {:>TIME$} {:>MEMORY$}",
        "attack", "what happened", "time", "memory"
    );
    println!("{}", paint(bold, line.trim_end()));
}

pub fn line(attack: &Attack, verdict: &AttackVerdict) {
    let mark = match verdict.outcome {
        AttackOutcome::Held => paint(good, HELD),
        AttackOutcome::Broke => paint(bad, "✗"),
        AttackOutcome::NotRun => paint(warn, "–"),
    };
    for line in lines(&mark, attack, verdict) {
        println!("{line}");
    }
    // A pipe buffers; whoever reads it should see the attack that takes long begin.
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
    // Escaped first, so that a line is as wide as it looks.
    let (left, right) = (
        wrapped(attack.attack, ATTACK),
        wrapped(&plain(&happened), HAPPENED),
    );
    let empty = String::new();
    let line = |at: usize| {
        let cell = |column: &[String]| column.get(at).unwrap_or(&empty).clone();
        let (mark, row, time, memory) = if at == 0 {
            let time = style::duration(micros);
            (mark, attack.row.to_string(), time, &*memory)
        } else {
            (" ", String::new(), String::new(), "")
        };
        let line = format!(
            "{mark} {row:>3}  {:ATTACK$}  {:HAPPENED$} {time:>TIME$} {memory:>MEMORY$}",
            cell(&left),
            cell(&right)
        );
        line.trim_end().to_owned()
    };
    (0..left.len().max(right.len())).map(line).collect()
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
    if report.not_run > 0 {
        println!("what was not run is not known to hold: see the reasons above");
    }
    for other in &report.elsewhere {
        let line = format!("row {} is not part of this: {}", other.row, other.place);
        println!("{}", paint(dim, &line));
    }
}

/// Lines of at most `width` characters, broken at spaces where there are any.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for piece in letters.chunks(width) {
            let Some(line) = lines.last_mut() else {
                return lines;
            };
            let used = line.chars().count();
            if used == 0 {
                line.extend(piece);
            } else if used + 1 + piece.len() <= width {
                line.push(' ');
                line.extend(piece);
            } else {
                lines.push(piece.iter().collect());
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{HELD, lines, wrapped};
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

    #[test]
    fn cells_are_as_wide_as_they_may_be() {
        assert_eq!(wrapped("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrapped("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}
