//! What a person reads of the command line, whole: help, output and errors, as snapshots.
//!
//! What differs between machines and runs is a placeholder in them, such as `[time]`. CONTRIBUTING.md has the
//! command that writes them anew.

mod errors;
mod help;
mod modules;
mod operator;
mod plans;
mod runs;

use std::fmt::Write as _;
use std::io::Read as _;
use std::process::Command;
use support::endpoint::Endpoint;
use support::host::{Host, binary};

/// A folder in which commands run one after the other, and what each of them showed.
struct Terminal {
    host: Host,
    text: String,
    /// Texts of this machine and run, and what stands for each.
    places: Vec<(String, &'static str)>,
}

impl Terminal {
    fn new() -> Self {
        let host = Host::new();
        let folder = host.path().display().to_string();
        let compiled = binary().with_file_name("toolhold-test-state");
        let places = vec![
            (compiled.display().to_string(), "[cache]"),
            (folder, "[folder]"),
        ];
        Self {
            host,
            text: String::new(),
            places,
        }
    }

    /// With these shipped modules.
    fn with(modules: &[&str]) -> Self {
        let terminal = Self::new();
        for module in modules {
            terminal.host.ship(module);
        }
        terminal
    }

    /// Configures the endpoint, without waits between attempts.
    fn ask(&mut self, endpoint: &Endpoint, more: &str) -> &mut Self {
        let url = endpoint.base_url();
        let configuration =
            format!("[endpoints.default]\nbase_url = \"{url}\"\nbackoff_ms = 1\n{more}");
        self.host.write("toolhold.toml", configuration);
        self.places.push((endpoint.address(), "[address]"));
        self
    }

    /// Runs a command, and adds what it shows.
    fn run(&mut self, arguments: &[&str]) -> &mut Self {
        let command = self.host.command(arguments);
        self.finish(command)
    }

    fn finish(&mut self, command: Command) -> &mut Self {
        let said: Vec<String> = command.get_args().map(quoted).collect();
        let shown = shown(command);
        self.add(&said.join(" "), &shown)
    }

    fn add(&mut self, said: &str, shown: &str) -> &mut Self {
        let _ = writeln!(self.text, "$ toolhold {said}\n{shown}");
        self
    }

    /// Compares all of it with the snapshot of this name.
    fn is_as(&self, name: &str) {
        let mut text = self.text.clone();
        for (place, placeholder) in &self.places {
            text = text.replace(place, placeholder);
        }
        compare("output", name, &text, &FILTERS);
    }
}

/// As a person would type it in a shell.
fn quoted(argument: &std::ffi::OsStr) -> String {
    let text = argument.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.into_owned()
    } else {
        format!("'{text}'")
    }
}

/// What a command writes to stdout and stderr, in this order, as a terminal shows it; then how it ended.
fn shown(mut command: Command) -> String {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let both = writer.try_clone().expect("a pipe");
    let mut child = command.stdout(writer).stderr(both).spawn();
    // It holds the pipe's other end.
    drop(command);
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("text");
    let child = child.as_mut().expect("the binary runs");
    let status = child.wait().expect("it ends");
    if status.code() != Some(0) {
        let _ = writeln!(text, "[{status}]");
    }
    text
}

/// What differs between machines and runs, and what stands for it.
const FILTERS: [(&str, &str); 19] = [
    // Said while the cache of compiled modules is empty.
    (r"(?m)^compiling .*, once\n", ""),
    (
        r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "[id]",
    ),
    (r"\b[0-9a-f]{64}\b", "[digest]"),
    (r"dialects/[0-9a-f]{32}", "dialects/[digest]"),
    (r"sha256:[0-9a-f]{12}…", "sha256:[digest]"),
    (r"\bth_[A-Za-z0-9_-]{43}", "[key]"),
    (r"\w{3}, \d{2} \w{3} \d{4} \d{2}:\d{2}:\d{2} GMT", "[date]"),
    (r"found on \d{4}-\d{2}-\d{2}", "found on [date]"),
    (r" *\b(just now|\d+ min ago)", " [ago]"),
    (r"\b\d+\.\d m?s\b|\b\d+ µs", "[time]"),
    (r"made again in \d+ ms", "made again in [time]"),
    (r#""duration_us":\d+"#, r#""duration_us":[n]"#),
    (r"fuel \d+(\.\d)?( [kMG]\b)?", "fuel [n]"),
    (r"memory \d+(\.\d)? ([KMG]iB|B)", "memory [n]"),
    (r"\b\d+(\.\d)? ([KMG]iB|B)(,? +sha256)", "[size]$3"),
    (r"uid:\d+", "uid:[n]"),
    (r"os error \d+", "os error [n]"),
    (r"\d+ of \d+ values", "[n] of [n] values"),
    (r"exit status: ", "exit "),
];

/// Compares `text` with `tests/cli_snapshots/FOLDER/NAME.snap`, and holds it to what every text for people keeps.
fn compare(folder: &str, name: &str, text: &str, filters: &[(&str, &str)]) {
    for line in text.lines() {
        assert!(!line.ends_with(' '), "{name}: a trailing blank: {line:?}");
        assert!(!line.contains('\u{1b}'), "{name}: an escape: {line:?}");
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_filters(filters.iter().copied());
    settings.bind(|| insta::assert_snapshot!(name, text));
}
