//! Progress of slow things: a row at a terminal that is drawn again and again, a line in a log.

use crate::terminal::{output, rows, stderr, style};
use std::io::{self, Write as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use toolhold_sandbox::LoadEvent;

/// Goes to the begin of the row of the terminal, and empties it.
const CLEAR: &str = "\r\x1b[2K";
/// Begins a row; the next each time that it is drawn.
const MARKS: [&str; 8] = ["⠁", "⠂", "⠄", "⡀", "⢀", "⠠", "⠐", "⠈"];
/// Time between two drawings.
const PERIOD: Duration = Duration::from_millis(100);

/// A row on stderr with a text and the time since it began, until it is dropped. Nothing is drawn where stderr is no
/// terminal that can draw a row again.
#[derive(Debug)]
pub struct LiveRow {
    row: Arc<SharedRow>,
    drawing: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct SharedRow {
    begun: Instant,
    content: Mutex<RowContent>,
    over: Condvar,
}

#[derive(Debug)]
struct RowContent {
    text: String,
    is_over: bool,
}

impl LiveRow {
    pub fn start(text: String) -> Self {
        let row = Arc::new(SharedRow {
            begun: Instant::now(),
            content: Mutex::new(RowContent {
                text,
                is_over: false,
            }),
            over: Condvar::new(),
        });
        let drawn = Arc::clone(&row);
        let drawing = style::obeys_sequences().then(|| {
            let thread = thread::Builder::new().name("progress".into());
            // Without a thread there is no row, and the work goes on.
            thread.spawn(move || drawn.draw_until_over()).ok()
        });
        Self {
            row,
            drawing: drawing.flatten(),
        }
    }

    pub fn set(&self, text: String) {
        self.row.content().text = text;
    }

    /// Prints lines where the row is, which is drawn below them again.
    pub fn beside(&self, print: impl FnOnce()) {
        let _not_drawn = self.row.content();
        if self.drawing.is_some() {
            put(CLEAR);
        }
        print();
    }
}

impl Drop for LiveRow {
    fn drop(&mut self) {
        self.row.content().is_over = true;
        self.row.over.notify_all();
        if let Some(drawing) = self.drawing.take() {
            let _ = drawing.join();
        }
    }
}

impl SharedRow {
    fn content(&self) -> MutexGuard<'_, RowContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw_until_over(&self) {
        let mut content = self.content();
        for mark in MARKS.into_iter().cycle() {
            if content.is_over {
                break;
            }
            let width = rows::width(&io::stderr());
            let row = row(mark, &content.text, self.begun.elapsed(), width);
            put(&format!("{CLEAR}{row}"));
            let waited = self.over.wait_timeout(content, PERIOD);
            (content, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        put(CLEAR);
    }
}

/// A row of less than `width` cells: of a text that is too long, the begin.
fn row(mark: &str, text: &str, since: Duration, width: Option<usize>) -> String {
    let since = format!(" {} s", since.as_secs());
    // The last cell stays free: some terminals break a line behind it.
    let others = rows::cells(mark) + 1 + rows::cells(&since) + 1;
    let most = width.map_or(usize::MAX, |width| width.saturating_sub(others));
    let row = format!("{mark} {}{since}", rows::beginning(text, most));
    match width {
        // Of a terminal that has no room for the time, either.
        Some(width) => rows::beginning(&row, width.saturating_sub(1)).to_owned(),
        None => row,
    }
}

/// A terminal that is gone shows nothing.
fn put(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// A line that says what is done, until it is dropped. Its texts are shown as [`style::line`] has them, because they may
/// name folders, documents and modules.
#[derive(Debug)]
pub struct Spinner(Option<LiveRow>);

impl Spinner {
    pub fn start(text: String) -> Self {
        let text = style::line(&text);
        if stderr::has_events() || !style::obeys_sequences() {
            output::say_whole(&text);
            return Self(None);
        }
        Self(Some(LiveRow::start(text)))
    }

    /// Shows what changes often: at a terminal alone, because a log would get a line each time.
    pub fn show(&self, text: String) {
        if let Some(row) = &self.0 {
            row.set(style::line(&text));
        }
    }

    pub fn say(&self, text: String) {
        let text = style::line(&text);
        match &self.0 {
            Some(row) => row.set(text),
            None => output::say_whole(&text),
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
        let mut spinner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            LoadEvent::Compiling { module, bytes } if bytes > Self::MIN_REPORTED_BYTES => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_shorter_than_the_terminal_and_tells_the_time() {
        let since = Duration::from_millis(12_900);
        let whole = row("⠁", "building notes", since, None);
        assert_eq!(whole, "⠁ building notes 12 s");
        assert_eq!(row("⠁", "building notes", since, Some(22)), whole);
        let cut = row("⠁", "building notes", since, Some(21));
        assert_eq!(cut, "⠁ building note 12 s");
        // Characters that take two cells are not cut in the middle.
        let wide = row("⠁", "図書館", since, Some(13));
        assert_eq!(wide, "⠁ 図書 12 s");
        let narrow = row("⠁", "building notes", since, Some(3));
        assert_eq!(narrow, "⠁ ");
        for width in 1..40 {
            let row = row("⠁", "building 図書館", since, Some(width));
            assert!(rows::cells(&row) < width, "{width}: {row:?}");
        }
    }

    #[test]
    fn a_row_is_one_line_and_sends_the_terminal_no_sequence() {
        let spinner = Spinner(Some(LiveRow::start("begun".into())));
        let shown = || spinner.0.as_ref().unwrap().row.content().text.clone();
        spinner.say("building a\x1b]0;b\x07\nc".into());
        assert_eq!(shown(), r"building a\u{1b}]0;b\u{7}\nc");
        spinner.show("d\re: reading".into());
        assert_eq!(shown(), r"d\re: reading");
    }

    #[test]
    fn a_row_ends_when_it_is_dropped_and_what_is_beside_it_is_printed() {
        let live = LiveRow::start("begun".into());
        live.set("going on".into());
        assert_eq!(live.row.content().text, "going on");
        let mut is_printed = false;
        live.beside(|| is_printed = true);
        assert!(is_printed);
        let row = Arc::clone(&live.row);
        drop(live);
        assert!(row.content().is_over);
    }
}
