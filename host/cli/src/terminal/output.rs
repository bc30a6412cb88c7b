//! Lines and values that commands print beside the view of a run.

use crate::terminal::rows::{self, broken, cells, width};
use crate::terminal::stderr::{self, Weight};
use crate::terminal::style::{bad, block, dim, good, line, warn};
use serde::Serialize;
use similar::{ChangeTag, TextDiff};
use std::io::IsTerminal as _;
use std::time::Duration;
use toolhold_policy::text;
use toolhold_runtime::causes::causes;

/// Prints a value as indented JSON. All JSON of commands is printed here and by [`json_line`]: what a terminal would
/// obey or not show is escaped.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", text::json(&serde_json::to_string_pretty(value)?));
    Ok(())
}

/// Prints a value as JSON on one line.
pub fn json_line(value: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", text::json(&serde_json::to_string(value)?));
    Ok(())
}

/// The begin of a note: a word in the colour of its weight. In a log in JSON, the word is the kind of the event.
#[derive(Debug, Clone, Copy)]
pub enum NoteMark<'a> {
    Good(&'a str),
    Dim(&'a str),
    Warn(&'a str),
    Bad(&'a str),
}

impl NoteMark<'_> {
    fn painted(self) -> String {
        match self {
            Self::Good(mark) => good(mark),
            Self::Dim(mark) => dim(mark),
            Self::Warn(mark) => warn(mark),
            Self::Bad(mark) => bad(mark),
        }
    }

    fn kind(&self) -> &str {
        match self {
            Self::Good(mark) | Self::Dim(mark) | Self::Warn(mark) | Self::Bad(mark) => mark,
        }
    }

    fn weight(self) -> Weight {
        match self {
            Self::Good(_) | Self::Dim(_) => Weight::Info,
            Self::Warn(_) => Weight::Warning,
            Self::Bad(_) => Weight::Error,
        }
    }
}

/// Prints lines for the person at the terminal to stderr, broken where the terminal would break them: a row that
/// continues a line looks like no line of the host.
pub fn say(lines: &str) {
    stderr::lines(Weight::Info, None, lines, || lines.to_owned());
}

/// Prints a row to stderr that is never broken, because people copy it.
pub fn say_whole(row: &str) {
    stderr::tell(Weight::Info, None, row, || row.to_owned());
}

/// As [`say`], to stdout.
pub fn tell(lines: &str) {
    println!("{}", rows::broken(lines, rows::width(&std::io::stdout())));
}

/// Tells what a mark is about. The text may come from a guest or a server.
pub fn note(mark: NoteMark<'_>, text: &str) {
    let shown = || format!("{} {}", mark.painted(), block(text));
    stderr::lines(mark.weight(), Some(mark.kind()), text, shown);
}

/// Tells an error with its causes, and what follows from it.
pub fn failed(error: &anyhow::Error, and: &str) {
    note(NoteMark::Bad("error:"), &format!("{}{and}", causes(error)));
}

/// Something was not used, and the rest goes on without it.
pub fn left_out(text: &str) {
    note(NoteMark::Warn("left out:"), text);
}

/// A remark of the host that is not the result.
pub fn remark(text: &str) {
    stderr::lines(Weight::Info, None, text, || dim(&block(text)));
}

/// A note or a remark with a command to copy. Where a row of the terminal is too short for all of it, the command stands
/// on a line of its own, as it is: with marks between its parts nobody could copy it.
pub fn say_command(mark: &str, before: &str, command: &str, after: &str) {
    command_of(Weight::Info, None, mark, [before, command, after]);
}

/// [`note`] with a command to copy.
pub fn note_command(mark: NoteMark<'_>, before: &str, command: &str, after: &str) {
    let parts = [before, command, after];
    command_of(mark.weight(), Some(mark.kind()), &mark.painted(), parts);
}

fn command_of(weight: Weight, kind: Option<&str>, mark: &str, parts: [&str; 3]) {
    stderr::tell(weight, kind, &parts.concat(), || {
        with_command(mark, parts, width(&std::io::stderr())).join("\n")
    });
}

/// The rows of [`say_command`] on a terminal of `width` cells.
pub fn with_command(
    mark: &str,
    [before, command, after]: [&str; 3],
    width: Option<usize>,
) -> Vec<String> {
    let command = line(command);
    let said = |command: &str| {
        let text = block(&format!("{before}{command}{after}"));
        if mark.is_empty() {
            dim(&text)
        } else {
            format!("{mark} {text}")
        }
    };
    let whole = said(&command);
    let fits = |width| whole.lines().all(|line| cells(line) < width);
    if width.is_none_or(fits) {
        return vec![whole];
    }
    let without = said("the command below");
    vec![broken(&without, width), command]
}

/// For what is printed to stdout, whatever stderr is.
pub fn paint(colour: fn(&str) -> String, text: &str) -> String {
    if std::io::stdout().is_terminal() {
        colour(text)
    } else {
        text.to_owned()
    }
}

/// Time in which two texts are compared. The steps to the shortest difference are up to the product of their lines; those
/// that are left then are all removed and all added.
const COMPARISON_TIME: Duration = Duration::from_secs(1);

/// The difference of two texts by their lines.
pub fn difference<'t>(before: &'t str, now: &'t str) -> TextDiff<'t, 't, 't, str> {
    TextDiff::configure()
        .timeout(COMPARISON_TIME)
        .diff_lines(before, now)
}

/// Prints the lines of a difference, for a person who decides about it.
pub fn tell_difference(before: &str, now: &str) {
    for change in difference(before, now).iter_all_changes() {
        tell(&format!(
            "    {}",
            changed_line(change.tag(), change.value())
        ));
    }
}

/// A line of a difference, as `diff -u` marks it.
pub fn changed_line(tag: ChangeTag, text: &str) -> String {
    let text = text.trim_end_matches('\n');
    match tag {
        ChangeTag::Delete => bad(&format!("- {text}")),
        ChangeTag::Insert => good(&format!("+ {text}")),
        ChangeTag::Equal => dim(&format!("  {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of strangers, of which none or few are in both texts.
    #[test]
    fn a_difference_takes_its_time_and_no_more() {
        const LINES: usize = 100_000;
        let text = |step: usize, of: usize| -> String {
            let lines = (0..LINES).map(|n| format!("{}\n", n * step % of));
            lines.collect()
        };
        let begun = std::time::Instant::now();
        let (before, now) = (text(7_919, 1_000), text(104_729, 99_991));
        let (mut removed, mut added) = (0, 0);
        for change in difference(&before, &now).iter_all_changes() {
            removed += usize::from(change.tag() != ChangeTag::Insert);
            added += usize::from(change.tag() != ChangeTag::Delete);
        }
        assert_eq!((removed, added), (LINES, LINES), "no line is left out");
        assert!(
            begun.elapsed() < COMPARISON_TIME * 20,
            "{:?}",
            begun.elapsed()
        );
    }

    #[test]
    fn a_command_to_copy_is_never_broken() {
        let command = "toolhold resume 0192f0c1-0000-7000-8000-000000000000";
        let parts = ["", command, " goes on with the run"];
        for width in [None, Some(200)] {
            let rows = with_command("parked:", parts, width);
            assert_eq!(rows, [format!("parked: {command} goes on with the run")]);
        }
        for width in [20, 40, 60] {
            let rows = with_command("parked:", parts, Some(width));
            assert_eq!(rows.last().map(String::as_str), Some(command), "{width}");
            assert!(rows[0].starts_with("parked: the"), "{rows:?}");
            assert!(!rows[0].contains("toolhold"), "{rows:?}");
        }
        // A text from elsewhere is no second line.
        let rows = with_command("", ["", "toolhold show a\nb", ""], Some(10));
        assert_eq!(rows.last().unwrap(), "toolhold show a\\nb");
    }
}
