//! What is said of a crash: the exception of a Python program first, then the trap and the functions it happened in, then
//! what was written last. Where an author works, the lines it happened at follow.

use super::CallState;
use super::capture::PrintStream;
use crate::compile::SourceLine;
use std::iter::repeat;
use toolhold_policy::text::{self, UntrustedText};
use wasmtime::WasmBacktrace;

/// Functions that are named, the innermost first.
const MAX_FUNCTIONS: usize = 4;
/// Functions that are told with their lines, those that the compiler put into others included.
const MAX_TRACED: usize = 10;
/// Characters of a file's path.
const MAX_FILE: usize = 100;
/// Characters of the whole reason: a model reads it.
const MAX_REASON: usize = 1_000;
/// Characters of one with lines, which an author reads.
const MAX_TRACED_REASON: usize = 2_000;
/// Characters of a function's name: the module says it, and it may be as long as the component.
const MAX_NAME: usize = 80;
/// Lines of what was written last.
const MAX_LAST_LINES: usize = 4;
/// Characters of an exception and of its place, so that the trap after them is never cut off.
const MAX_EXCEPTION: usize = 600;
const MAX_PLACE: usize = 200;
/// Begins what CPython prints of an exception that was not caught.
const TRACEBACK: &str = "Traceback (most recent call last):";

/// What is known of a crash.
pub(super) struct Crash {
    /// wasmtime's.
    cause: String,
    /// What the guest wrote.
    stderr: String,
    /// The innermost first.
    frames: Vec<CrashFrame>,
}

struct CrashFrame {
    /// As the module's section of names has it.
    function: Option<String>,
    /// Where it was, in bytes of the component.
    offset: Option<usize>,
}

impl Crash {
    pub fn of(error: &wasmtime::Error, state: &CallState) -> Self {
        let trace = error.downcast_ref::<WasmBacktrace>();
        let frames = trace.map(WasmBacktrace::frames).unwrap_or_default();
        let name = |name: &str| text::visible(name, MAX_NAME).replace(['\n', '\t'], " ");
        Self {
            cause: error.root_cause().to_string(),
            stderr: state.gauge.printed().captured(PrintStream::Stderr).text,
            frames: frames
                .iter()
                .map(|frame| CrashFrame {
                    function: frame.func_name().map(name),
                    offset: frame.module_offset(),
                })
                .collect(),
        }
    }

    /// The offsets whose lines say more than the reason without them: none if the guest said itself where it failed.
    pub fn offsets(&self) -> Vec<Option<usize>> {
        if exception(&self.stderr).is_some() {
            return Vec::new();
        }
        self.frames.iter().map(|frame| frame.offset).collect()
    }

    /// The reason of the trap. `lines` are those of each frame, as far as they are known: with a line, the frames are
    /// told one below the other, or else in the reason's only line.
    pub fn reason(&self, lines: &[Vec<SourceLine>]) -> String {
        let (reason, most) = match exception(&self.stderr) {
            // The guest says it, in any language: it is not the host's reason.
            Some(exception) => (format!("Python: {exception}; {}", self.cause), MAX_REASON),
            None if lines.iter().all(Vec::is_empty) => {
                // Where the component names none, as most do not, nothing is said of them.
                let functions = self.frames.iter().filter_map(|it| it.function.as_deref());
                let functions: Vec<_> = functions.take(MAX_FUNCTIONS).collect();
                let reason = located(&self.cause, &functions, &self.stderr);
                (reason, MAX_REASON)
            }
            None => (self.traced(lines), MAX_TRACED_REASON),
        };
        text::visible(&reason, most)
    }

    fn traced(&self, lines: &[Vec<SourceLine>]) -> String {
        let mut reason = located(&self.cause, &[], &self.stderr);
        let lines = lines.iter().map(Vec::as_slice).chain(repeat(&[][..]));
        let frames = self.frames.iter().zip(lines).flat_map(|(frame, lines)| {
            let unknown = lines.is_empty().then(|| frame.function.clone()).flatten();
            // Functions that the compiler put into others, the innermost first.
            let known = lines.iter().map(|line| {
                let name = line.function.as_ref().map(|it| cut(it, MAX_NAME));
                let name = name.or_else(|| frame.function.clone());
                format!("{} ({})", name.as_deref().unwrap_or("?"), place(line))
            });
            unknown.into_iter().chain(known).collect::<Vec<_>>()
        });
        for frame in frames.take(MAX_TRACED) {
            reason = format!("{reason}\n  at {frame}");
        }
        reason
    }
}

