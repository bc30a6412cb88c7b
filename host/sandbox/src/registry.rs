//! The public door: a folder of components becomes tools that can be called by name.
//!
//! One bad file never hides the good ones: it lands in [`Registry::failures`] with its reason. The
//! folder can be loaded again at any time: what changed is exchanged in one step, calls in flight
//! finish on the module they began with.

use crate::approval::{Approval, ApprovedBy, Change, Standing, Trust};
use crate::cache::Cache;
use crate::call::{CallReport, Invocation};
use crate::engine::Engine;
use crate::error::{CallError, LoadError};
use crate::folder::{self, Candidate, Files, Stamp};
use crate::grant::Grant;
use crate::manifest::Manifest;
use crate::module::{Module, Source, ToolSpec};
use crate::peers::Peers;
use crate::policy::Policy;
use crate::shelf::{FailedModule, Shelf, Slot};
use crate::shield::{Screening, Verdict};
use futures_util::stream::{self, StreamExt as _};
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

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
    /// It changed and was exchanged.
    Reloaded {
        module: String,
    },
    Removed {
        module: String,
    },
    Failed {
        origin: String,
    },
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
/// let registry = Registry::new(engine, None, Policy::default());
/// let only = ["calculator".to_owned()];
/// registry.load_folder("../../modules".as_ref(), Some(&only), &|_| ()).await?;
///
/// let arguments = json!({"expression": "2^200 % 97"});
/// let report = registry
///     .call(&Invocation::new("call-1", "calculator.evaluate", &arguments))
///     .await;
/// assert_eq!(report.result?, Output::Value(json!({"value": "62"})));
/// assert!(report.usage.fuel > 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Registry {
    shared: Arc<Shared>,
}

/// What the registry, its clones and running calls share.
#[derive(Debug)]
pub(crate) struct Shared {
    engine: Engine,
    cache: Option<Cache>,
    policy: Policy,
    shelf: RwLock<Arc<Shelf>>,
    /// One load at a time.
    loading: tokio::sync::Mutex<()>,
}

impl Registry {
    pub fn new(engine: Engine, cache: Option<Cache>, policy: Policy) -> Self {
        Self {
            shared: Arc::new(Shared {
                engine,
                cache,
                policy,
                shelf: RwLock::default(),
                loading: tokio::sync::Mutex::default(),
            }),
        }
    }

    /// Loads every module in `folder`: each `NAME.wasm`, and each sub-folder with a `module.toml` or
    /// a `NAME.wasm` of its own name; `NAME@1.2` in either place is a version beside others. With
    /// `only`, modules of other names are left alone.
    ///
    /// Called again, it loads what changed, and without `only` removes what is gone. A module whose
    /// new form cannot be loaded stays as it was, and the reason is among the failures.
    ///
    /// # Errors
    /// [`LoadError::Read`] if the folder itself cannot be read. What is wrong with single modules is
    /// in [`Self::failures`].
    pub async fn load_folder(
        &self,
        folder: &Path,
        only: Option<&[String]>,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) -> Result<(), LoadError> {
        let shared = &self.shared;
        let _turn = shared.loading.lock().await;
        let root = folder.to_owned();
        let known = shared.shelf();
        let (found, changed) = blocking(move || {
            let found = folder::find(&root).map_err(|source| LoadError::Read { source })?;
            let origins: Vec<_> = found.iter().map(|c| c.origin.clone()).collect();
            let changed: Vec<_> = found
                .into_iter()
                .filter(|candidate| !known.is_current(&candidate.origin, &candidate.stamp()))
                .collect();
            Ok((origins, changed))
        })
        .await?;
        let wanted = changed.into_iter().filter(|candidate| {
            only.is_none_or(|names| {
                let name = candidate.presumed_name().replace('-', "_");
                names
                    .iter()
                    .any(|wanted| wanted.split('@').next() == Some(name.as_str()))
            })
        });
        let outcomes: Vec<_> = stream::iter(wanted)
            .map(async |candidate| {
                let (slot, origin) = (candidate.slot.clone(), candidate.origin.clone());
                (slot, origin, shared.load(candidate, on_event).await)
            })
            // In order, so that of two claims to a name the same one wins every time.
            .buffered(4)
            .collect()
            .await;

        let mut shelf = (*shared.shelf()).clone();
        if only.is_none() {
            for module in shelf.retain_origins(folder, &found) {
                on_event(LoadEvent::Removed { module });
            }
        }
        for (slot, origin, (stamp, outcome)) in outcomes {
            let was_there = shelf.holds(&origin);
            match shelf.put(&slot, &origin, stamp, outcome) {
                Ok(module) if was_there => on_event(LoadEvent::Reloaded { module }),
                Ok(module) => on_event(LoadEvent::Loaded { module }),
                Err(()) => on_event(LoadEvent::Failed { origin }),
            }
        }
        shared.exchange(shelf).await;
        Ok(())
    }

