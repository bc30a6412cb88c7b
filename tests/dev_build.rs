//! `toolhold build --dev`: an edit of a module in Python is put into a base, and behaves as after a whole build.

use crate::new_module::answered;
use serde_json::Value;
use std::fs;
use support::host::Host;
use support::scale;
use toolhold_needs::has_program;

const MODULE: &str = r#"
from helper import GREETING
from toolhold import Tools, tool


@tool()
def seen(path: str) -> list[str]:
    """Tells what it sees."""
    import os
    import random
    import sys

    print("to stdout")
    print("to stderr", file=sys.stderr)
    # What a call leaves is not there in the next one.
    os.environ["CALLS"] = os.environ.get("CALLS", "") + "1"
    with open(path) as file:
        text = file.read()
    return [GREETING, text, os.environ.get("LANG", ""), os.environ["CALLS"], str(random.random()), __name__, __file__]


@tool()
def fails(by: int) -> int:
    """Divides."""
    return 1 // by
"#;

struct Author(Host);

impl Author {
    fn edit(&self, name: &str, text: &str) {
        fs::write(self.0.path().join("modules/words").join(name), text).unwrap();
    }

    /// Whether the build was a dev build.
    fn build(&self) -> Option<bool> {
        let built = answered("build", || self.0.run(&["build", "--dev", "words"]))?;
        assert_eq!(built.code, Some(0), "{built:?}");
        Some(built.stdout.contains("dev build"))
    }

    fn call(&self, tool: &str, arguments: &str) -> (Value, String) {
        let data = format!("words={}:/data", self.0.path().join("data").display());
        let done = self.0.run(&[
            "modules",
            "call",
            tool,
            arguments,
            "--trust-all",
            "--dir",
            &data,
            "--env",
            "words=LANG=tlh",
        ]);
        let value = serde_json::from_str(&done.stdout).unwrap_or_default();
        (value, done.stderr)
    }

    fn seen(&self) -> (Value, String) {
        self.call("words.seen", r#"{"path": "/data/file"}"#)
    }
}

/// The parts that other tests hold for each change are tried as a whole in `cargo xtask test --long`, because an
/// interpreter costs 25 s of a processor to be built and compiled: the frames of a whole build
/// (`new_module::languages::a_module_in_python` has its message), and a second base (the tests of `python_dev.rs` have
/// which edits get one).
#[test]
fn an_edit_is_put_into_a_base_and_behaves_as_after_a_whole_build() {
    if !has_program("python3", "no dev build is made") {
        return;
    }
    let is_whole = scale(false, true);
    let author = Author(Host::new());
    let made = author.0.run(&["new-module", "words", "--lang", "python"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    author.0.write("data/file", "content");
    author.edit("app.py", MODULE);
    author.edit("helper.py", "GREETING = 'first'\n");
    let Some(is_dev) = author.build() else {
        return;
    };
    assert!(is_dev, "the first one too");

    // Files, variables, output and random numbers are those of the call, and nothing stays of it.
    author.edit("helper.py", "GREETING = 'second'\n");
    assert_eq!(author.build(), Some(true));
    let (one, said) = author.seen();
    let (two, _) = author.seen();
    for (index, expected) in ["second", "content", "tlh", "1"].iter().enumerate() {
        assert_eq!(one[index], *expected, "{one} {said}");
        assert_eq!(two[index], *expected, "{two}");
    }
    assert_ne!(one[4], two[4], "random numbers");
    assert_eq!(one[5], "app", "{one}");
    assert_eq!(one[6], "/0/app.py", "{one}");
    assert!(
        said.contains("to stdout") && said.contains("to stderr"),
        "{said}"
    );

    // It tells failures as a component from a whole build does.
    let (_, dev_told) = author.call("words.fails", r#"{"by": 0}"#);
    let dev_frames = frames(&dev_told);
    assert!(dev_frames.len() > 2, "{dev_told}");
    assert!(
        dev_told.contains("fails raised ZeroDivisionError: ")
            && dev_told.contains(" (app.py, line ")
            && dev_frames.iter().any(|line| line.contains("\"/0/app.py\"")),
        "{dev_told}"
    );
    if is_whole {
        let whole = author.0.run(&["build", "words"]);
        assert!(
            whole.code == Some(0) && !whole.stdout.contains("dev build"),
            "{whole:?}"
        );
        let (_, whole_told) = author.call("words.fails", r#"{"by": 0}"#);
        assert_eq!(dev_frames, frames(&whole_told));
        let (whole_saw, _) = author.seen();
        assert_eq!((&whole_saw[5], &whole_saw[6]), (&one[5], &one[6]));
    }

    // An exception at the top level ends the build, with its traceback.
    author.edit("helper.py", "GREETING = {}['no']\n");
    let failed = author.0.run(&["build", "--dev", "words"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    for part in [
        "Traceback (most recent call last)",
        "File \"/0/app.py\", line 2, in <module>",
        "File \"/0/helper.py\", line 1, in <module>",
        "GREETING = {}['no']",
        "KeyError: 'no'",
    ] {
        assert!(failed.stderr.contains(part), "{part}: {}", failed.stderr);
    }
    assert!(!failed.stderr.contains("toolhold_dev"), "{}", failed.stderr);

    // What is not in the base gets a base of its own.
    if is_whole {
        author.edit(
            "helper.py",
            "import statistics\nGREETING = str(statistics.mean([2, 4]))\n",
        );
        assert_eq!(author.build(), Some(true));
        assert_eq!(author.seen().0[0], "3");
    }

    // What needs more than memory is built as a whole.
    author.edit("helper.py", "print('at import')\nGREETING = 'printed'\n");
    assert_eq!(author.build(), Some(false));
}

/// The lines of a traceback that name a place or the exception.
fn frames(told: &str) -> Vec<String> {
    let lines = told
        .lines()
        .filter(|line| line.contains("File \"") || line.contains("Error"));
    lines.map(str::to_owned).collect()
}
