//! `[modules]`, `[module.NAME]`, `[limits]`, `[ceiling]` and `[oci]`: the sources and the
//! grants of modules.

use crate::config::configuration::Configuration;
use crate::config::machine_memory;
use crate::config::surroundings::ConfigContext;
use secrecy::SecretString;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use toolhold_admission::own_work;
use toolhold_mcp as mcp;
use toolhold_policy::{
    Clocks, DirectoryGrant, Grant, HttpGrant, KeyValueGrant, KnowledgeGrant, Limits, LimitsRequest,
    LogLevel, Origin, Randomness, Reflect, ScratchGrant, SecretGrant, SecretPlace, SecretSlot,
};
use toolhold_sandbox::{
    Compiler, EngineConfig, ModulePolicy, PinFolder, Pinning, Policy, ServerNames, Storage,
};

#[derive(Debug, Clone, Deserialize)]
pub(super) struct ModulesTable {
    folder: PathBuf,
    roots: Vec<PathBuf>,
    start_timeout_ms: u64,
    pub(super) concurrent_calls: u32,
    waiting_calls: u32,
    calls_per_minute: u32,
    kept_bytes: u64,
    /// When a module, or an MCP server, needs a person before it is pinned.
    pub(super) pinning: mcp::Pinning,
}

impl ModulesTable {
    pub(super) fn has_folder(&self) -> bool {
        self.folder.exists()
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ModuleTable {
    /// An `oci://` reference; a wrong one fails the module, not the configuration.
    source: Option<String>,
    directories: Vec<DirectoryGrant>,
    scratch: Option<ScratchGrant>,
    environment: BTreeMap<String, String>,
    http: Vec<HttpGrant>,
    pub(super) secrets: Vec<SecretTable>,
    key_value: Option<KeyValueGrant>,
    knowledge: Option<KnowledgeGrant>,
    tools: Vec<String>,
    clocks: Clocks,
    randomness: Randomness,
    log_level: LogLevel,
    pub(super) limits: LimitsRequest,
}

/// A secret: its destination, and the source of its value. The value itself is never in a file of ours.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretTable {
    pub(super) name: String,
    origin: Origin,
    place: SecretPlace,
    /// The environment variable that holds it.
    env: Option<String>,
    /// Or the file.
    pub(super) file: Option<PathBuf>,
    /// What is done with a response that holds it.
    #[serde(default)]
    reflect: Reflect,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct OciTable {
    offline: bool,
    insecure: Vec<String>,
    pub(super) timeout_ms: u64,
}

impl Configuration {
    /// The folder whose components become tools: the configured one, or the user's where that does not exist.
    pub fn modules_folder(&self) -> &Path {
        let users = self.users_modules.as_ref();
        users.unwrap_or(&self.tables.modules.folder)
    }

    /// The configured folder, in which commands put new modules.
    pub fn new_modules_folder(&self) -> &Path {
        &self.tables.modules.folder
    }

    /// The folder of components that clients upload. A project that has its state in its own folder has them there, too,
    /// and not in the user's folder, where every other project would find them.
    pub fn uploads_folder(&self) -> &Path {
        if self.has_own_state() && lies_below(self.state_folder(), &self.tables.modules.folder) {
            &self.tables.modules.folder
        } else {
            self.modules_folder()
        }
    }

    /// Whether the configured folder is there, and nothing stands in for it.
    pub fn has_own_modules(&self) -> bool {
        self.users_modules.is_none() && self.tables.modules.has_folder()
    }

    /// Goes on with the modules folder that a process began with, if the same is configured: a folder may have appeared
    /// for which the user's stood in, or have gone. Returns whether it was so.
    pub fn keep_modules_folder(&mut self, held: &Self) -> bool {
        let is_other = self.tables.modules.folder == held.tables.modules.folder
            && self.users_modules != held.users_modules;
        if is_other {
            self.users_modules.clone_from(&held.users_modules);
        }
        is_other
    }

    /// The folder of the modules that come with the program. Of them, those are loaded whose names are needed and in no
    /// other place; all of them, if there is no modules folder and nothing else is configured that has tools.
    ///
    /// It reads and writes files when it is first called; [`Self::put_shipped_modules`] does so without blocking.
    pub fn shipped_modules(&self) -> Option<&Path> {
        let folder = self.shipped_modules.as_ref()?.folder().as_ref();
        folder.ok().map(PathBuf::as_path)
    }

    /// Why the modules that come with the program are not there.
    pub fn shipped_fault(&self) -> Option<&str> {
        let folder = self.shipped_modules.as_ref()?.folder().as_ref();
        folder.err().map(String::as_str)
    }

    /// Puts the modules that come with the program into their folder.
    pub async fn put_shipped_modules(&self) {
        if let Some(shipped) = self.shipped_modules.clone() {
            // What it found is asked for later.
            let put = move || shipped.folder().is_ok();
            let _ = own_work(put).await;
        }
    }

    /// Whether there is a place that modules could be loaded from.
    pub fn has_modules(&self) -> bool {
        self.modules_folder().exists()
            || self.sources().next().is_some()
            || self.shipped_modules().is_some()
    }

    /// Folders from which components may be loaded by path.
    pub fn module_roots(&self) -> &[PathBuf] {
        match self.tables.modules.roots.as_slice() {
            [] => std::slice::from_ref(&self.tables.modules.folder),
            roots => roots,
        }
    }

    /// Time for the modules to be loaded before a server begins without those that are not ready.
    pub fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.tables.modules.start_timeout_ms)
    }