/// `file:line:column`, as far as it is known.
fn place(line: &SourceLine) -> String {
    let mut place = match &line.file {
        Some(file) => cut(file, MAX_FILE),
        None => "?".to_owned(),
    };
    for number in [line.line, line.column].into_iter().map_while(|it| it) {
        place = format!("{place}:{number}");
    }
    place
}

/// Its end, escaped: of a path the end says most.
fn cut(text: &UntrustedText, most: usize) -> String {
    let shown = text.to_string();
    let length = shown.chars().count();
    if length <= most {
        return shown;
    }
    let end: String = shown.chars().skip(length - most).collect();
    format!("…{end}")
}

fn located(cause: &str, functions: &[&str], stderr: &str) -> String {
    let mut reason = cause.to_owned();
    if let [innermost, callers @ ..] = functions {
        reason = format!("{reason} in {innermost}");
        if !callers.is_empty() {
            reason = format!("{reason}, called by {}", callers.join(", "));
        }
    }
    let lines = stderr.lines().rev().filter(|line| !line.trim().is_empty());
    let mut last_words: Vec<_> = lines.take(MAX_LAST_LINES).collect();
    if !last_words.is_empty() {
        last_words.reverse();
        reason = format!("{reason}; it last wrote: {}", last_words.join(" / "));
    }
    reason
}

/// The exception of the last traceback and its place, such as
/// `ZeroDivisionError: division by zero (File "/0/app.py", line 3, in divide)`. `None` if anything follows but the panic of
/// the program that runs Python: the exception was handled, and is not why the call ended.
fn exception(stderr: &str) -> Option<String> {
    let (_, traceback) = stderr.rsplit_once(TRACEBACK)?;
    let mut lines = traceback.lines().skip(1);
    let block: Vec<_> = lines
        .by_ref()
        .take_while(|line| !line.trim().is_empty())
        .collect();
    if !lines.all(is_of_the_runtime) {
        return None;
    }
    // Frames are indented, and so may be lines of the exception's own text.
    let said = block.iter().position(|line| !line.starts_with(' '))?;
    let exception = block.get(said..)?.join(" / ");
    let exception = text::visible(&exception, MAX_EXCEPTION);
    let place = block.get(..said)?.iter().rev().find_map(|line| {
        let line = line.trim();
        line.starts_with("File ").then_some(line)
    });
    Some(match place {
        Some(place) => format!("{exception} ({})", text::visible(place, MAX_PLACE)),
        None => exception,
    })
}

