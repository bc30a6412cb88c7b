//! What `toolhold eval` prints for people: attempts on stderr as they end, and tables of at most 80
//! columns on stdout when all have.

use crate::terminal::columns::{self, Column, aligned, wrapped};
use crate::terminal::output;
use crate::terminal::output::{paint, remark};
use crate::terminal::style;
use crate::terminal::style::{bad, bold, dim, good, line, plural};
use std::fmt::Write as _;
use toolhold_devkit::eval::arm::Arm;
use toolhold_devkit::eval::bench::Attempt;
use toolhold_devkit::eval::report::{Comparison, Report, Total};
use toolhold_devkit::eval::set::Set;

/// Cells of a table's line, and of a task's id in it.
const WIDTH: u16 = 80;
const TASK: u16 = 28;
/// Begins the rows of text from a file of tasks or from a model, so that none looks like a row of a table.
const PROSE: &str = "  │ ";
const PROSE_CELLS: u16 = 4;
/// Cells of a configuration's name.
const NAME: u16 = 16;
/// Cells of an answer that was wrong.
const ANSWER: u16 = 120;

type Colour = fn(&str) -> String;

/// Characters of no width, which stand for a colour while a table is measured. No text that is shown has them:
/// [`line()`] escapes them.
const MARKS: [(char, Colour); 3] = [
    ('\u{2061}', good),
    ('\u{2062}', bad),
    ('\u{2063}', style::warn),
];
const MARK_END: char = '\u{2064}';

pub fn list(set: &Set) {
    for task in &set.tasks {
        let tools = match task.tools.join(", ") {
            none if none.is_empty() => "no tools".into(),
            tools => tools,
        };
        let head = format!("level {}, {tools}", task.level);
        output::tell(&format!(
            "{}  {}",
            paint(bold, &task.id),
            paint(dim, &line(&head))
        ));
        for text in wrapped(&line(&task.text), WIDTH - PROSE_CELLS) {
            output::tell(&format!("{PROSE}{text}"));
        }
    }
    println!("{}", plural(set.tasks.len() as u64, "task"));
}

pub fn head(arms: &[Arm], tasks: usize, times: u32) {
    let (tasks, times) = (plural(tasks as u64, "task"), plural(times, "time"));
    remark(&format!("{tasks}, {times}"));
    for arm in arms {
        let contract = arm.settings.contract.name();
        remark(&about(
            &arm.name,
            arm.model.name(),
            contract,
            arm.config.place(),
        ));
    }
}

fn about(name: &str, model: &str, contract: &str, base_url: &str) -> String {
    line(&format!("{name}: {model}, {contract} contract, {base_url}"))
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
    output::say(&format!(
        "{at:>width$}/{all} {mark} {}  {}",
        line(&who),
        dim(&cost)
    ));
    if attempt.passed {
        return;
    }
    let indent = " ".repeat(width * 2 + 4);
    let taken = u16::try_from(indent.len()).unwrap_or(WIDTH);
    let room = WIDTH.saturating_sub(taken + PROSE_CELLS).max(1);
    let mut text = attempt.faults.join("; ");
    if attempt.seen.error.is_none() {
        let answer = attempt.seen.answer();
        let words: Vec<&str> = answer.split_whitespace().collect();
        let _ = write!(text, "; it answered: {}", cut(&words.join(" "), ANSWER));
    }
    for text in wrapped(&line(&text), room) {
        output::say(&format!("{indent}{PROSE}{text}"));
    }
    let show = format!("toolhold show {}", attempt.seen.run);
    // As it is: a command to copy is not broken.
    output::say_whole(&format!("{indent}{}", dim(&show)));
}