    /// Loads one component that is already in memory.
    pub async fn load_bytes(&self, name: &str, bytes: Vec<u8>) -> Result<(), LoadError> {
        let origin = format!("memory:{name}");
        let _turn = self.shared.loading.lock().await;
        if self.shared.shelf().holds(&origin) {
            return Err(LoadError::Duplicate {
                name: name.to_owned(),
                holder: origin,
            });
        }
        let module = self
            .shared
            .load_component(name, &origin, bytes, &|_| ())
            .await?;
        let mut shelf = (*self.shared.shelf()).clone();
        shelf.insert(&origin, Slot::loaded(Arc::new(module)))?;
        self.shared.exchange(shelf).await;
        Ok(())
    }

    /// Loads a component that the host got from elsewhere than the folder, or keeps the reason why it
    /// did not get it among [`Self::failures`]. `origin` is shown as where it came from; what was
    /// fetched under this name before makes room.
    pub async fn load_fetched(
        &self,
        name: &str,
        origin: &str,
        bytes: Result<Vec<u8>, LoadError>,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) {
        let _turn = self.shared.loading.lock().await;
        let outcome = match bytes {
            Ok(bytes) => {
                self.shared
                    .load_component(name, origin, bytes, on_event)
                    .await
            }
            Err(error) => Err(error),
        };
        let mut shelf = (*self.shared.shelf()).clone();
        if outcome.is_ok() {
            shelf.forget_fetched(name);
        }
        on_event(match shelf.put(name, origin, None, outcome) {
            Ok(module) => LoadEvent::Loaded { module },
            Err(()) => LoadEvent::Failed {
                origin: origin.to_owned(),
            },
        });
        self.shared.exchange(shelf).await;
    }

    /// Loads the component at `file` below `root`, as the module that it would be in a modules folder,
    /// unless it is there already. Nothing outside of `root` is read, whatever links say.
    ///
    /// # Errors
    /// [`LoadError::Missing`] if there is no such file; why it is no module, or cannot stand beside
    /// those that are there.
    pub async fn load_file(
        &self,
        root: &Path,
        file: &Path,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) -> Result<Arc<Module>, LoadError> {
        let _turn = self.shared.loading.lock().await;
        let (root, path) = (root.to_owned(), file.to_owned());
        let (candidate, stamp) = blocking(move || {
            let candidate = folder::at(&root, &path)?;
            let stamp = candidate.stamp();
            Ok((candidate, stamp))
        })
        .await
        .map_err(|error| match error {
            LoadError::Read { source } if source.kind() == io::ErrorKind::NotFound => {
                LoadError::Missing {
                    file: file.display().to_string(),
                    language: None,
                }
            }
            error => error,
        })?;
        if let Some(module) = self.shared.shelf().made_from(&stamp) {
            return Ok(module);
        }
        let origin = candidate.origin.clone();
        let (stamp, outcome) = self.shared.load(candidate, on_event).await;
        let module = Arc::new(outcome?);
        let slot = Slot::loaded(module.clone()).stamped(stamp);
        self.put(&origin, slot).await?;
        Ok(module)
    }

    /// Loads a component that the host got from elsewhere than the folder, beside what is there, unless
    /// it is there already. `slot` is `NAME` or `NAME@VERSION`.
    ///
    /// # Errors
    /// Why it is no module, or cannot stand beside those that are there.
    pub async fn load_beside(
        &self,
        slot: &str,
        origin: &str,
        component: Vec<u8>,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) -> Result<Arc<Module>, LoadError> {
        let _turn = self.shared.loading.lock().await;
        if let Some(module) = self.shared.shelf().from(origin) {
            return Ok(module);
        }
        let (name, version) = match slot.split_once('@') {
            Some((name, version)) => (name, folder::version(version)),
            None => (slot, None),
        };
        let files = Files {
            name: name.to_owned(),
            version,
            manifest: Manifest::default(),
            component,
            wit: Default::default(),
        };
        let loaded = self.shared.load_files(slot, origin, files, on_event).await;
        let module = Arc::new(loaded?);
        self.put(origin, Slot::loaded(module.clone())).await?;
        Ok(module)
    }