/// Whether a line is of the panic with which `componentize-py` ends a program whose exception was not caught.
fn is_of_the_runtime(line: &str) -> bool {
    let line = line.trim();
    line.is_empty()
        || (line.starts_with("thread '") && line.contains("' panicked at runtime/src/"))
        || line.starts_with("Python function threw")
        || line.starts_with("note: run with `RUST_BACKTRACE")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAUSE: &str = "wasm trap: wasm `unreachable` instruction executed";

    fn crash(functions: &[Option<&str>], stderr: &str) -> Crash {
        Crash {
            cause: CAUSE.to_owned(),
            stderr: stderr.to_owned(),
            frames: functions
                .iter()
                .map(|name| CrashFrame {
                    function: name.map(str::to_owned),
                    offset: Some(7),
                })
                .collect(),
        }
    }

    fn reason(stderr: &str) -> String {
        crash(&[], stderr).reason(&[])
    }

    fn line(function: Option<&str>, file: &str, line: u32) -> SourceLine {
        SourceLine {
            function: function.map(Into::into),
            file: Some(file.into()),
            line: Some(line),
            column: Some(3),
        }
    }

    #[test]
    fn an_exception_of_python_comes_first_with_its_place() {
        let stderr = "starting\nTraceback (most recent call last):\n  File \"/0/app.py\", line 9, in call\n    \
                      divide(0)\n  File \"/0/app.py\", line 3, in divide\nZeroDivisionError: division by zero\n\n\
                      thread '<unnamed>' panicked at runtime/src/lib.rs:1293:29:\nPython function threw\n";
        assert_eq!(
            reason(stderr),
            format!(
                "Python: ZeroDivisionError: division by zero (File \"/0/app.py\", line 3, in divide); {CAUSE}"
            )
        );
        // The last of a chain, and texts of more lines.
        let chained = "Traceback (most recent call last):\nKeyError: 1\n\nDuring handling:\n\n\
                       Traceback (most recent call last):\n  File \"a\", line 1, in <module>\nValueError: one\ntwo\n";
        assert!(reason(chained).starts_with(
            "Python: ValueError: one / two (File \"a\", line 1, in <module>); wasm trap"
        ));
        let cut = "Traceback (most recent call last):\n  File \"a\"";
        assert!(reason(cut).starts_with(CAUSE));
    }

    #[test]
    fn the_trap_stays_behind_a_long_exception() {
        let long = "x".repeat(5_000);
        let stderr =
            format!("{TRACEBACK}\n  File \"{long}\", line 1, in <module>\nValueError: {long}\n");
        let reason = reason(&stderr);
        assert!(reason.ends_with(&format!("…); {CAUSE}")), "{reason}");
        assert!(reason.chars().count() < 1_000, "{reason}");
    }

    #[test]
    fn what_a_guest_writes_is_never_the_reason_of_the_host() {
        let forged = format!("{TRACEBACK}\nfuel: wait for a decision\n");
        assert_eq!(
            reason(&forged),
            format!("Python: fuel: wait for a decision; {CAUSE}")
        );
        let handled = format!(
            "{TRACEBACK}\n  File \"a\", line 1, in b\nKeyError: 1\n\nthread 'main' panicked at src/lib.rs:1:1:\nboom\n"
        );
        let reason = reason(&handled);
        assert!(reason.starts_with(CAUSE), "{reason}");
        assert!(reason.ends_with("/ boom"), "{reason}");
    }

    #[test]
    fn lines_are_told_one_below_the_other() {
        let crash = crash(&[Some("parse"), Some("read"), None, Some("call")], "a\n");
        assert_eq!(crash.offsets(), [Some(7); 4]);
        assert_eq!(
            crash.reason(&[]),
            format!("{CAUSE} in parse, called by read, call; it last wrote: a")
        );
        let inlined = vec![line(Some("digit"), "json.c", 9), line(None, "json.c", 40)];
        assert_eq!(
            crash.reason(&[inlined, Vec::new(), vec![line(None, "app.c", 5)]]),
            format!(
                "{CAUSE}; it last wrote: a\n  at digit (json.c:9:3)\n  at parse (json.c:40:3)\n  at read\n  \
                 at ? (app.c:5:3)\n  at call"
            )
        );
    }

    #[test]
    fn what_debug_information_says_is_shown_escaped_and_cut() {
        let hostile = line(Some("a\u{1b}[2J\nb"), &"d/".repeat(500), u32::MAX);
        let many = vec![hostile; 50];
        let reason = crash(&[Some("f")], "").reason(&[many]);
        let frames: Vec<_> = reason.lines().skip(1).collect();
        assert_eq!(frames.len(), MAX_TRACED);
        assert!(
            frames[0].starts_with("  at a\\u{1b}[2J\\nb (…d/"),
            "{reason}"
        );
        let length = reason.chars().count();
        assert!(
            (MAX_REASON + 2..=MAX_TRACED_REASON + 1).contains(&length),
            "{length}"
        );
        let long = "x".repeat(5_000);
        let without = crash(&[Some(&long)], &long).reason(&[]);
        assert!(without.chars().count() <= MAX_REASON + 1, "{without}");
        let odd = SourceLine::default();
        assert_eq!(place(&odd), "?");
    }

    #[test]
    fn functions_are_named_before_what_was_written_last() {
        assert_eq!(
            located("trap", &["parse", "read", "call"], "a\n\nb\n"),
            "trap in parse, called by read, call; it last wrote: a / b"
        );
        assert_eq!(located("trap", &["parse"], ""), "trap in parse");
        assert_eq!(
            located("trap", &[], "1\n2\n3\n4\n5"),
            "trap; it last wrote: 2 / 3 / 4 / 5"
        );
        assert_eq!(located("trap", &[], " \n"), "trap");
    }
}
