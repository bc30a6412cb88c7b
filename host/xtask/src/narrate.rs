//! Progress for the user. Bars and spinners are drawn on a terminal only, by indicatif; every stage also prints a
//! plain line, for CI logs.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the one place that speaks to the person"
)]

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Form in which the progress of a stage is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narration {
    /// By a bar or a spinner, on a terminal.
    Drawn,
    /// By its lines only, because something else draws on the terminal meanwhile.
    Lines,
}

pub fn line(text: &str) {
    eprintln!("xtask: {text}");
}

/// Several lines, as they are.
pub fn block(text: &str) {
    eprintln!("{text}");
}

/// The answer of a command, for a script to read.
pub fn answer(text: &str) {
    println!("{text}");
}

pub fn bytes_bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    bar.set_style(style(
        "  {bar:32} {bytes:>10} of {total_bytes}  {bytes_per_sec}  {eta} left",
    ));
    bar
}

pub fn spinner(text: &str, narration: Narration) -> ProgressBar {
    line(text);
    if narration == Narration::Lines {
        return ProgressBar::hidden();
    }
    let spinner = ProgressBar::new_spinner();
    spinner.set_style(style("  {spinner} {elapsed}"));
    spinner.enable_steady_tick(Duration::from_millis(120));
    spinner
}

fn style(template: &str) -> ProgressStyle {
    // With an invalid template the bar is plain; the download must not fail.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
