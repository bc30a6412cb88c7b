//! What `toolhold eval` prints for people: attempts on stderr as they end, and tables of at most 80
//! columns on stdout when all have.

use crate::terminal::style;
use crate::terminal::style::{bad, bold, dim, good, line, plain, plural};
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use toolhold_devkit::eval::arm::Arm;
use toolhold_devkit::eval::bench::Attempt;
use toolhold_devkit::eval::report::{Comparison, Report, Total};
use toolhold_devkit::eval::set::Set;

/// Columns of a table, and of a task's id in it.
const WIDTH: usize = 80;
const TASK: usize = 28;
/// Columns of a configuration's name.
const NAME: usize = 16;
/// Characters of an answer that was wrong.
const ANSWER: usize = 120;

/// stdout is where tables go, whatever stderr is.
fn paint(colour: fn(&str) -> String, text: &str) -> String {
    if std::io::stdout().is_terminal() {
        colour(text)
    } else {
        text.to_owned()
    }
}

pub fn list(set: &Set) {
    for task in &set.tasks {
        let tools = match task.tools.join(", ") {
            none if none.is_empty() => "no tools".into(),
            tools => tools,
        };
        let head = format!("level {}, {tools}", task.level);
        println!("{}  {}", paint(bold, &task.id), paint(dim, &plain(&head)));
        for text in wrapped(&line(&task.text), WIDTH - 2) {
            println!("  {text}");
        }
    }
    println!("{}", plural(set.tasks.len() as u64, "task"));
}

pub fn head(arms: &[Arm], tasks: usize, times: u32) {
    let what = format!(
        "{}, {}",
        plural(tasks as u64, "task"),
        plural(times, "time")
    );
    eprintln!("{}", dim(&what));
    for arm in arms {
        let text = about(
            &arm.name,
            arm.model.name(),
            arm.settings.contract.name(),
            arm.config.place(),
        );
        eprintln!("{}", dim(&text));
    }
}

fn about(name: &str, model: &str, contract: &str, base_url: &str) -> String {
    plain(&format!("{name}: {model}, {contract} contract, {base_url}"))
}

/// One that ended, as number `at` of `all`.
pub fn attempt(attempt: &Attempt, at: usize, all: usize, is_comparison: bool) {
    let mark = if attempt.passed {
        good("✓")
    } else {
        bad("✗")
    };
    let width = all.to_string().len();
    let counts = &attempt.seen.counts;
    let mut who = format!("{} #{}", attempt.task, attempt.number);
    if is_comparison {
        let _ = write!(who, " {}", attempt.configuration);
    }
    let cost = format!(
        "{}, {} tokens, {}",
        plural(counts.steps, "step"),
        style::count(counts.tokens),
        style::duration(counts.duration_ms.saturating_mul(1_000)),
    );
    eprintln!("{at:>width$}/{all} {mark} {}  {}", plain(&who), dim(&cost));
    if attempt.passed {
        return;
    }
    let indent = " ".repeat(width * 2 + 4);
    let mut text = attempt.faults.join("; ");
    if attempt.seen.error.is_none() {
        let answer = attempt.seen.answer();
        let words: Vec<&str> = answer.split_whitespace().collect();
        let _ = write!(text, "; it answered: {}", cut(&words.join(" "), ANSWER));
    }
    for text in wrapped(&line(&text), WIDTH - indent.len()) {
        eprintln!("{indent}{text}");
    }
    let show = format!("toolhold show {}", attempt.seen.run);
    eprintln!("{indent}{}", dim(&show));
}

pub fn report(report: &Report<'_>) {
    println!();
    for own in &report.configurations {
        println!("{}", about(own.name, own.model, own.contract, own.base_url));
    }
    println!();
    match report.configurations.len() {
        1 => costs_by_task(report),
        _ => successes_by_task(report),
    }
    println!();
    totals(report);
    if let Some(reason) = &report.stopped {
        let made = report.attempts.len();
        let text = format!("{made} of {} attempts were made: {reason}", report.planned);
        println!("\n{}", paint(bad, &text));
    }
}

fn costs_by_task(report: &Report<'_>) {
    let head = format!(
        "{:TASK$} level success   steps   tokens      time  repairs",
        "task"
    );
    println!("{}", paint(bold, &head));
    for task in &report.tasks {
        let Some(total) = task.totals.first() else {
            continue;
        };
        println!(
            "{:TASK$} {:>5} {} {:>7} {:>8} {:>9} {:>8}",
            cut(task.id, TASK),
            task.level,
            success(total, 7),
            mean(total, |total| format!("{:.1}", total.mean_steps)),
            mean(total, tokens),
            mean(total, seconds),
            total.counts.repairs,
        );
    }
}

fn successes_by_task(report: &Report<'_>) {
    // What is left of the line, shared by the configurations.
    let room = (WIDTH - TASK - 6) / report.configurations.len() - 1;
    let width = room.min(NAME);
    let mut head = format!("{:TASK$} level", "task");
    for own in &report.configurations {
        let _ = write!(head, " {:>width$}", cut(own.name, width));
    }
    println!("{}", paint(bold, &head));
    for task in &report.tasks {
        let mut line = format!("{:TASK$} {:>5}", cut(task.id, TASK), task.level);
        for total in &task.totals {
            let _ = write!(line, " {}", success(total, width));
        }
        println!("{line}");
    }
}

