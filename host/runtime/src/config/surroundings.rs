//! What a configuration takes from outside of its tables.

use secrecy::{ExposeSecret as _, SecretString};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use thiserror::Error;
use toolhold_sandbox::CompilerProcess;

/// What [`Tables`](super::Tables) refer to and do not hold: the values of secrets, folders of the user, and
/// who set a key. The caller reads them from wherever it keeps them.
pub struct Surroundings<'a> {
    /// The value of an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The text of a file that holds a module's secret.
    pub secret_file: &'a dyn Fn(&Path) -> std::io::Result<String>,
    /// For approvals, grants and the database, unless `paths.state` names another folder.
    pub state_folder: PathBuf,
    /// For compiled modules, fetched components and toolchains, unless `paths.cache` names another folder.
    pub cache_folder: PathBuf,
    /// Compiles components in a process of its own, where `compiler.own_process` says so. Without it they are
    /// compiled in this process.
    pub compiler: Option<CompilerProcess>,
    /// Modules that this command line alone gives something to.
    pub one_off_grants: BTreeSet<String>,
    /// Whether `run.max_tokens` is the default and nobody's choice.
    pub is_max_tokens_default: bool,
    /// Whether a key is set by a file that was found in the working folder and that nobody named: it may come
    /// from somebody else.
    pub is_untrusted: &'a dyn Fn(&str) -> bool,
    /// Further variables whose values are secrets, and are taken out of all records.
    pub secret_variables: Vec<String>,
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings")
            .field("state_folder", &self.state_folder)
            .field("cache_folder", &self.cache_folder)
            .field("compiler", &self.compiler)
            .finish_non_exhaustive()
    }
}

/// A value that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{key:?}: {reason}")]
pub struct Fault {
    /// With dots, such as `run.max_steps`.
    pub key: String,
    pub reason: String,
}

impl Fault {
    pub fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            reason: reason.into(),
        }
    }
}

/// The environment variables that a configuration names, with their values at the time when it was loaded.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables(BTreeMap<String, SecretString>);

impl Variables {
    /// Reads those of `names` that are set.
    pub(super) fn read<'n>(
        names: impl Iterator<Item = &'n str>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let named = names.filter(|name| !name.is_empty());
        let set = named.filter_map(|name| Some((name.to_owned(), variable(name)?.into())));
        Self(set.collect())
    }

    /// The value of a variable, if it is set and not blank.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name)?.expose_secret();
        (!value.trim().is_empty()).then_some(value)
    }
}
