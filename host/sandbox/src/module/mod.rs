//! Bytes → a verified, compiled, linked module and the tools it offers.

pub mod counters;
mod examples;
mod execute;
pub mod extractor;
mod job;
pub mod shield;
mod typed;
mod world;

use crate::bindings::ToolModulePre;
use crate::bindings::extractor::ExtractorPre;
use crate::bindings::jobs::JobToolsPre;
use crate::bindings::shield::ShieldPre;
use crate::call::{CallState, DescribeTools};
use crate::compile::{self, Cache, DebugInfo};
use crate::descriptors::DescriptorShare;
use crate::disk::Storage;
use crate::docs::wit;
use crate::egress::Resolve;
use crate::engine::{Engine, Variant};
use crate::error::LoadError;
use crate::grant::{OpenDirectories, PreparedGrant};
use crate::host;
use crate::policy::{EffectivePolicy, Policy};
use counters::{Counters, SharedCounters};
pub(crate) use execute::ReachedOutside;
use extractor::DocumentFormat;
use parking_lot::RwLock;
use semver::Version;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
pub use toolhold_policy::Digest;
use toolhold_policy::{Grant, Limits, Manifest, Pin, PinState, PinnedBy, ToolSpec, UntrustedText};
use typed::TypedFunction;
use wasmtime::component::{Component, InstancePre};

/// The export that makes a component a module of the tool world, up to its patch version.
const TOOL_WORLD: &str = "toolhold:module/tools@0.1.";
/// The export by which calls of such a module may continue as jobs.
const JOBS_EXPORT: &str = "toolhold:module/jobs@0.1.";
/// The same for a shield.
const SHIELD_WORLD: &str = "toolhold:module/shields@0.1.";
/// The same for an extractor.
const EXTRACTOR_WORLD: &str = "toolhold:module/extractors@0.1.";
/// How a module offers its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModuleKind {
    /// It exports `toolhold:module/tools` and says itself what it has.
    ToolWorld,
    /// Its exported functions are the tools; schemas come from their types.
    TypedExports,
    /// It exports `toolhold:module/shields`: it has no tools, and screens what passes.
    Shield,
    /// It exports `toolhold:module/extractors`: it has no tools, and reads documents.
    Extractor,
}

/// What a component is loaded from.
pub(crate) struct ComponentSource {
    pub name: String,
    pub version: Option<Version>,
    /// The file's or folder's name, under which pins are kept.
    pub slot: String,
    pub origin: String,
    pub bytes: Vec<u8>,
    /// The `.wit` files beside it, and what was wrong with finding them.
    pub wit: (Vec<wit::WitPackage>, Vec<String>),
    pub manifest: Manifest,
    pub limits: Limits,
    pub grant: Grant,
    pub storage: Storage,
    pub resolver: Arc<dyn Resolve>,
    pub directories: Arc<OpenDirectories>,
}

/// A loaded module: compiled, linked, ready for calls.
pub struct Module {
    pub name: String,
    pub version: Option<Version>,
    /// The file's or folder's name without its ending, under which pins are kept.
    pub slot: String,
    /// The file it was loaded from.
    pub origin: UntrustedText,
    pub digest: Digest,
    /// Size of the component in bytes.
    pub size: u64,
    pub kind: ModuleKind,
    pub manifest: Manifest,
    pub tools: Vec<ToolSpec>,
    /// What an extractor reads; empty for others.
    pub formats: Vec<DocumentFormat>,
    /// Exported functions that cannot be tools, and why.
    pub refused: Vec<(UntrustedText, UntrustedText)>,
    /// What is odd about it, but no reason to refuse it, such as docs that cannot be read.
    pub notes: Vec<UntrustedText>,
    /// Interfaces the component imports, in its order.
    pub imports: Vec<String>,
    policy: RwLock<Arc<EffectivePolicy>>,
    engine: Engine,
    code: Code,
    /// Present if its calls may continue as jobs.
    jobs: Option<JobToolsPre<CallState>>,
    /// Where an author works.
    debug: Option<DebugInfo>,
    /// Unique in the process.
    pub(crate) number: u64,
    /// What its calls may have open together.
    descriptors: Arc<DescriptorShare>,
    tally: SharedCounters,
}

