//! Runs a build's commands: no input, everything they print in one log, and an error that shows its
//! end. They end with the build, whatever they wait for.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::control::CommandEnd;
use super::{BuildControl, BuildError, Failure};
use toolhold_json::hex::sha256;

/// Fits a terminal without scrolling; compilers print the reason last.
const TAIL_LINES: usize = 30;
/// Maximum bytes that are read of an answer. Cargo's about a large workspace has a tenth of it.
const MAX_ANSWER_BYTES: u64 = 64 << 20;

/// The file that collects what a build's commands print.
#[derive(Debug)]
pub struct Log {
    pub path: PathBuf,
    pub control: BuildControl,
}

/// A tool that must be on the PATH, and how to install it.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    pub program: &'static str,
    pub language: &'static str,
    pub install: &'static str,
}

impl Tool {
    pub fn command(self) -> Command {
        Command::new(self.program)
    }

    /// The error for a program that could not be started: missing, or not allowed.
    fn not_started(self, error: io::Error) -> BuildError {
        let Self {
            program: tool,
            language,
            install,
        } = self;
        if error.kind() == ErrorKind::NotFound {
            return BuildError::MissingTool {
                tool,
                language,
                install,
            };
        }
        BuildError::Io {
            action: "run",
            path: tool.into(),
            source: error,
        }
    }
}

impl Log {
    /// Creates the log of a build of the module `module` in the folder `source`. Modules of one name in two folders have
    /// a log each, because they may be built at the same time.
    pub fn create(
        toolchains: &Path,
        module: &str,
        source: &Path,
        control: BuildControl,
    ) -> Result<Self, BuildError> {
        let directory = toolchains.join("logs");
        fs::create_dir_all(&directory).map_err(BuildError::io("create", &directory))?;
        let source = source.canonicalize().unwrap_or_else(|_| source.to_owned());
        let folder = sha256(source.as_os_str().as_encoded_bytes());
        let path = directory.join(format!("{module}-{folder:.8}.log"));
        File::create(&path).map_err(BuildError::io("create", &path))?;
        Ok(Self { path, control })
    }

    /// Runs a command to its end. `tool` is the program that it needs, `advice` the remedy of a failure.
    pub fn run(
        &self,
        command: &mut Command,
        tool: Tool,
        advice: &'static str,
    ) -> Result<(), BuildError> {
        let stdout = self.append()?;
        self.finish(command, stdout, tool, advice)
    }

    /// The same for a command whose standard output is its result; the log has stderr.
    pub fn query(
        &self,
        command: &mut Command,
        tool: Tool,
        advice: &'static str,
    ) -> Result<String, BuildError> {
        // A file and not a pipe, which a process that the command leaves behind could hold open.
        let failed = || BuildError::io("read the answer for", &self.path);
        let mut answer = tempfile::tempfile().map_err(failed())?;
        let stdout = answer.try_clone().map_err(failed())?;
        self.finish(command, stdout, tool, advice)?;
        let mut text = Vec::new();
        answer
            .rewind()
            .and_then(|()| answer.take(MAX_ANSWER_BYTES).read_to_end(&mut text))
            .map_err(failed())?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn finish(
        &self,
        command: &mut Command,
        stdout: File,
        tool: Tool,
        advice: &'static str,
    ) -> Result<(), BuildError> {
        let mut log = self.append()?;
        let line = shown(command);
        writeln!(log, "$ {line}").map_err(BuildError::io("write", &self.path))?;
        // Otherwise componentize-py prints sixty lines of its own frames below the reason.
        command.env("RUST_BACKTRACE", "0");
        let end = self
            .control
            .run(command, stdout, log)
            .map_err(|error| tool.not_started(error))?;
        match end {
            CommandEnd::Exited(status) if status.success() => Ok(()),
            CommandEnd::Exited(status) => Err(Box::new(Failure {
                command: line,
                status: status.to_string(),
                tail: self.tail(),
                advice,
                log: self.path.clone(),
            })
            .into()),
            CommandEnd::Stopped(stopped) => Err(BuildError::stopped(stopped, &line)),
        }
    }

    /// Adds a line of our own to the log, about an anomaly that is not a failure.
    pub fn note(&self, line: &str) -> Result<(), BuildError> {
        writeln!(self.append()?, "{line}").map_err(BuildError::io("write", &self.path))
    }

    fn append(&self) -> Result<File, BuildError> {
        let open = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&self.path);
        open.map_err(BuildError::io("write", &self.path))
    }

    fn tail(&self) -> String {
        let text = fs::read(&self.path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

/// A command as typed in a shell, accurate enough to try it by hand.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted = words.map(|word| {
        let word = word.to_string_lossy();
        if word.contains(char::is_whitespace) {
            format!("'{word}'")
        } else {
            word.into_owned()
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    const SHELL: Tool = Tool {
        program: "sh",
        language: "test",
        install: "install a shell",
    };

    fn log() -> (tempfile::TempDir, Log) {
        let directory = tempfile::tempdir().unwrap();
        let control = BuildControl::new(std::time::Duration::from_mins(1));
        let log = Log::create(directory.path(), "module", directory.path(), control).unwrap();
        (directory, log)
    }

    #[test]
    fn modules_of_one_name_in_two_folders_have_a_log_each() {
        let (_directory, one) = log();
        let (other, _) = log();
        let control = BuildControl::new(std::time::Duration::from_mins(1));
        let toolchains = one.path.ancestors().nth(2).unwrap();
        let second = Log::create(toolchains, "module", other.path(), control).unwrap();
        assert_eq!(one.path.parent(), second.path.parent());
        assert_ne!(one.path, second.path);
    }

    #[test]
    fn a_failure_shows_the_end_of_both_streams_and_the_advice() {
        let (_directory, log) = log();
        let script = "seq 100; echo reason >&2; exit 3";
        let error = log
            .run(SHELL.command().args(["-c", script]), SHELL, "mend it")
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("`sh -c '{script}'` failed (exit status: 3)")),
            "{text}"
        );
        assert!(
            text.contains("\n100\nreason\n") && !text.contains("\n60\n"),
            "{text}"
        );
        assert!(text.contains("next: mend it; the whole log is "), "{text}");
    }

    #[test]
    fn a_query_answers_with_standard_output_alone() {
        let (_directory, log) = log();
        let mut command = SHELL.command();
        command.args(["-c", "echo answer; echo noise >&2"]);
        assert_eq!(log.query(&mut command, SHELL, "").unwrap(), "answer\n");
        assert!(fs::read_to_string(&log.path).unwrap().ends_with("noise\n"));
    }

    #[test]
    fn a_missing_program_says_how_to_get_it() {
        let (_directory, log) = log();
        let tool = Tool {
            program: "toolhold-no-such-program",
            ..SHELL
        };
        let error = log.run(&mut tool.command(), tool, "").unwrap_err();
        assert!(matches!(error, BuildError::MissingTool { .. }));
        assert!(error.to_string().ends_with("install a shell"));
    }
}
