//! The public door: a folder of components becomes tools that can be called by name.
//!
//! One bad file never hides the good ones: it lands in [`Registry::failures`] with its reason. The
//! folder can be loaded again at any time: each module takes its place when it is ready, calls in flight
//! finish on the module they began with.
//!
//! No lock is held while a component is read, compiled, linked or asked for its tools, but for one of its own
//! origin. So a module that takes long holds up neither the others nor a revocation.
//!
//! This file holds what is loaded and calls it; `folder` finds modules, `candidates` orders them, `load` loads
//! them and `change` puts them into a `snapshot`; `pin_state` decides whether a module may run, `govern` changes
//! the policy, `scratch` keeps sessions' files.

mod candidates;
mod change;
pub(crate) mod folder;
mod govern;
#[cfg(test)]
mod limit_tests;
mod load;
#[cfg(test)]
mod memory_tests;
mod pin_state;
mod scratch;
pub(crate) mod snapshot;
#[cfg(test)]
mod tests;

use crate::call::{GrantedKnowledge, OtherTools};
use crate::compile::cache::{Cache, CacheLookupCounts};
use crate::engine::{Engine, EngineLoad};
use crate::grant::OpenDirectories;
use crate::module::extractor::{ExtractedText, Extraction, ExtractionError};
use crate::module::shield::{Screening, ScreeningVerdict};
use crate::module::{Module, ReachedOutside, blocking};
use crate::policy::CallPolicy;
use crate::policy::Policy;
use crate::policy::{PinError, Pinning};
use parking_lot::{Mutex, RwLock};
use pin_state::pin;
use snapshot::{FailedModule, ModuleSnapshot};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::watch;
use toolhold_admission::MemoryCeiling;
use toolhold_policy::CallError;
use toolhold_policy::KnowledgeAccess;
use toolhold_policy::ToolSpec;
use toolhold_policy::{CallReport, Invocation};
use toolhold_policy::{EarlierPinDecision, GrantChange, Pin, PinState, PinWriteError, PinnedBy};

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
/// use toolhold_sandbox::{Engine, EngineConfig, Policy, Registry};
/// use toolhold_policy::{Invocation, Output};
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
    shared: Arc<RegistryState>,
}

/// What the registry, its clones and running calls share.
#[derive(Debug)]
pub(crate) struct RegistryState {
    engine: Engine,
    cache: Option<Cache>,
    policy: RwLock<Arc<Policy>>,
    snapshot: RwLock<Arc<ModuleSnapshot>>,
    /// What modules are granted stays open from the first load to the last call.
    directories: Arc<OpenDirectories>,
    /// Every module that was ever loaded and is still held, by number; some are in no snapshot any more.
    known: Mutex<BTreeMap<u64, Weak<Module>>>,
    /// One change of the snapshot at a time. Held while files of pins and directories of grants are looked
    /// at, and never while anything of a module is compiled or run.
    changing: Mutex<()>,
    /// Told of every change of the snapshot.
    changes: watch::Sender<()>,
    /// One load of each origin at a time.
    loading: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
    /// Numbers of loads that have begun or wait for their turn, by the names of their modules.
    pending: Mutex<BTreeMap<String, usize>>,
    /// Answers what modules ask of documents and facts. Empty: nothing is known.
    knowledge: OnceLock<Arc<dyn KnowledgeAccess>>,
}

impl Registry {
    pub fn new(engine: Engine, cache: Option<Cache>, policy: Policy) -> Self {
        Self {
            shared: Arc::new(RegistryState {
                engine,
                cache,
                directories: Arc::new(OpenDirectories::new(
                    policy.places(),
                    policy.reserved.clone(),
                )),
                policy: RwLock::new(Arc::new(policy)),
                snapshot: RwLock::default(),
                known: Mutex::default(),
                changing: Mutex::default(),
                changes: watch::Sender::new(()),
                loading: Mutex::default(),
                pending: Mutex::default(),
                knowledge: OnceLock::new(),
            }),
        }
    }

    /// Has `access` answer what modules ask of documents and facts, as far as they were granted them. The first one
    /// stays.
    #[must_use]
    pub fn with_knowledge(self, access: Arc<dyn KnowledgeAccess>) -> Self {
        self.shared.knowledge.get_or_init(|| access);
        self
    }