enum Code {
    World(ToolModulePre<CallState>),
    Typed {
        pre: InstancePre<CallState>,
        functions: HashMap<String, TypedFunction>,
    },
    Shield(ShieldPre<CallState>),
    Extractor(ExtractorPre<CallState>),
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module")
            .field("name", &self.name)
            .field("origin", &self.origin)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

impl Module {
    /// Compiles (or takes from `cache`) and links `source`, and asks it for its tools.
    /// `compiling` is called when a compilation begins, which is the only slow part.
    pub(crate) async fn load(
        engine: &Engine,
        cache: Option<&Cache>,
        source: ComponentSource,
        compiling: &(dyn Fn() + Sync),
    ) -> Result<Self, LoadError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let ComponentSource {
            name,
            version,
            slot,
            origin,
            bytes,
            wit: (packages, mut notes),
            manifest,
            limits,
            grant,
            storage,
            resolver,
            directories,
        } = source;
        let engine = &engine.variant(Variant::of(&limits))?;
        let granted = {
            let name = name.clone();
            blocking(move || PreparedGrant::new(&name, grant, &storage, resolver, &directories))
                .await?
        };
        let size = bytes.len() as u64;
        compile::check_size(size, limits.component_bytes)?;
        compile::check_header(&bytes)?;
        let bytes = Arc::new(bytes);
        let compiled = compile::CompileSource {
            bytes: bytes.clone(),
            built_in: manifest.build.is_some().then(|| PathBuf::from(&origin)),
        };
        let (component, digest) =
            compile::compiled(engine, cache, &limits, compiled, compiling).await?;
        compile::within_limits(&component, &limits)?;
        let debug = DebugInfo::of(engine, &digest, &bytes);

        let ty = component.component_type();
        let imports = ty
            .imports(engine.wasmtime())
            .map(|(name, _)| name.to_owned())
            .collect();
        let exports = |world: &str| {
            ty.exports(engine.wasmtime())
                .any(|(name, _)| name.starts_with(world))
        };
        let (speaks_our_world, is_shield) = (exports(TOOL_WORLD), exports(SHIELD_WORLD));
        let is_extractor = exports(EXTRACTOR_WORLD);
        let has_jobs = exports(JOBS_EXPORT);
        let mut jobs = None;
        let mut formats = Vec::new();
        let pre = {
            let (engine, component) = (engine.clone(), component.clone());
            blocking(move || {
                host::linker(&engine)
                    .and_then(|linker| linker.instantiate_pre(&component))
                    .map_err(|error| LoadError::Link {
                        reason: format!("{error:#}"),
                    })
            })
            .await?
        };

        let (kind, tools, refused, code) = if speaks_our_world {
            let pre = ToolModulePre::new(pre).map_err(|error| LoadError::Link {
                reason: format!("{error:#}"),
            })?;
            if has_jobs {
                let own = JobToolsPre::new(pre.instance_pre().clone());
                jobs = Some(own.map_err(|error| LoadError::Link {
                    reason: format!("{error:#}"),
                })?);
            }
            let tools =
                world::list_tools(engine, &name, &limits, &pre, jobs.as_ref(), debug.as_ref())
                    .await?;
            (ModuleKind::ToolWorld, tools, Vec::new(), Code::World(pre))
        } else if is_shield {
            let pre = ShieldPre::new(pre).map_err(|error| LoadError::Link {
                reason: format!("{error:#}"),
            })?;
            (
                ModuleKind::Shield,
                Vec::new(),
                Vec::new(),
                Code::Shield(pre),
            )
        } else if is_extractor {
            let pre = ExtractorPre::new(pre).map_err(|error| LoadError::Link {
                reason: format!("{error:#}"),
            })?;
            formats = extractor::formats(engine, &name, &limits, &pre, debug.as_ref()).await?;
            (
                ModuleKind::Extractor,
                Vec::new(),
                Vec::new(),
                Code::Extractor(pre),
            )
        } else {
            let texts = manifest.tools.clone();
            let (own, module) = (engine.clone(), name.clone());
            // Reading types and what the author wrote of them takes its time.
            let (exports, written) = blocking(move || {
                let sources = typed::CombinedDocs::read(&bytes, &packages, texts);
                let exports = typed::exports(&own, &module, &component, &sources)?;
                let notes = sources.into_notes(exports.functions.keys());
                Ok((exports, notes))
            })
            .await?;
            notes.extend(written);
            let code = Code::Typed {
                pre,
                functions: exports.functions,
            };
            (
                ModuleKind::TypedExports,
                exports.tools,
                exports.refused,
                code,
            )
        };
        let (tools, unfit) = fitting_examples(tools).await?;
        notes.extend(unfit);
        Ok(Self {
            policy: RwLock::new(Arc::new(EffectivePolicy::new(limits, granted))),
            name,
            version,
            slot,
            origin: origin.into(),
            digest,
            size,
            kind,
            manifest,
            tools,
            formats,
            refused: refused
                .into_iter()
                .map(|(export, reason)| (export.into(), reason.into()))
                .collect(),
            notes: notes.into_iter().map(UntrustedText::from).collect(),
            imports,
            engine: engine.clone(),
            code,
            jobs,
            debug,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            descriptors: DescriptorShare::of_module(engine.descriptors()),
            tally: SharedCounters::default(),
        })
    }

    /// Asks the module once more for its tools, in another fresh instance: they should be [`Self::tools`]. Absent for
    /// a module whose tools come from its types.
    ///
    /// # Errors
    /// Why it cannot say them.
    pub async fn list_tools_again(&self) -> Result<Option<Vec<ToolSpec>>, LoadError> {
        let Code::World(pre) = &self.code else {
            return Ok(None);
        };
        let (jobs, debug) = (self.jobs.as_ref(), self.debug.as_ref());
        let limits = self.limits();
        let tools = world::list_tools(&self.engine, &self.name, &limits, pre, jobs, debug).await?;
        let (tools, _) = fitting_examples(tools).await?;
        Ok(Some(tools))
    }

