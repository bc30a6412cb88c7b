//! What a person sees while waiting. Bars and spinners show on a terminal only (indicatif sees to
//! that); every stage also leaves a plain line, which is all that a CI log gets.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the one place that speaks to the person"
)]

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

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

pub fn spinner(text: &str) -> ProgressBar {
    line(text);
    let spinner = ProgressBar::new_spinner();
    spinner.set_style(style("  {spinner} {elapsed}"));
    spinner.enable_steady_tick(Duration::from_millis(120));
    spinner
}

fn style(template: &str) -> ProgressStyle {
    // A wrong template would be a plain bar, not a reason to fail a download.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