    /// What the operator decided.
    pub fn policy(&self) -> Arc<Policy> {
        self.shared.policy()
    }

    /// What the host may keep for running calls. What else the process keeps for a client counts here, too.
    pub fn kept(&self) -> &MemoryCeiling {
        self.shared.engine.kept()
    }

    /// All modules, also those that wait to be approved, by name and version.
    pub fn modules(&self) -> Vec<Arc<Module>> {
        self.shared.snapshot().modules()
    }

    /// The module that `name` or `name@version` means: the newest one that fits and may run, or else
    /// the newest that fits.
    pub fn module(&self, name: &str) -> Option<Arc<Module>> {
        self.shared.snapshot().resolve(name)
    }

    /// What could not be loaded, in the folder's order.
    pub fn failures(&self) -> Vec<Arc<FailedModule>> {
        self.shared.snapshot().failures()
    }

    /// True while files that claim the module name `name` are being loaded, or wait for that.
    pub fn is_loading(&self, name: &str) -> bool {
        self.shared.pending.lock().contains_key(name)
    }

    /// Told of every change of what is loaded: modules that became ready, were replaced, removed or refused.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.shared.changes.subscribe()
    }

    /// The modules whose tools may be called, by name: of several versions the newest that may run.
    pub fn offering(&self) -> Vec<Arc<Module>> {
        self.shared.snapshot().offering()
    }

    /// The tools that may be called, by name: of several versions those of the newest.
    pub fn tools(&self) -> Vec<ToolSpec> {
        self.shared.snapshot().tools()
    }

    /// A tool that may be called, by `module.tool` or `module@version.tool`.
    pub fn tool(&self, name: &str) -> Option<ToolSpec> {
        let (module, tool) = self.shared.snapshot().find(name)?;
        let full = format!("{}.{tool}", module.name);
        module.tools.iter().find(|spec| spec.name == full).cloned()
    }

    /// The module that such a tool is of.
    pub fn module_of(&self, tool: &str) -> Option<Arc<Module>> {
        let (module, _) = self.shared.snapshot().find(tool)?;
        Some(module)
    }

    /// Runs one tool call. Returns within the call's deadline, whatever the module does; dropping
    /// the future stops the guest.
    pub fn call(&self, invocation: &Invocation<'_>) -> impl Future<Output = CallReport> + Send {
        self.shared.invoke(invocation)
    }

    /// Has a shield screen something. Returns within the deadline, whatever the shield does.
    ///
    /// # Errors
    /// Why there is no verdict: it may not run, it is no shield, a limit, its own words.
    pub async fn screen(
        &self,
        module: &Arc<Module>,
        screening: &Screening<'_>,
    ) -> Result<ScreeningVerdict, CallError> {
        if !module.may_run() {
            self.shared.judge(vec![module.clone()]).await;
        }
        module.screen(screening).await
    }

    /// Has an extractor read a document. Returns within the deadline, whatever the document or the extractor does.
    ///
    /// # Errors
    /// Why there is no text: what is wrong with the document, or the extractor may not run, is none, or met a limit.
    pub async fn extract(
        &self,
        module: &Arc<Module>,
        extraction: &Extraction<'_>,
    ) -> Result<ExtractedText, ExtractionError> {
        if !module.may_run() {
            self.shared.judge(vec![module.clone()]).await;
        }
        module.extract(extraction).await
    }

    /// Approves a module as it was shown, by the [`Module::etag`] of then, and returns what that changed. It
    /// may run from now on.
    ///
    /// # Errors
    /// It is another by now; another decision about it came first; what the file system says; nothing can be
    /// approved where everything is trusted.
    pub async fn approve(
        &self,
        module: &Arc<Module>,
        etag: &str,
    ) -> Result<Vec<GrantChange>, PinError> {
        let Pinning::Required { pins, .. } = self.shared.policy().pinning.clone() else {
            return Err(PinError::Trusted);
        };
        let now = pin(module, &module.policy(), PinnedBy::Person);
        if !now.is_shown_by(etag) {
            return Err(PinError::Changed);
        }
        let etag = etag.to_owned();
        let decided = blocking(move || {
            let before = pins.get(&now.slot);
            let record = before.as_ref().map(Pin::record_digest);
            if now.shown_etag(record.as_deref()) != etag {
                let decision = EarlierPinDecision::of(before.as_ref());
                return Ok(Err(PinWriteError::Decided(decision)));
            }
            let kept = pins.replace(before.as_ref(), &now);
            Ok(kept.map(|()| before.map(|before| before.changes(&now, true))))
        })
        .await
        .map_err(|error| PinError::Kept(io::Error::other(error)))?;
        // Judged by the pin as it is stored, because the module may have changed meanwhile, or another decision holds.
        self.shared.judge(vec![module.clone()]).await;
        Ok(decided?.unwrap_or_default())
    }

    /// Judges a module by the pins as they are now, and compares it with how it was shown, by the [`Module::etag`]
    /// of then. Returns whether it may run; approved meanwhile as it was shown, it may.
    ///
    /// # Errors
    /// It is another by now; another decision about it came first.
    pub async fn compare_shown(
        &self,
        module: &Arc<Module>,
        etag: &str,
    ) -> Result<PinState, PinError> {
        self.shared.judge(vec![module.clone()]).await;
        let effective = module.policy();
        let judgement = effective.judgement();
        let now = pin(module, &effective, PinnedBy::Person);
        if !now.is_shown_by(etag) {
            return Err(PinError::Changed);
        }
        let is_same = now.shown_etag(judgement.record.as_deref()) == etag;
        if is_same || judgement.pin_state.may_run() {
            Ok(judgement.pin_state)
        } else {
            Err(PinError::Decided(judgement.decision))
        }
    }

    /// How often a component's compiled form was looked for in the cache, if there is one.
    pub fn cache_lookups(&self) -> CacheLookupCounts {
        let cache = self.shared.cache.as_ref();
        cache.map(Cache::lookups).unwrap_or_default()
    }

    /// The load of the engine at this moment.
    pub fn engine_load(&self) -> EngineLoad {
        self.shared.engine.load()
    }

    /// Looks at the pins again: what was approved or revoked meanwhile takes effect.
    pub async fn reconsider(&self) {
        self.shared.reconsider().await;
    }
}

