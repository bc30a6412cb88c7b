//! The public door: a folder of components becomes tools that can be called by name.
//!
//! One bad file never hides the good ones: it lands in [`Registry::failures`] with its reason.

use crate::cache::Cache;
use crate::call::{CallReport, Invocation};
use crate::engine::Engine;
use crate::error::{CallError, LoadError};
use crate::grant::Grant;
use crate::limits::{Limits, LimitsRequest};
use crate::manifest::Manifest;
use crate::module::{Module, Source, ToolSpec};
use crate::text;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use futures_util::stream::{self, StreamExt as _};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the operator decided about modules.
#[derive(Debug, Clone)]
pub struct Policy {
    /// What a module gets that asks for nothing.
    pub limits: Limits,
    /// The most a module can get by asking.
    pub ceiling: Limits,
    /// Larger files are refused before they are read.
    pub max_component_bytes: u64,
    /// Decisions for single modules, by name.
    pub modules: HashMap<String, ModulePolicy>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            ceiling: Limits::default_ceiling(),
            // A Python component has 28 MB; a hundred is an attack or a mistake.
            max_component_bytes: 64 << 20,
            modules: HashMap::new(),
        }
    }
}

/// What the operator decided about one module.
#[derive(Debug, Clone, Default)]
pub struct ModulePolicy {
    /// Limits that replace the defaults and what the module asked for; not bound by the ceiling.
    pub limits: LimitsRequest,
    pub grant: Grant,
}

/// What loading is doing, for progress bars and logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadEvent {
    /// `module` was not in the cache and is being compiled: seconds for a large one.
    Compiling {
        module: String,
        bytes: u64,
    },
    Loaded {
        module: String,
    },
    Failed {
        origin: String,
    },
}

/// A file or folder that is no module, and why.
#[derive(Debug)]
pub struct FailedModule {
    /// What it would have been called.
    pub name: String,
    /// The file or folder.
    pub origin: String,
    pub error: LoadError,
}

/// The loaded modules and their tools.
///
/// ```
/// use serde_json::json;
/// use toolhold_sandbox::{Engine, EngineConfig, Invocation, Output, Policy, Registry};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::new(EngineConfig::default())?;
/// let mut registry = Registry::new(engine, None, Policy::default());
/// let only = ["calculator".to_owned()];
/// registry.load_folder("../../modules".as_ref(), Some(&only), &|_| ()).await?;
///
/// let arguments = json!({"expression": "2^200 % 97"});
/// let report = registry
///     .call(&Invocation {
///         id: "call-1",
///         tool: "calculator.evaluate",
///         arguments: &arguments,
///         context: &[],
///         timeout: None,
///     })
///     .await;
/// assert_eq!(report.result?, Output::Value(json!({"value": "62"})));
/// assert!(report.usage.fuel > 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Registry {
    engine: Engine,
    cache: Option<Cache>,
    policy: Policy,
    modules: BTreeMap<String, Arc<Module>>,
    failures: Vec<FailedModule>,
}