    pub fn engine(&self) -> EngineConfig {
        let largest = [
            self.tables.limits.memory_bytes,
            self.tables.ceiling.memory_bytes,
        ]
        .into_iter()
        .chain(self.tables.module.values().map(|m| m.limits.memory_bytes))
        .flatten()
        .max()
        .unwrap_or(512 << 20);
        EngineConfig {
            concurrent_calls: self.tables.modules.concurrent_calls,
            waiting_calls: self.tables.modules.waiting_calls,
            calls_per_minute: self.tables.modules.calls_per_minute,
            kept_bytes: match self.tables.modules.kept_bytes {
                0 => machine_memory::share(),
                bytes => bytes,
            },
            max_memory_bytes: usize::try_from(largest).unwrap_or(usize::MAX),
            compiler: self.compiler(),
            debug_info: self.debug_info.then(|| self.toolchains_folder()),
        }
    }

    /// For an author, who waits for the compiler while no calls run: components are compiled on all cores,
    /// and crashes name lines of the source.
    pub fn serve_author(&mut self) {
        if let Some(process) = &mut self.compiler {
            process.serves_author = true;
        }
        self.debug_info = true;
    }

    /// Where builds install compilers, and keep what they use again.
    pub fn toolchains_folder(&self) -> PathBuf {
        self.cache_folder().join("toolchains")
    }

    fn compiler(&self) -> Compiler {
        match &self.compiler {
            Some(process) => Compiler::Process(process.clone()),
            None => Compiler::InProcess,
        }
    }

    pub fn policy(&self) -> Policy {
        let decided = self.tables.module.iter().map(|(name, table)| {
            let (grant, fault) = match self.grants.get(name) {
                Some(Ok(grant)) => (grant.clone(), None),
                Some(Err(reason)) => (Grant::default(), Some(reason.clone())),
                None => (Grant::default(), None),
            };
            let policy = ModulePolicy {
                limits: table.limits.clone(),
                grant,
                one_off: self.one_off.contains(name),
                fault,
            };
            (name.clone(), policy)
        });
        let kept = self.state_folder().join("modules");
        Policy {
            limits: self.limits(),
            ceiling: Limits::default_ceiling().overridden(&self.tables.ceiling),
            pinning: match self.tables.modules.pinning {
                mcp::Pinning::Never => Pinning::Off,
                asked => Pinning::Required {
                    pins: Arc::new(self.module_pins()),
                    first_sight: asked == mcp::Pinning::FirstSight,
                },
            },
            storage: Storage {
                scratch: Some(kept.join("scratch")),
                key_value: Some(kept.join("key-value")),
            },
            modules: decided.collect(),
            servers: self.server_names(),
            shipped: self.shipped_digest.unwrap_or(|_| None),
            reserved: self.reserved().into(),
            ..Policy::default()
        }
    }

    /// The MCP servers that offer their tools under their names.
    fn server_names(&self) -> ServerNames {
        let offering = self.servers().into_iter().filter(|server| server.offer);
        ServerNames {
            names: offering.map(|server| server.name).collect(),
            pins: Some(Arc::new(self.pins_of_servers())),
        }
    }

    /// Limits of a module that requests none.
    fn limits(&self) -> Limits {
        Limits::default().overridden(&self.tables.limits)
    }