impl RegistryState {
    fn snapshot(&self) -> Arc<ModuleSnapshot> {
        self.snapshot.read().clone()
    }

    fn policy(&self) -> Arc<Policy> {
        self.policy.read().clone()
    }

    async fn invoke(self: &Arc<Self>, invocation: &Invocation<'_>) -> CallReport {
        let begun_by = invocation.job.and_then(|job| job.job().module.as_deref());
        let found = match begun_by {
            Some(digest) => self.snapshot().find_exact(invocation.tool, digest),
            None => self.snapshot.read().find(invocation.tool),
        };
        let Some((module, tool)) = found else {
            if begun_by.is_some() {
                return CallReport::refused(CallError::JobExchanged {
                    tool: invocation.tool.to_owned(),
                });
            }
            let tools = self.snapshot().tools();
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
        // Read once: a policy that gives more meanwhile holds for the next call; one that gives less ends this.
        let mut effective = module.policy();
        if !effective.may_run() {
            // A person may have approved it meanwhile, in another process.
            self.judge(vec![module.clone()]).await;
            effective = module.policy();
        }
        let narrow = match &invocation.restrictions {
            None => Ok(None),
            Some(bounds) => effective.narrowed(&module.name, bounds).await,
        };
        let mut report = match narrow {
            Ok(narrow) => {
                let given = CallPolicy {
                    effective: &effective,
                    narrow: narrow.as_deref(),
                };
                let grant = &given.granted().grant;
                let access = self.knowledge.get();
                let reached = ReachedOutside {
                    other_tools: OtherTools::new(&grant.tools, invocation),
                    knowledge: GrantedKnowledge::new(grant, access, invocation),
                };
                module.call(given, tool, invocation, reached).await
            }
            Err(error) => CallReport::refused(error),
        };
        report.module = Some(module.digest);
        report
    }
}
