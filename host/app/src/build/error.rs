//! Why a build ended without a component, and what to do next.

use std::io;
use std::path::{Path, PathBuf};

use super::UnknownLanguage;

/// A build that did not come to its end. Every message ends with the next step.
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
        "{path} does not say how to build its component: add\n[build]\nlanguage = \"rust\"  # or python, javascript, typescript",
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
        "cargo built {path} but no component came out: its Cargo.toml needs\n[lib]\ncrate-type = [\"cdylib\"]",
        path = path.display()
    )]
    NoArtefact { path: PathBuf },
}

/// A command that ended with a failure.
#[derive(Debug, thiserror::Error)]
#[error("`{command}` failed ({status})\n{tail}\n\nnext: {advice}; the whole log is {log}", log = log.display())]
pub struct Failure {
    /// As somebody would type it.
    pub command: String,
    /// `exit status: 101`.
    pub status: String,
    /// The last lines of what it printed.
    pub tail: String,
    /// What to do about it.
    pub advice: &'static str,
    /// Where all of it is.
    pub log: PathBuf,
}

impl BuildError {
    /// For `map_err`: what was tried, and on which path.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