    /// Returns the folder of pins of modules. Each modules folder has its own.
    pub fn module_pins(&self) -> PinFolder {
        let folder = &self.tables.modules.folder;
        let absolute = folder
            .canonicalize()
            .or_else(|_| std::path::absolute(folder))
            .unwrap_or_else(|_| folder.clone());
        let bytes = absolute.as_os_str().as_encoded_bytes();
        let name = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, bytes);
        let folder = self.state_folder().join("approvals");
        PinFolder::new(folder.join(name.simple().to_string()))
    }

    /// The modules that come from a registry: name and reference, as written.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tables
            .module
            .iter()
            .filter_map(|(name, table)| Some((name.as_str(), table.source.as_deref()?)))
    }

    /// The names of `[module.NAME]` tables that the files have and no flag adds to.
    pub fn configured_modules(&self) -> impl Iterator<Item = &str> {
        let names = self.tables.module.keys().map(String::as_str);
        names.filter(|name| !self.one_off.contains(*name))
    }

    /// The modules to which the command line gives something, by name.
    pub fn given_by_flags(&self) -> impl Iterator<Item = &str> {
        self.one_off.iter().map(String::as_str)
    }

    /// How components are fetched, and with which credentials.
    pub fn fetch(&self, credentials: Option<toolhold_oci::Credentials>) -> toolhold_oci::Settings {
        let oci = &self.tables.oci;
        let mut settings =
            toolhold_oci::Settings::new(self.cache_folder().join("oci"), credentials);
        settings.offline = oci.offline;
        settings.timeout = Duration::from_millis(oci.timeout_ms);
        settings.network.insecure.clone_from(&oci.insecure);
        settings
    }
}

impl ModuleTable {
    /// The grant of the table, or why it cannot be granted.
    pub(super) fn grant(&self, surroundings: &ConfigContext<'_>) -> Result<Grant, String> {
        let secrets = self.secrets.iter().map(|secret| secret.read(surroundings));
        let secrets = secrets.collect::<Result<_, _>>()?;
        Ok(Grant {
            directories: self.directories.clone(),
            http: self.http.clone(),
            secrets,
            scratch: self.scratch.clone(),
            environment: self.environment.clone(),
            key_value: self.key_value.clone(),
            knowledge: self.knowledge.clone(),
            tools: self.tools.clone(),
            clocks: self.clocks,
            randomness: self.randomness,
            log_level: self.log_level,
        })
    }
}

impl SecretTable {
    fn read(&self, surroundings: &ConfigContext<'_>) -> Result<SecretGrant, String> {
        let value = self.value(surroundings)?;
        let slot = SecretSlot {
            name: self.name.clone(),
            origin: self.origin.clone(),
            place: self.place.clone(),
        };
        let secret = SecretGrant::new(slot, SecretString::from(value));
        let secret = secret.map_err(|error| error.to_string())?;
        Ok(secret.reflecting(self.reflect))
    }

    pub(super) fn value(&self, surroundings: &ConfigContext<'_>) -> Result<String, String> {
        match (&self.env, &self.file) {
            (Some(name), None) => (surroundings.variable)(name)
                .ok_or_else(|| format!("{}: the variable {name} is not set", self.name)),
            (None, Some(path)) => {
                let text = (surroundings.secret_file)(path)
                    .map_err(|error| format!("{}: {}: {error}", self.name, path.display()))?;
                // Editors end a file with a line break, which does not belong to the secret.
                Ok(text.trim_end_matches(['\r', '\n']).to_owned())
            }
            _ => Err(format!("{}: give either `env` or `file`", self.name)),
        }
    }
}

/// Whether the state lies in the folder that the modules folder lies in.
fn lies_below(state: &Path, modules: &Path) -> bool {
    let absolute = |path: &Path| std::path::absolute(path).ok();
    let project = absolute(modules).and_then(|it| it.parent().map(Path::to_owned));
    project
        .zip(absolute(state))
        .is_some_and(|(project, state)| state.starts_with(project))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_has_its_uploads_beside_its_state() {
        for (state, modules, expect) in [
            ("/project/.state", "/project/modules", true),
            (".state", "modules", true),
            ("/home/ann/.local/state/toolhold", "/project/modules", false),
            ("/project-of-others/state", "/project/modules", false),
        ] {
            let is_below = lies_below(Path::new(state), Path::new(modules));
            assert_eq!(is_below, expect, "{state}");
        }
    }
}