impl Registry {
    pub fn new(engine: Engine, cache: Option<Cache>, policy: Policy) -> Self {
        Self {
            engine,
            cache,
            policy,
            modules: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    /// Loads every module in `folder`: each `NAME.wasm`, and each sub-folder with a `module.toml` or
    /// a `NAME.wasm` of its own name. With `only`, modules of other names are left alone.
    ///
    /// # Errors
    /// [`LoadError::Read`] if the folder itself cannot be read. What is wrong with single modules is
    /// in [`Self::failures`].
    pub async fn load_folder(
        &mut self,
        folder: &Path,
        only: Option<&[String]>,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) -> Result<(), LoadError> {
        let root = folder.to_owned();
        let found = tokio::task::spawn_blocking(move || find(&root))
            .await
            .map_err(|error| LoadError::Read {
                source: io::Error::other(error),
            })?
            .map_err(|source| LoadError::Read { source })?;
        let wanted = found
            .into_iter()
            .filter(|c| only.is_none_or(|names| names.contains(&c.name)));

        let (engine, cache, policy) = (&self.engine, self.cache.as_ref(), &self.policy);
        let outcomes: Vec<_> = stream::iter(wanted)
            .map(async |candidate| {
                let (name, origin) = (candidate.name.clone(), candidate.origin.clone());
                let outcome = load_candidate(engine, cache, policy, candidate, on_event).await;
                (name, origin, outcome)
            })
            // In order, so that of two claims to a name the same one wins every time.
            .buffered(4)
            .collect()
            .await;
        for (name, origin, outcome) in outcomes {
            self.settle(name, origin, outcome, on_event);
        }
        Ok(())
    }

    /// Loads a component that the host got from elsewhere than the folder, or keeps the reason why it
    /// did not get it among [`Self::failures`]. `origin` is shown as where it came from.
    pub async fn load_fetched(
        &mut self,
        name: &str,
        origin: &str,
        bytes: Result<Vec<u8>, LoadError>,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) {
        let (engine, cache, policy) = (&self.engine, self.cache.as_ref(), &self.policy);
        let load = async |bytes| {
            let (name, origin) = (name.to_owned(), origin.to_owned());
            let source = source(policy, name.clone(), origin, bytes, Manifest::default())?;
            let bytes = source.bytes.len() as u64;
            Module::load(engine, cache, source, &|| {
                let module = name.clone();
                on_event(LoadEvent::Compiling { module, bytes });
            })
            .await
        };
        let outcome = match bytes {
            Ok(bytes) => load(bytes).await,
            Err(error) => Err(error),
        };
        self.settle(name.to_owned(), origin.to_owned(), outcome, on_event);
    }

    /// Takes in what was loaded, or keeps the reason why it was not.
    fn settle(
        &mut self,
        name: String,
        origin: String,
        outcome: Result<Module, LoadError>,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) {
        match outcome.and_then(|module| self.insert(module)) {
            Ok(module) => on_event(LoadEvent::Loaded { module }),
            Err(error) => {
                on_event(LoadEvent::Failed {
                    origin: origin.clone(),
                });
                self.failures.push(FailedModule {
                    name,
                    origin,
                    error,
                });
            }
        }
    }

    /// Loads one component that is already in memory.
    pub async fn load_bytes(&mut self, name: &str, bytes: Vec<u8>) -> Result<(), LoadError> {
        let source = source(
            &self.policy,
            name.to_owned(),
            "memory".into(),
            bytes,
            Manifest::default(),
        )?;
        let module = Module::load(&self.engine, self.cache.as_ref(), source, &|| {}).await?;
        self.insert(module).map(|_| ())
    }

    /// By name.
    pub fn modules(&self) -> impl Iterator<Item = &Arc<Module>> {
        self.modules.values()
    }

    pub fn module(&self, name: &str) -> Option<&Arc<Module>> {
        self.modules.get(name)
    }

    /// What could not be loaded, in the folder's order.
    pub fn failures(&self) -> &[FailedModule] {
        &self.failures
    }

    /// All tools of all modules, by name.
    pub fn tools(&self) -> impl Iterator<Item = &ToolSpec> {
        self.modules.values().flat_map(|module| &module.tools)
    }

    pub fn tool(&self, name: &str) -> Option<&ToolSpec> {
        self.module_of(name)?
            .tools
            .iter()
            .find(|tool| tool.name == name)
    }

    /// Runs one tool call. Returns within the call's deadline, whatever the module does; dropping
    /// the future stops the guest.
    pub async fn call(&self, invocation: &Invocation<'_>) -> CallReport {
        match self.module_of(invocation.tool) {
            Some(module) => module.call(invocation).await,
            None => {
                let names: Vec<_> = self.tools().map(|tool| tool.name.as_str()).collect();
                let available = if names.is_empty() {
                    "no module is loaded".into()
                } else {
                    format!("there are {}", names.join(", "))
                };
                CallReport::refused(CallError::UnknownTool {
                    tool: invocation.tool.to_owned(),
                    available,
                })
            }
        }
    }

    fn module_of(&self, tool: &str) -> Option<&Arc<Module>> {
        tool.split_once('.')
            .and_then(|(module, _)| self.modules.get(module))
    }

    fn insert(&mut self, module: Module) -> Result<String, LoadError> {
        if let Some(holder) = self.modules.get(&module.name) {
            return Err(LoadError::Duplicate {
                name: module.name,
                holder: holder.origin.clone(),
            });
        }
        let name = module.name.clone();
        self.modules.insert(name.clone(), Arc::new(module));
        Ok(name)
    }
}

/// Something in the folder that wants to be a module.
struct Candidate {
    name: String,
    origin: String,
    /// The folder its files are read from. Reading goes through it, so that no symbolic link or
    /// `component = "../…"` leads out.
    folder: Dir,
    /// The component's file within `folder`; for a folder, unless the manifest says otherwise.
    file: PathBuf,
    has_manifest: bool,
}

fn find(folder: &Path) -> io::Result<Vec<Candidate>> {
    let at =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
    let root = Dir::open_ambient_dir(folder, ambient_authority()).map_err(at)?;
    let mut found = Vec::new();
    for entry in root.entries().map_err(at)? {
        let entry = entry.map_err(at)?;
        let file_name = PathBuf::from(entry.file_name());
        let Some(stem) = file_name
            .file_stem()
            .and_then(|s| s.to_str())
            .map(str::to_owned)
        else {
            continue;
        };
        let origin = folder.join(&file_name).display().to_string();
        let extension = file_name
            .extension()
            .and_then(|e| e.to_str())
            .unwrap_or_default();
        // A symbolic link to a folder inside the modules folder is followed; one that leads out is
        // refused by `open_dir`, and then reported when the file is read.
        if let Ok(sub) = root.open_dir(&file_name) {
            let has_manifest = sub.exists("module.toml");
            let file = PathBuf::from(format!("{stem}.wasm"));
            if has_manifest || sub.exists(&file) {
                found.push(Candidate {
                    name: stem,
                    origin,
                    folder: sub,
                    file,
                    has_manifest,
                });
            }
        } else if ["wasm", "cwasm"].contains(&extension) {
            found.push(Candidate {
                name: stem,
                origin,
                folder: root.try_clone()?,
                file: file_name,
                has_manifest: false,
            });
        }
    }
    found.sort_by(|a, b| a.origin.cmp(&b.origin));
    Ok(found)
}

async fn load_candidate(
    engine: &Engine,
    cache: Option<&Cache>,
    policy: &Policy,
    candidate: Candidate,
    on_event: &(dyn Fn(LoadEvent) + Sync),
) -> Result<Module, LoadError> {
    let limit = policy.max_component_bytes;
    let default_name = candidate.name.clone();
    let origin = candidate.origin.clone();
    let (manifest, bytes) = tokio::task::spawn_blocking(move || read(&candidate, limit))
        .await
        .map_err(|error| LoadError::Read {
            source: io::Error::other(error),
        })??;
    let name = manifest
        .name
        .clone()
        .unwrap_or_else(|| default_name.replace('-', "_"));
    let source = source(policy, name.clone(), origin, bytes, manifest)?;
    let size = source.bytes.len() as u64;
    Module::load(engine, cache, source, &|| {
        on_event(LoadEvent::Compiling {
            module: name.clone(),
            bytes: size,
        });
    })
    .await
}

fn source(
    policy: &Policy,
    name: String,
    origin: String,
    bytes: Vec<u8>,
    manifest: Manifest,
) -> Result<Source, LoadError> {
    if !text::is_name(&name) {
        let reason = format!(
            "{:?} cannot name a module: use lower case letters, digits and _, starting with a letter",
            text::visible(&name, 64)
        );
        return Err(LoadError::Manifest { reason });
    }
    let own = policy.modules.get(&name).cloned().unwrap_or_default();
    let limits = policy
        .limits
        .granted(&manifest.limits, &policy.ceiling)
        .overridden(&own.limits);
    Ok(Source {
        name,
        origin,
        bytes,
        manifest,
        limits,
        grant: own.grant,
    })
}

fn read(candidate: &Candidate, limit: u64) -> Result<(Manifest, Vec<u8>), LoadError> {
    let manifest = if candidate.has_manifest {
        let bytes = read_capped(
            &candidate.folder,
            Path::new("module.toml"),
            Manifest::MAX_BYTES,
        )?;
        let text = String::from_utf8(bytes).map_err(|error| LoadError::Manifest {
            reason: error.to_string(),
        })?;
        Manifest::parse(&text)?
    } else {
        Manifest::default()
    };
    let file = match &manifest.component {
        Some(component) => PathBuf::from(component),
        None if candidate.has_manifest => match &manifest.name {
            Some(name) => PathBuf::from(format!("{name}.wasm")),
            None => candidate.file.clone(),
        },
        None => candidate.file.clone(),
    };
    match read_capped(&candidate.folder, &file, limit) {
        Err(LoadError::Read { source }) if source.kind() == io::ErrorKind::NotFound => {
            let language = manifest.build.map(|build| build.language);
            Err(LoadError::Missing {
                file: file.display().to_string(),
                language,
            })
        }
        Err(error) => Err(error),
        Ok(bytes) => Ok((manifest, bytes)),
    }
}

/// Reads a regular file that has at most `limit` bytes; one that grows while it is read is cut off
/// and refused. Opened without blocking on a FIFO, because only regular files get that far.
fn read_capped(folder: &Dir, file: &Path, limit: u64) -> Result<Vec<u8>, LoadError> {
    let failed = |source| LoadError::Read { source };
    let metadata = folder.metadata(file).map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(io::Error::other("it is not a regular file")));
    }
    let too_large = |size| LoadError::TooLarge { size, limit };
    if metadata.len() > limit {
        return Err(too_large(metadata.len()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    let file = folder.open(file).map_err(failed)?;
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes)
}
