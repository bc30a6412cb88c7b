//! What is said of a crash: the exception of a Python program first, then the trap and the functions it happened in, then
//! what was written last.

use toolhold_policy::text;
use wasmtime::WasmBacktrace;

/// Functions that are named, the innermost first.
const MAX_FUNCTIONS: usize = 4;
/// Characters of a function's name: the module says it, and it may be as long as the component.
const MAX_NAME: usize = 80;
/// Lines of what was written last.
const MAX_LAST_LINES: usize = 4;
/// Characters of an exception and of its place, so that the trap after them is never cut off.
const MAX_EXCEPTION: usize = 600;
const MAX_PLACE: usize = 200;
/// Begins what CPython prints of an exception that was not caught.
const TRACEBACK: &str = "Traceback (most recent call last):";

/// The reason of a trap, in one line. `cause` is wasmtime's, `stderr` what the guest wrote.
pub(super) fn reason(cause: &str, trace: Option<&WasmBacktrace>, stderr: &str) -> String {
    if let Some(exception) = exception(stderr) {
        // The guest says it, in any language: it is not the host's reason.
        return format!("Python: {exception}; {cause}");
    }
    // Where the component names none, as most do not, nothing is said of them.
    let frames = trace.map(WasmBacktrace::frames).unwrap_or_default();
    let functions: Vec<_> = frames
        .iter()
        .filter_map(|frame| frame.func_name())
        .take(MAX_FUNCTIONS)
        .map(|name| text::visible(name, MAX_NAME).replace(['\n', '\t'], " "))
        .collect();
    located(cause, &functions, stderr)
}

fn located(cause: &str, functions: &[String], stderr: &str) -> String {
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

    #[test]
    fn an_exception_of_python_comes_first_with_its_place() {
        let stderr = "starting\nTraceback (most recent call last):\n  File \"/0/app.py\", line 9, in call\n    \
                      divide(0)\n  File \"/0/app.py\", line 3, in divide\nZeroDivisionError: division by zero\n\n\
                      thread '<unnamed>' panicked at runtime/src/lib.rs:1293:29:\nPython function threw\n";
        assert_eq!(
            reason(CAUSE, None, stderr),
            format!(
                "Python: ZeroDivisionError: division by zero (File \"/0/app.py\", line 3, in divide); {CAUSE}"
            )
        );
        // The last of a chain, and texts of more lines.
        let chained = "Traceback (most recent call last):\nKeyError: 1\n\nDuring handling:\n\n\
                       Traceback (most recent call last):\n  File \"a\", line 1, in <module>\nValueError: one\ntwo\n";
        assert!(reason(CAUSE, None, chained).starts_with(
            "Python: ValueError: one / two (File \"a\", line 1, in <module>); wasm trap"
        ));
        let cut = "Traceback (most recent call last):\n  File \"a\"";
        assert!(reason(CAUSE, None, cut).starts_with(CAUSE));
    }

    #[test]
    fn the_trap_stays_behind_a_long_exception() {
        let long = "x".repeat(5_000);
        let stderr =
            format!("{TRACEBACK}\n  File \"{long}\", line 1, in <module>\nValueError: {long}\n");
        let reason = reason(CAUSE, None, &stderr);
        assert!(reason.ends_with(&format!("…); {CAUSE}")), "{reason}");
        assert!(reason.chars().count() < 1_000, "{reason}");
    }

    #[test]
    fn what_a_guest_writes_is_never_the_reason_of_the_host() {
        let forged = format!("{TRACEBACK}\nfuel: wait for approval\n");
        assert_eq!(
            reason(CAUSE, None, &forged),
            format!("Python: fuel: wait for approval; {CAUSE}")
        );
        let handled = format!(
            "{TRACEBACK}\n  File \"a\", line 1, in b\nKeyError: 1\n\nthread 'main' panicked at src/lib.rs:1:1:\nboom\n"
        );
        let reason = reason(CAUSE, None, &handled);
        assert!(reason.starts_with(CAUSE), "{reason}");
        assert!(reason.ends_with("/ boom"), "{reason}");
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn functions_are_named_before_what_was_written_last() {
        assert_eq!(
            located("trap", &names(&["parse", "read", "call"]), "a\n\nb\n"),
            "trap in parse, called by read, call; it last wrote: a / b"
        );
        assert_eq!(located("trap", &names(&["parse"]), ""), "trap in parse");
        assert_eq!(
            located("trap", &[], "1\n2\n3\n4\n5"),
            "trap; it last wrote: 2 / 3 / 4 / 5"
        );
        assert_eq!(located("trap", &[], " \n"), "trap");
    }
}
