//! The one door to stderr for what commands tell beside their log: rows for a person, or events of the log.
//!
//! Where the log is JSON and the command serves, a collector parses each line of stderr, so everything comes as an event.
//! Outside of this file `eprintln!` is refused by a lint of the workspace.
#![expect(
    clippy::print_stderr,
    reason = "what commands tell on stderr is printed here and nowhere else"
)]

use crate::terminal::{pipe, rows};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};

/// The target of notices. They are written at every level of the log.
pub const NOTICE: &str = "toolhold::notice";

/// Whether texts become events of the log. It is set once, before the command begins.
static AS_EVENTS: AtomicBool = AtomicBool::new(false);

/// How much a text matters to who reads the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    Info,
    Warning,
    Error,
}

/// From now on, texts and panics of this process are events of the log.
pub fn become_events() {
    AS_EVENTS.store(true, Ordering::Relaxed);
    panic::set_hook(Box::new(|panic| {
        let text = panic.payload_as_str().unwrap_or_default();
        if !pipe::is_of_reader(text) {
            let place = panic.location().map(ToString::to_string);
            tracing::error!(target: NOTICE, place, "panicked: {text}");
        }
    }));
}

/// Whether texts become events of the log.
pub fn has_events() -> bool {
    AS_EVENTS.load(Ordering::Relaxed)
}

/// Writes rows as they are, or the text as an event. The kind of an event is what marks the rows at a terminal.
pub fn tell(weight: Weight, kind: Option<&str>, text: &str, rows: impl FnOnce() -> String) {
    if !has_events() {
        eprintln!("{}", rows());
        return;
    }
    let notice = kind.map(|kind| kind.trim().trim_end_matches(':'));
    match weight {
        Weight::Info => tracing::info!(target: NOTICE, notice, "{text}"),
        Weight::Warning => tracing::warn!(target: NOTICE, notice, "{text}"),
        Weight::Error => tracing::error!(target: NOTICE, notice, "{text}"),
    }
}

/// Writes lines, broken where the terminal would break them.
pub fn lines(weight: Weight, kind: Option<&str>, text: &str, shown: impl FnOnce() -> String) {
    tell(weight, kind, text, || {
        rows::broken(&shown(), rows::width(&std::io::stderr()))
    });
}

/// Writes a part of a row, such as a question that is answered on it.
pub fn part(text: &str) {
    eprint!("{text}");
}
