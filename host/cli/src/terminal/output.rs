//! Lines and values that commands print beside the view of a run.

use crate::terminal::rows;
use crate::terminal::style::{bad, block, dim, good, warn};
use serde::Serialize;
use similar::ChangeTag;
use std::io::IsTerminal as _;
use toolhold_policy::text;

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

/// Prints lines for the person at the terminal to stderr, broken where the terminal would break them: a row that
/// continues a line looks like no line of the host.
pub fn say(lines: &str) {
    eprintln!("{}", rows::broken(lines, rows::width(&std::io::stderr())));
}

/// As [`say`], to stdout.
pub fn tell(lines: &str) {
    println!("{}", rows::broken(lines, rows::width(&std::io::stdout())));
}

/// Tells the person at the terminal what a mark is about. The text may come from a guest or a server.
pub fn note(mark: &str, text: &str) {
    say(&format!("{mark} {}", block(text)));
}

/// Something was not used, and the rest goes on without it.
pub fn left_out(text: &str) {
    note(&warn("left out:"), text);
}

/// A remark of the host that is not the result.
pub fn remark(text: &str) {
    say(&dim(&block(text)));
}

/// For what is printed to stdout, whatever stderr is.
pub fn paint(colour: fn(&str) -> String, text: &str) -> String {
    if std::io::stdout().is_terminal() {
        colour(text)
    } else {
        text.to_owned()
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