    /// What the module is given.
    pub fn grant(&self) -> Arc<Grant> {
        self.policy().granted.grant.clone()
    }

    /// What its calls may use.
    pub fn limits(&self) -> Limits {
        self.policy().limits.clone()
    }

    /// A number that no other module of this process has or had.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether its calls may continue as jobs.
    pub fn has_jobs(&self) -> bool {
        self.jobs.is_some()
    }

    /// Whether its calls have a directory to themselves, so that they are made one after the other.
    pub fn takes_turns(&self) -> bool {
        let wishes = &self.manifest.grants.directories;
        !self.policy().granted.exclusive(wishes).is_empty()
    }

    /// Whether it may run now.
    pub fn pin_state(&self) -> PinState {
        self.policy().pin_state()
    }

    /// The [`Pin::shown_etag`] of the module as it is now: its component, its tools' texts, its grant, and the record
    /// that it was compared with last.
    pub fn etag(&self) -> String {
        let effective = self.policy();
        let grant = effective.granted.grant.clone();
        let record = effective.judgement().record;
        Pin::of(
            &self.slot,
            &self.name,
            self.digest,
            &self.tools,
            &grant,
            PinnedBy::Person,
        )
        .shown_etag(record.as_deref())
    }

    fn component(&self) -> &Component {
        match &self.code {
            Code::World(pre) => pre.instance_pre().component(),
            Code::Typed { pre, .. } => pre.component(),
            Code::Shield(pre) => pre.instance_pre().component(),
            Code::Extractor(pre) => pre.instance_pre().component(),
        }
    }

    pub(crate) fn may_run(&self) -> bool {
        self.policy().may_run()
    }

    /// What holds for a call that begins now.
    pub(crate) fn policy(&self) -> Arc<EffectivePolicy> {
        self.policy.read().clone()
    }

    /// Holds for calls that begin from now on.
    pub(crate) fn set_policy(&self, policy: Arc<EffectivePolicy>) {
        let mut held = self.policy.write();
        policy.succeed(&held);
        *held = policy;
    }

    /// What `policy` means for the module, ready for calls; absent if nothing changes. Blocks on the file
    /// system.
    ///
    /// # Errors
    /// Why it cannot be given what `policy` gives it.
    pub(crate) fn effective_policy(
        &self,
        policy: &Policy,
        directories: &OpenDirectories,
    ) -> Result<Option<EffectivePolicy>, String> {
        let now = self.policy();
        let own = policy.modules.get(&self.name).cloned().unwrap_or_default();
        if let Some(reason) = own.fault {
            return Err(reason);
        }
        // Its own directories may be the same, and those of others new.
        if let Some(reason) = directories.conflict(&self.name) {
            return Err(reason);
        }
        let mut limits = policy.limits_of(&self.name, &self.manifest.limits);
        if !self.is_compiled_for(policy) {
            // It is run as it was compiled, until it is loaded again.
            (limits.stack_bytes, limits.fuel) = (now.limits.stack_bytes, now.limits.fuel);
        }
        if now.is_same(&limits, &own.grant) && now.granted.reserved == policy.reserved {
            return Ok(None);
        }
        let storage = &policy.storage;
        let resolver = policy.resolver.clone();
        let granted = PreparedGrant::new(&self.name, own.grant, storage, resolver, directories);
        match granted {
            Ok(granted) => Ok(Some(now.with(limits, granted))),
            Err(LoadError::Grant { reason }) => Err(reason),
            Err(other) => Err(other.to_string()),
        }
    }

    /// Whether its code is of the engine that serves the limits that `policy` sets it.
    pub(crate) fn is_compiled_for(&self, policy: &Policy) -> bool {
        let limits = policy.limits_of(&self.name, &self.manifest.limits);
        Variant::of(&limits) == self.engine.which()
    }

    /// Totals of its calls since it was loaded.
    pub fn counters(&self) -> Counters {
        self.tally.read()
    }
}

/// The tools with the examples that fit their schemas, and a note about the others.
async fn fitting_examples(
    mut tools: Vec<ToolSpec>,
) -> Result<(Vec<ToolSpec>, Vec<String>), LoadError> {
    if tools.iter().all(|tool| tool.examples.is_empty()) {
        return Ok((tools, Vec::new()));
    }
    blocking(move || {
        let notes = examples::keep_fitting(&mut tools, examples::CHECK_TIME)?;
        Ok((tools, notes))
    })
    .await
}

/// Runs work that takes more than a few microseconds where it holds up no other task.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LoadError> + Send + 'static,
) -> Result<T, LoadError> {
    crate::blocking::blocking(work).await
}

impl DescribeTools for Module {
    fn describe(&self, tool: &str) -> Option<&ToolSpec> {
        self.tools.iter().find(|spec| {
            let own = spec.name.strip_prefix(&self.name);
            own.and_then(|own| own.strip_prefix('.')) == Some(tool)
        })
    }
}
