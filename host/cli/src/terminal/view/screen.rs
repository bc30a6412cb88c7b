//! How lines of a run come to the screen: between the rows of what a model writes, and never below a question.

use super::EventPrinter;
use crate::terminal::output;
use crate::terminal::rows::{self, Rows};
use crate::terminal::style::{dim, plain};
use std::io::Write as _;

impl EventPrinter {
    pub(super) fn model_text(&mut self, text: &str) {
        if let Some(begun) = &mut self.begun_line {
            let Some((lines, rest)) = text.rsplit_once('\n') else {
                begun.push_str(text);
                return;
            };
            let lines = std::mem::replace(begun, rest.to_owned()) + lines;
            self.whole_lines(&lines);
            return;
        }
        self.prose.end_line();
        let width = self.width();
        let rows = self.model_rows.push(&plain(text), width);
        self.put(&dim(&rows));
    }

    pub(super) fn whole_lines(&mut self, lines: &str) {
        if !self.asked.is_empty() {
            self.waiting_lines.push(lines.to_owned());
            return;
        }
        self.prose.end_line();
        let lines = Rows::default().push(&format!("{}\n", plain(lines)), self.width());
        self.put(&dim(&lines));
    }

    /// No person is asked about this call any more, nor about those that it made, whose ids begin with its own.
    pub(super) fn decided(&mut self, id: &str) {
        if self.asked.is_empty() {
            return;
        }
        self.asked.retain(|asked| {
            let nested = asked.strip_prefix(id);
            nested.is_none_or(|rest| !rest.is_empty() && !rest.starts_with('.'))
        });
        if self.asked.is_empty() {
            self.show_waiting();
        }
    }

    pub(super) fn show_waiting(&mut self) {
        for lines in std::mem::take(&mut self.waiting_lines) {
            self.whole_lines(&lines);
        }
    }

    /// Cells of the terminal that [`put`](Self::put) writes to.
    pub(super) fn width(&self) -> Option<usize> {
        if self.is_all {
            rows::width(&std::io::stdout())
        } else {
            rows::width(&std::io::stderr())
        }
    }

    /// A closed pipe does not end a run.
    pub(super) fn put(&self, text: &str) {
        let _ = if self.is_all {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        } else {
            std::io::stderr().lock().write_all(text.as_bytes())
        };
    }

    pub(super) fn marked(&mut self, mark: &str, text: &str) {
        self.line(&format!("  {mark} {text}"));
    }

    pub(super) fn dim(&mut self, text: &str) {
        self.line(&dim(text));
    }

    /// A line that ends with a command to copy, which is never broken.
    pub(super) fn command(&mut self, mark: &str, before: &str, command: &str) {
        self.end_line();
        for row in output::with_command(mark, [before, command, ""], self.width()) {
            self.put(&format!("{row}\n"));
        }
    }

    pub(super) fn line(&mut self, text: &str) {
        self.end_line();
        self.put(&format!("{}\n", rows::broken(text, self.width())));
    }

    pub(super) fn end_line(&mut self) {
        self.prose.end_line();
        self.end_reasoning();
    }

    pub(super) fn end_reasoning(&mut self) {
        if self.asked.is_empty() {
            self.show_waiting();
        }
        if let Some(begun) = self.begun_line.as_mut().filter(|begun| !begun.is_empty()) {
            let line = std::mem::take(begun);
            self.whole_lines(&line);
        }
        if self.model_rows.end() {
            self.put("\n");
        }
    }
}
