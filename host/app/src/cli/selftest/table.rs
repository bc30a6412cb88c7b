//! The table that `toolhold selftest` prints for people: 100 columns, cells wrapped.

use super::Report;
use crate::cli::style::{self, bad, bold, dim, good, plain, warn};
use std::io::{IsTerminal as _, Write as _};
use toolhold_hostile::{Attack, Outcome, Verdict};

/// Columns of "attack" and of "what happened"; the rest takes 27.
const ATTACK: usize = 33;
const HAPPENED: usize = 40;

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
        "  row  {:ATTACK$}  {:HAPPENED$} {:>7} {:>8}",
        "attack", "what happened", "time", "memory"
    );
    println!("{}", paint(bold, line.trim_end()));
}

pub fn line(attack: &Attack, verdict: &Verdict) {
    let mark = match verdict.outcome {
        Outcome::Held => paint(good, "✓"),
        Outcome::Broke => paint(bad, "✗"),
        Outcome::NotRun => paint(warn, "–"),
    };
    let happened = match verdict.outcome {
        Outcome::Held => verdict.observed.clone(),
        Outcome::Broke => format!("{} (must: {})", verdict.observed, attack.must),
        Outcome::NotRun => format!("not run: {}", verdict.observed),
    };
    let micros = u64::try_from(verdict.duration.as_micros()).unwrap_or(u64::MAX);
    let memory = verdict.memory_bytes.map(style::bytes).unwrap_or_default();
    // Escaped first, so that a line is as wide as it looks.
    let (left, right) = (
        wrapped(attack.attack, ATTACK),
        wrapped(&plain(&happened), HAPPENED),
    );
    let empty = String::new();
    for at in 0..left.len().max(right.len()) {
        let cell = |column: &[String]| column.get(at).unwrap_or(&empty).clone();
        let (mark, row, time, memory) = if at == 0 {
            let time = style::duration(micros);
            (&*mark, attack.row.to_string(), time, &*memory)
        } else {
            (" ", String::new(), String::new(), "")
        };
        let line = format!(
            "{mark} {row:>3}  {:ATTACK$}  {:HAPPENED$} {time:>7} {memory:>8}",
            cell(&left),
            cell(&right)
        );
        println!("{}", line.trim_end());
    }
    // A pipe buffers; whoever reads it should see the attack that takes long begin.
    let _ = std::io::stdout().flush();
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
    use super::wrapped;

    #[test]
    fn cells_are_as_wide_as_they_may_be() {
        assert_eq!(wrapped("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrapped("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}
