//! Inputs of a configuration besides its tables.

use secrecy::{ExposeSecret as _, SecretString};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use thiserror::Error;
use toolhold_policy::Digest;
use toolhold_sandbox::{CompilerProcess, ReservedPath};

/// Values that [`Tables`](super::Tables) refer to and do not hold: secrets, the user's folders, and the
/// origins of keys. The caller provides them.
pub struct ConfigContext<'a> {
    /// The value of an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The text of a file that holds a module's secret.
    pub secret_file: &'a dyn Fn(&Path) -> std::io::Result<String>,
    /// Folder of pins, grants and the database, unless `paths.state` names another.
    pub state_folder: PathBuf,
    /// Folder of compiled modules, fetched components and toolchains, unless `paths.cache` names another.
    pub cache_folder: PathBuf,
    /// Where modules are found besides, if `modules.folder` is the default.
    pub usual_modules: UsualModules,
    /// Compiles components in a process of its own if it is given. Without it they are
    /// compiled in this process.
    pub compiler: Option<CompilerProcess>,
    /// Modules with grants from this command line alone.
    pub one_off_grants: BTreeSet<String>,
    /// Whether `run.max_tokens` is the default and was not set.
    pub is_max_tokens_default: bool,
    /// Whether `run.temperature` is the default and was not set.
    pub is_temperature_default: bool,
    /// Whether a key is set by a file that was found in the working folder and not named by the user: another
    /// person may have written it.
    pub is_untrusted: &'a dyn Fn(&str) -> bool,
    /// Further variables with secret values, which are removed from all records.
    pub secret_variables: Vec<String>,
    /// Files beside those of the tables that the host takes decisions from, or runs: configuration files, stored
    /// secrets, certificates, the program itself.
    pub reserved: Vec<ReservedPath>,
    /// The `PATH` in which the programs of MCP servers are looked up.
    pub program_path: Option<String>,
    /// The home folder of the programs of MCP servers.
    pub home: Option<PathBuf>,
}

/// Folders with modules that are there wherever a command is started.
#[derive(Debug, Clone, Default)]
pub struct UsualModules {
    /// The user's own, which stands in for a modules folder that does not exist.
    pub users: Option<PathBuf>,
    /// The modules that come with the program.
    pub shipped: Option<ShippedModules>,
    /// The digest of the component that comes with the program under a module's name.
    pub digest: Option<fn(&str) -> Option<Digest>>,
}

/// The folder of the modules that come with the program. It is made, or compared with what it should be, when it is
/// first needed: most commands need none of them, and it is megabytes.
#[derive(Clone)]
pub struct ShippedModules(Arc<LazyLock<ShippedFolder, PutShipped>>);

/// The folder, or why it is not there.
type ShippedFolder = Result<PathBuf, String>;
type PutShipped = Box<dyn FnOnce() -> ShippedFolder + Send>;

impl ShippedModules {
    /// `put` makes the folder.
    pub fn new(put: impl FnOnce() -> Result<PathBuf, String> + Send + 'static) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(put))))
    }

    /// Reads and writes files when it is first called.
    pub fn folder(&self) -> &Result<PathBuf, String> {
        &self.0
    }
}

impl std::fmt::Debug for ShippedModules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ShippedModules(…)")
    }
}

impl std::fmt::Debug for ConfigContext<'_> {
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
pub struct ConfigFault {
    /// Dotted path, such as `run.max_steps`.
    pub key: String,
    pub reason: String,
}

impl ConfigFault {
    pub fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            reason: reason.into(),
        }
    }

    /// The same fault, of a table that stands at the key `table`.
    pub(super) fn below(self, table: &str) -> Self {
        let key = format!("{table}.{}", self.key);
        Self { key, ..self }
    }
}

/// # Errors
/// The first of the keys whose number is 0.
pub(super) fn at_least_one<'k>(
    zero: impl IntoIterator<Item = (&'k str, bool)>,
) -> Result<(), ConfigFault> {
    match zero.into_iter().find(|(_, is_zero)| *is_zero) {
        Some((key, _)) => Err(ConfigFault::new(key, "must be at least 1")),
        None => Ok(()),
    }
}

/// The environment variables that a configuration names, with their values when it was loaded.
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
