//! What is said of a crash: the program's own words first, then the trap and the functions it happened in.

use wasmtime::WasmBacktrace;

/// Functions that are named, the innermost first.
const MAX_FUNCTIONS: usize = 4;
/// Lines of what was written last.
const MAX_LAST_LINES: usize = 4;
/// Begins what CPython prints of an exception that was not caught.
const TRACEBACK: &str = "Traceback (most recent call last):";

/// The reason of a trap, in one line. `cause` is wasmtime's, `stderr` what the guest wrote.
pub(super) fn reason(cause: &str, trace: Option<&WasmBacktrace>, stderr: &str) -> String {
    if let Some(exception) = exception(stderr) {
        return format!("{exception}; {cause}");
    }
    // Where the component names none, as most do not, nothing is said of them.
    let frames = trace.map(WasmBacktrace::frames).unwrap_or_default();
    let functions: Vec<_> = frames
        .iter()
        .filter_map(|frame| frame.func_name())
        .take(MAX_FUNCTIONS)
        .collect();
    located(cause, &functions, stderr)
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
/// `ZeroDivisionError: division by zero (File "/0/app.py", line 3, in divide)`. What follows the traceback is of the
/// program that runs Python.
fn exception(stderr: &str) -> Option<String> {
    let (_, traceback) = stderr.rsplit_once(TRACEBACK)?;
    let block: Vec<_> = traceback
        .lines()
        .skip(1)
        .take_while(|line| !line.trim().is_empty())
        .collect();
    // Frames are indented, and so may be lines of the exception's own text.
    let said = block.iter().position(|line| !line.starts_with(' '))?;
    let exception = block.get(said..)?.join(" / ");
    let place = block.get(..said)?.iter().rev().find_map(|line| {
        let line = line.trim();
        line.starts_with("File ").then_some(line)
    });
    Some(match place {
        Some(place) => format!("{exception} ({place})"),
        None => exception,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAUSE: &str = "wasm trap: wasm `unreachable` instruction executed";

    #[test]
    fn an_exception_of_python_comes_first_with_its_place() {
        let stderr = "starting\nTraceback (most recent call last):\n  File \"/0/app.py\", line 9, in call\n    \
                      divide(0)\n  File \"/0/app.py\", line 3, in divide\nZeroDivisionError: division by zero\n\n\
                      thread '<unnamed>' panicked at runtime/src/lib.rs:1293:29:\nPython function threw\n";
        assert_eq!(
            reason(CAUSE, None, stderr),
            format!(
                "ZeroDivisionError: division by zero (File \"/0/app.py\", line 3, in divide); {CAUSE}"
            )
        );
        // The last of a chain, and texts of more lines.
        let chained = "Traceback (most recent call last):\nKeyError: 1\n\nDuring handling:\n\n\
                       Traceback (most recent call last):\n  File \"a\", line 1, in <module>\nValueError: one\ntwo\n";
        assert!(
            reason(CAUSE, None, chained)
                .starts_with("ValueError: one / two (File \"a\", line 1, in <module>); wasm trap")
        );
        let cut = "Traceback (most recent call last):\n  File \"a\"";
        assert!(reason(CAUSE, None, cut).starts_with(CAUSE));
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