fn totals(report: &Report<'_>) {
    let head = format!(
        "{:NAME$} {:>9} {:>6} {:>12} {:>7} {:>10} {:>10}",
        "configuration", "success", "rate", "95 % range", "steps", "tokens", "time"
    );
    println!("{}", paint(bold, &head));
    for own in &report.configurations {
        let total = &own.total;
        println!(
            "{:NAME$} {} {:>6} {:>12} {:>7} {:>10} {:>10}",
            cut(own.name, NAME),
            success(total, 9),
            mean(total, |total| format!("{:.0} %", total.rate * 100.0)),
            interval(total),
            mean(total, |total| format!("{:.1}", total.mean_steps)),
            mean(total, tokens),
            mean(total, seconds),
        );
    }
    println!();
    let head = format!(
        "{:NAME$} {:>7} {:>8} {:>12} {:>7} {:>9} {:>15}",
        "in all", "repairs", "unusable", "failed calls", "retries", "fallbacks", "endpoint failed"
    );
    println!("{}", paint(bold, &head));
    for own in &report.configurations {
        let counts = &own.total.counts;
        println!(
            "{:NAME$} {:>7} {:>8} {:>12} {:>7} {:>9} {:>15}",
            cut(own.name, NAME),
            counts.repairs,
            counts.unusable,
            counts.failed_calls,
            counts.retries,
            counts.fallbacks,
            own.total.endpoint_failures,
        );
    }
    comparisons(report);
}

fn comparisons(report: &Report<'_>) {
    let Some(against) = report.comparisons.first().map(|one| one.against) else {
        return;
    };
    println!();
    let head = format!(
        "{:NAME$} {:>9} {:>12} {:>7} {:>9} {:>9} {:>9}",
        "difference", "success", "tasks +/-/=", "p", "steps", "tokens", "time"
    );
    println!("{}", paint(bold, &head));
    let Some(base) = report.configurations.first().map(|own| own.total) else {
        return;
    };
    for (one, own) in report
        .comparisons
        .iter()
        .zip(report.configurations.iter().skip(1))
    {
        println!("{}", comparison(one, &base, &own.total));
    }
    let note = format!(
        "Against {}; success in percentage points. +/-/=: tasks solved more often, less often, as often; \
         p: exact sign test over these.",
        cut(against, WIDTH / 2)
    );
    for text in wrapped(&note, WIDTH) {
        println!("{}", paint(dim, &text));
    }
}

fn comparison(one: &Comparison<'_>, base: &Total, own: &Total) -> String {
    let tasks = format!("{}/{}/{}", one.better, one.worse, one.equal);
    let p = if one.p < 0.001 {
        "<0.001".into()
    } else {
        format!("{:.3}", one.p)
    };
    format!(
        "{:NAME$} {:>+9.1} {tasks:>12} {p:>7} {:>+9.1} {:>9} {:>9}",
        cut(one.name, NAME),
        one.difference * 100.0,
        own.mean_steps - base.mean_steps,
        change(base.mean_tokens, own.mean_tokens),
        change(base.mean_seconds, own.mean_seconds),
    )
}

/// 3/4, in the colour that it deserves.
fn success(total: &Total, width: usize) -> String {
    let text = format!("{}/{}", total.successes, total.attempts);
    let text = format!("{text:>width$}");
    match (total.attempts, total.successes) {
        (0, _) => format!("{:>width$}", "-"),
        (all, own) if all == own => paint(good, &text),
        (_, 0) => paint(bad, &text),
        _ => paint(style::warn, &text),
    }
}

/// Of no attempts there is no mean.
fn mean(total: &Total, text: impl Fn(&Total) -> String) -> String {
    match total.attempts {
        0 => "-".into(),
        _ => text(total),
    }
}

fn tokens(total: &Total) -> String {
    style::count(total.mean_tokens.round() as u64)
}

fn seconds(total: &Total) -> String {
    style::duration((total.mean_seconds * 1e6).round() as u64)
}

fn interval(total: &Total) -> String {
    let (low, high) = total.interval;
    format!("{:.0} to {:.0}", low * 100.0, high * 100.0)
}

fn change(from: f64, to: f64) -> String {
    if from > 0.0 {
        format!("{:+.0} %", (to / from - 1.0) * 100.0)
    } else {
        "-".into()
    }
}

fn cut(text: &str, most: usize) -> String {
    let text = line(text);
    if text.chars().count() <= most {
        return text;
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    kept + "…"
}

/// Lines of at most `width` characters, broken at spaces where there are any.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for piece in letters.chunks(width.max(1)) {
            let Some(line) = lines.last_mut() else {
                return lines;
            };
            let used = line.chars().count();
            if used > 0 && used + 1 + piece.len() > width {
                lines.push(piece.iter().collect());
            } else {
                if used > 0 {
                    line.push(' ');
                }
                line.extend(piece);
            }
        }
    }
    lines
}