    /// The caller has the turn to load.
    async fn put(&self, origin: &str, slot: Slot) -> Result<(), LoadError> {
        let mut shelf = (*self.shared.shelf()).clone();
        shelf.insert(origin, slot)?;
        self.shared.exchange(shelf).await;
        Ok(())
    }

    /// What the operator decided.
    pub fn policy(&self) -> &Policy {
        &self.shared.policy
    }

    /// All modules, also those that wait for approval, by name and version.
    pub fn modules(&self) -> Vec<Arc<Module>> {
        self.shared.shelf().modules()
    }

    /// The module that `name` or `name@version` means: the newest one that fits and may run, or else
    /// the newest that fits.
    pub fn module(&self, name: &str) -> Option<Arc<Module>> {
        self.shared.shelf().resolve(name)
    }

    /// What could not be loaded, in the folder's order.
    pub fn failures(&self) -> Vec<Arc<FailedModule>> {
        self.shared.shelf().failures()
    }

    /// The tools that may be called, by name: of several versions those of the newest.
    pub fn tools(&self) -> Vec<ToolSpec> {
        self.shared.shelf().tools()
    }

    /// A tool that may be called, by `module.tool` or `module@version.tool`.
    pub fn tool(&self, name: &str) -> Option<ToolSpec> {
        let (module, tool) = self.shared.shelf().find(name)?;
        let full = format!("{}.{tool}", module.name);
        module.tools.iter().find(|spec| spec.name == full).cloned()
    }

    /// Runs one tool call. Returns within the call's deadline, whatever the module does; dropping
    /// the future stops the guest.
    pub async fn call(&self, invocation: &Invocation<'_>) -> CallReport {
        self.shared.call(invocation, 0).await
    }

    /// Has a shield screen something. Returns within the deadline, whatever the shield does.
    ///
    /// # Errors
    /// Why there is no verdict: it may not run, it is no shield, a limit, its own words.
    pub async fn screen(
        &self,
        module: &Arc<Module>,
        screening: &Screening<'_>,
    ) -> Result<Verdict, CallError> {
        if !module.may_run() {
            self.shared.judge(vec![module.clone()]).await;
        }
        module.screen(screening).await
    }

    /// Approves a module as it is now, and returns what that changed. It may run from now on.
    ///
    /// # Errors
    /// What the file system says; and nothing can be approved where everything is trusted.
    pub async fn approve(&self, module: &Arc<Module>) -> io::Result<Vec<Change>> {
        let Trust::Approved { approvals, .. } = self.shared.policy.trust.clone() else {
            return Err(io::Error::other("every module is trusted here"));
        };
        let now = approval(module, ApprovedBy::Person);
        let changes = blocking(move || {
            let before = approvals.get(&now.slot);
            approvals
                .put(&now)
                .map_err(|source| LoadError::Read { source })?;
            Ok(before.map(|before| before.changes(&now, true)))
        })
        .await
        .map_err(io::Error::other)?;
        module.stand(Standing::Approved);
        Ok(changes.unwrap_or_default())
    }

    /// Looks at the approvals again: what was approved or revoked meanwhile takes effect.
    pub async fn reconsider(&self) {
        self.shared.reconsider().await;
    }
}

