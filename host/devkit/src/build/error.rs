//! Errors of builds, with the next step.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Language, Stopped, UnknownLanguage};

/// A failed build. Every message ends with the next step.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },

    #[error("{path} is not a module manifest: {source}", path = path.display())]
    Manifest {
        path: PathBuf,
        source: Box<toml::de::Error>,
    },

    #[error(
        "{path} does not say how to build its component: add\n[build]\nlanguage = \"rust\"  # or c, go, python, javascript, typescript",
        path = path.display()
    )]
    NoRecipe { path: PathBuf },

    #[error("{path}: {source}", path = path.display())]
    Language {
        path: PathBuf,
        source: UnknownLanguage,
    },

    #[error(
        "{path}: `{key} = \"{found}\"` must be {wanted}", path = path.display()
    )]
    BadValue {
        path: PathBuf,
        key: &'static str,
        found: String,
        wanted: &'static str,
    },

    #[error(
        "the module {writer} may write {path}, and building {language} runs its source with your rights: read it, and \
         then build it with `toolhold build --yes`",
        path = path.display()
    )]
    Unread {
        writer: String,
        language: Language,
        path: PathBuf,
    },

    #[error("{path}, line {line}: `{text}` is not taken: {reason}", path = path.display())]
    Requirement {
        path: PathBuf,
        line: usize,
        text: String,
        reason: &'static str,
    },

    #[error("{path} is missing: {advice}", path = path.display())]
    NoSource { path: PathBuf, advice: &'static str },

    #[error("`{tool}` is not on the PATH, and building {language} modules needs it: {install}")]
    MissingTool {
        tool: &'static str,
        language: &'static str,
        install: &'static str,
    },

    #[error(
        "the Rust target wasm32-wasip2 is not installed and there is no rustup to add it: install \
         Rust through rustup, or your distribution's package of that target"
    )]
    MissingTarget,

    #[error(transparent)]
    Command(#[from] Box<Failure>),

    #[error(
        "the build was stopped after {} s, while it was at `{command}`: give it more with --timeout (`toolhold build`) or \
         --build-timeout (`toolhold modules watch`)", timeout.as_secs()
    )]
    Deadline { timeout: Duration, command: String },

    #[error("the build was stopped")]
    Cancelled,

    #[error(
        "{path} compiled, but does not fit the world `{world}`: {reason}\nnext: export every function \
         that the world in its WIT has, with the types it has there", path = path.display()
    )]
    World {
        path: PathBuf,
        world: String,
        reason: String,
    },

    #[error("{path} compiled, but its imports cannot be used: {reason}", path = path.display())]
    Imports { path: PathBuf, reason: String },

    #[error(
        "{path}: {compiler} {version} laid this module out in a way that is not known here; this is a \
         fault of toolhold: please report it with the module", path = path.display()
    )]
    UnknownLayout {
        path: PathBuf,
        compiler: &'static str,
        version: &'static str,
    },

    #[error(
        "{path} is not what `[build.sources]` pins: its SHA-256 is {found} and {expected} was expected; \
         nothing was compiled. Pin it anew only after you know why it changed", path = path.display()
    )]
    Digest {
        path: PathBuf,
        expected: String,
        found: String,
    },

    #[error(
        "cargo built {path} but no component came out: its Cargo.toml needs\n[lib]\ncrate-type = [\"cdylib\"]",
        path = path.display()
    )]
    NoArtefact { path: PathBuf },

    #[error(
        "{path} has more than {limit} files and folders, and is not watched: move what is no source out of it, or build it with \
         `toolhold build`", path = path.display()
    )]
    TooManyFiles { path: PathBuf, limit: usize },

    #[error(
        "the docs of {path} cannot be appended: {reason}; the toolchain must make a component, not a \
         core module", path = path.display()
    )]
    Docs { path: PathBuf, reason: String },
}

/// A command that ended with a failure.
#[derive(Debug, thiserror::Error)]
#[error("`{command}` failed ({status})\n{tail}\n\nnext: {advice}; the whole log is {log}", log = log.display())]
pub struct Failure {
    /// The command as typed in a shell.
    pub command: String,
    /// `exit status: 101`.
    pub status: String,
    /// The last lines of its output.
    pub tail: String,
    /// The remedy.
    pub advice: &'static str,
    /// Path of the whole log.
    pub log: PathBuf,
}

impl BuildError {
    /// `at` is the command, or what was waited for.
    pub(super) fn stopped(stopped: Stopped, at: &str) -> Self {
        match stopped {
            Stopped::Cancelled => Self::Cancelled,
            Stopped::Deadline { timeout } => Self::Deadline {
                timeout,
                command: at.to_owned(),
            },
        }
    }

    /// For `map_err`: the action that failed and its path.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