pub fn report(report: &Report<'_>) {
    println!();
    for own in &report.configurations {
        output::tell(&about(own.name, own.model, own.contract, own.base_url));
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

/// A table with its headings; each column at least as wide as the layout says.
fn table(layout: &[Column], headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let headings = headings.iter().map(|&heading| heading.into()).collect();
    let rows = std::iter::once(headings).chain(rows);
    for (at, line) in aligned(layout, 1, rows).iter().enumerate() {
        if at == 0 {
            output::tell(&paint(bold, line));
        } else {
            output::tell(&painted(line));
        }
    }
}

/// The line with the colours that its [`MARKS`] stand for.
fn painted(mut line: &str) -> String {
    let mut text = String::new();
    while let Some((before, marked)) = line.split_once(|c| MARKS.iter().any(|(mark, _)| *mark == c))
    {
        let mark = line
            .get(before.len()..)
            .and_then(|rest| rest.chars().next());
        let (inner, after) = marked.split_once(MARK_END).unwrap_or((marked, ""));
        text.push_str(before);
        match MARKS.iter().find(|(own, _)| Some(*own) == mark) {
            Some((_, colour)) => text.push_str(&paint(*colour, inner)),
            None => text.push_str(inner),
        }
        line = after;
    }
    text + line
}

fn costs_by_task(report: &Report<'_>) {
    let mut layout = vec![Column::Left(TASK)];
    layout.extend([5, 7, 7, 8, 9, 8].map(Column::Right));
    let headings = [
        "task", "level", "success", "steps", "tokens", "time", "repairs",
    ];
    let rows = report.tasks.iter().filter_map(|task| {
        let total = task.totals.first()?;
        Some(vec![
            cut(task.id, TASK),
            task.level.to_string(),
            success(total),
            mean(total, |total| format!("{:.1}", total.mean_steps)),
            mean(total, tokens),
            mean(total, seconds),
            total.counts.repairs.to_string(),
        ])
    });
    table(&layout, &headings, rows);
}

fn successes_by_task(report: &Report<'_>) {
    // What is left of the line, shared by the configurations.
    let configurations = u16::try_from(report.configurations.len()).unwrap_or(u16::MAX);
    let room = ((WIDTH - TASK - 6) / configurations.max(1)).saturating_sub(1);
    let width = room.clamp(1, NAME);
    let mut layout = vec![Column::Left(TASK), Column::Right(5)];
    let mut headings = vec!["task".to_owned(), "level".to_owned()];
    for own in &report.configurations {
        layout.push(Column::Right(width));
        headings.push(cut(own.name, width));
    }
    let rows = report.tasks.iter().map(|task| {
        let mut row = vec![cut(task.id, TASK), task.level.to_string()];
        row.extend(task.totals.iter().map(success));
        row
    });
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    table(&layout, &headings, rows);
}

fn totals(report: &Report<'_>) {
    let mut layout = vec![Column::Left(NAME)];
    layout.extend([9, 6, 12, 7, 10, 10].map(Column::Right));
    let headings = [
        "configuration",
        "success",
        "rate",
        "95 % range",
        "steps",
        "tokens",
        "time",
    ];
    let rows = report.configurations.iter().map(|own| {
        let total = &own.total;
        vec![
            cut(own.name, NAME),
            success(total),
            mean(total, |total| format!("{:.0} %", total.rate * 100.0)),
            interval(total),
            mean(total, |total| format!("{:.1}", total.mean_steps)),
            mean(total, tokens),
            mean(total, seconds),
        ]
    });
    table(&layout, &headings, rows);
    println!();
    let mut layout = vec![Column::Left(NAME)];
    layout.extend([7, 8, 12, 7, 9, 15].map(Column::Right));
    let headings = [
        "in all",
        "repairs",
        "unusable",
        "failed calls",
        "retries",
        "fallbacks",
        "endpoint failed",
    ];
    let rows = report.configurations.iter().map(|own| {
        let counts = &own.total.counts;
        vec![
            cut(own.name, NAME),
            counts.repairs.to_string(),
            counts.unusable.to_string(),
            counts.failed_calls.to_string(),
            counts.retries.to_string(),
            counts.fallbacks.to_string(),
            own.total.endpoint_failures.to_string(),
        ]
    });
    table(&layout, &headings, rows);
    comparisons(report);
}

fn comparisons(report: &Report<'_>) {
    let Some(against) = report.comparisons.first().map(|one| one.against) else {
        return;
    };
    println!();
    let Some(base) = report.configurations.first().map(|own| own.total) else {
        return;
    };
    let mut layout = vec![Column::Left(NAME)];
    layout.extend([9, 12, 7, 9, 9, 9].map(Column::Right));
    let headings = [
        "difference",
        "success",
        "tasks +/-/=",
        "p",
        "steps",
        "tokens",
        "time",
    ];
    let others = report.configurations.iter().skip(1);
    let rows = report.comparisons.iter().zip(others);
    let rows = rows.map(|(one, own)| comparison(one, &base, &own.total));
    table(&layout, &headings, rows);
    let note = format!(
        "Against {}; success in percentage points. +/-/=: tasks solved more often, less often, as often; \
         p: exact sign test over these.",
        cut(against, WIDTH / 2)
    );
    for text in wrapped(&note, WIDTH) {
        output::tell(&paint(dim, &text));
    }
}

fn comparison(one: &Comparison<'_>, base: &Total, own: &Total) -> Vec<String> {
    let tasks = format!("{}/{}/{}", one.better, one.worse, one.equal);
    let p = if one.p < 0.001 {
        "<0.001".into()
    } else {
        format!("{:.3}", one.p)
    };
    vec![
        cut(one.name, NAME),
        format!("{:+.1}", one.difference * 100.0),
        tasks,
        p,
        format!("{:+.1}", own.mean_steps - base.mean_steps),
        change(base.mean_tokens, own.mean_tokens),
        change(base.mean_seconds, own.mean_seconds),
    ]
}

/// 3/4, with the mark of its colour.
fn success(total: &Total) -> String {
    let [(good, _), (bad, _), (warn, _)] = MARKS;
    let mark = match (total.attempts, total.successes) {
        (0, _) => return "-".into(),
        (all, own) if all == own => good,
        (_, 0) => bad,
        _ => warn,
    };
    format!("{mark}{}/{}{MARK_END}", total.successes, total.attempts)
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

fn cut(text: &str, most: u16) -> String {
    columns::cut(&line(text), most.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_take_no_room_and_leave_no_trace() {
        let [(all, _), (none, _), _] = MARKS;
        let rows = [
            vec!["日本".to_owned(), format!("{all}3/3{MARK_END}")],
            vec!["plain".to_owned(), format!("{none}0/12{MARK_END}")],
        ];
        let lines = aligned(&[Column::Left(6), Column::Right(7)], 1, rows);
        let painted: Vec<String> = lines.iter().map(|line| painted(line)).collect();
        let expected = [
            format!("日本       {}", paint(good, "3/3")),
            format!("plain     {}", paint(bad, "0/12")),
        ];
        assert_eq!(painted, expected);
    }
}