impl Shared {
    fn shelf(&self) -> Arc<Shelf> {
        self.shelf
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Puts `shelf` in the old one's place, its modules judged.
    async fn exchange(self: &Arc<Self>, shelf: Shelf) {
        let shelf = Arc::new(shelf.indexed());
        self.judge(shelf.modules()).await;
        *self.shelf.write().unwrap_or_else(PoisonError::into_inner) = shelf;
    }

    async fn reconsider(self: &Arc<Self>) {
        self.judge(self.shelf().modules()).await;
    }

    async fn judge(self: &Arc<Self>, modules: Vec<Arc<Module>>) {
        let shared = self.clone();
        // Only a panic in there could be lost, and there is none.
        let _ = tokio::task::spawn_blocking(move || {
            for module in modules {
                module.stand(shared.standing(&module));
            }
        })
        .await;
    }

    pub async fn call(self: &Arc<Self>, invocation: &Invocation<'_>, depth: u8) -> CallReport {
        let Some((module, tool)) = self.shelf().find(invocation.tool) else {
            let tools = self.shelf().tools();
            let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
            let available = if names.is_empty() {
                "no module is loaded".into()
            } else {
                format!("there are {}", names.join(", "))
            };
            return CallReport::refused(CallError::UnknownTool {
                tool: invocation.tool.to_owned(),
                available,
            });
        };
        if !module.may_run() {
            // Somebody may have approved it since, in another process.
            self.judge(vec![module.clone()]).await;
        }
        let peers = Peers::new(self, &module.grant().tools, invocation, depth);
        let mut report = module.call(&tool, invocation, peers).await;
        report.module = Some(module.digest);
        report
    }

    async fn load(
        self: &Arc<Self>,
        candidate: Candidate,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) -> (Option<Stamp>, Result<Module, LoadError>) {
        let (slot, origin) = (candidate.slot.clone(), candidate.origin.clone());
        let shared = self.clone();
        let read = blocking(move || {
            // A broken file is looked at again when it changes, and not before.
            let stamp = candidate.stamp();
            let read = candidate.read(|name, manifest| {
                let limits = shared.policy.limits_of(name, &manifest.limits);
                limits.component_bytes
            });
            Ok((stamp, read))
        })
        .await;
        let (stamp, files) = match read {
            Err(error) => return (None, Err(error)),
            // Unfinished: look again, even if it changes no more.
            Ok((_, Err(LoadError::Changing))) => return (None, Err(LoadError::Changing)),
            Ok((stamp, Err(error))) => return (Some(stamp), Err(error)),
            Ok((_, Ok((files, stamp)))) => (Some(stamp), files),
        };
        (
            stamp,
            self.load_files(&slot, &origin, files, on_event).await,
        )
    }

    /// A component without a folder of its own.
    async fn load_component(
        &self,
        name: &str,
        origin: &str,
        component: Vec<u8>,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) -> Result<Module, LoadError> {
        let files = Files {
            name: name.to_owned(),
            version: None,
            manifest: Manifest::default(),
            component,
            wit: Default::default(),
        };
        self.load_files(name, origin, files, on_event).await
    }

    async fn load_files(
        &self,
        slot: &str,
        origin: &str,
        files: Files,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) -> Result<Module, LoadError> {
        let source = self.source(slot, origin, files)?;
        let (module, bytes) = (source.name.clone(), source.bytes.len() as u64);
        Module::load(&self.engine, self.cache.as_ref(), source, &|| {
            let module = module.clone();
            on_event(LoadEvent::Compiling { module, bytes });
        })
        .await
    }

    fn source(&self, slot: &str, origin: &str, files: Files) -> Result<Source, LoadError> {
        let policy = &self.policy;
        if !crate::text::is_name(&files.name) {
            return Err(LoadError::Manifest {
                reason: format!("{:?} cannot name a module", files.name),
            });
        }
        let own = policy.modules.get(&files.name).cloned().unwrap_or_default();
        if let Some(reason) = own.fault {
            return Err(LoadError::Grant { reason });
        }
        let limits = policy.limits_of(&files.name, &files.manifest.limits);
        Ok(Source {
            name: files.name,
            version: files.version,
            slot: slot.to_owned(),
            origin: origin.to_owned(),
            bytes: files.component,
            wit: files.wit,
            manifest: files.manifest,
            limits,
            grant: own.grant,
            storage: policy.storage.clone(),
            resolver: policy.resolver.clone(),
        })
    }

    /// Whether `module` may run, from the approvals as they are now. Blocks on the file system.
    fn standing(&self, module: &Module) -> Standing {
        let Trust::Approved {
            approvals,
            first_sight,
        } = &self.policy.trust
        else {
            return Standing::Trusted;
        };
        let one_off = self
            .policy
            .modules
            .get(&module.name)
            .is_some_and(|own| own.one_off);
        let now = approval(module, ApprovedBy::FirstSight);
        match approvals.get(&module.slot) {
            Some(then) => {
                let changes = then.changes(&now, !one_off);
                if changes.is_empty() {
                    Standing::Approved
                } else {
                    Standing::Pending { changes }
                }
            }
            // A newcomer that takes the name of a module which somebody approved is no newcomer.
            None if *first_sight
                && (module.grant().is_empty() || one_off)
                && !approvals.knows(&module.name) =>
            {
                let pin = Approval {
                    grant: serde_json::to_value(Grant::default()).unwrap_or_default(),
                    ..now
                };
                match approvals.put(&pin) {
                    Ok(()) => Standing::Approved,
                    Err(error) => {
                        tracing::warn!(module = module.slot, %error, "the module could not be pinned");
                        Standing::Pending {
                            changes: Vec::new(),
                        }
                    }
                }
            }
            None => Standing::Pending {
                changes: Vec::new(),
            },
        }
    }
}

fn approval(module: &Module, by: ApprovedBy) -> Approval {
    Approval::of(
        &module.slot,
        module.digest,
        &module.tools,
        module.grant(),
        by,
    )
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LoadError> + Send + 'static,
) -> Result<T, LoadError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| LoadError::Read {
            source: io::Error::other(error),
        })?
}
