//! Progress of slow things: a spinner at a terminal, a line in a log.

use crate::terminal::{output, stderr, style};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::time::Duration;
use toolhold_sandbox::LoadEvent;

/// A line that spins until it is dropped.
#[derive(Debug)]
pub struct Spinner(Option<ProgressBar>);

impl Spinner {
    pub fn start(text: String) -> Self {
        if stderr::has_events() || !std::io::stderr().is_terminal() {
            output::say_whole(&text);
            return Self(None);
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(text);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(Some(bar))
    }

    /// Shows what changes often: at a terminal alone, because a log would get a line each time.
    pub fn show(&self, text: String) {
        if let Some(bar) = &self.0 {
            bar.set_message(text);
        }
    }

    pub fn say(&self, text: String) {
        match &self.0 {
            Some(bar) => bar.set_message(text),
            None => output::say_whole(&text),
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Shows loading steps that take noticeably long.
#[derive(Debug, Default)]
pub struct Loading(Mutex<Option<Spinner>>);

impl Loading {
    /// Smaller components compile faster than a person reads.
    const MIN_REPORTED_BYTES: u64 = 1 << 20;

    pub fn on_event(&self, event: LoadEvent) {
        let mut spinner = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match event {
            LoadEvent::Compiling { module, bytes } if bytes > Self::MIN_REPORTED_BYTES => {
                let module = style::line(&module);
                let text = format!("compiling {module} ({}), once", style::bytes(bytes));
                *spinner = Some(Spinner::start(text));
            }
            LoadEvent::Compiling { .. } => {}
            LoadEvent::Loaded { .. }
            | LoadEvent::Reloaded { .. }
            | LoadEvent::Removed { .. }
            | LoadEvent::Failed { .. } => *spinner = None,
        }
    }
}
