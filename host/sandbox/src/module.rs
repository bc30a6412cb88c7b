//! Bytes → a verified, compiled, linked module and the tools it offers.

use crate::bindings::shield::ShieldPre;
use crate::bindings::{ToolModulePre, types};
use crate::cache::Cache;
use crate::call::Terms;
use crate::call::{self, Answer, Counter, Errand};
use crate::code;
use crate::counters::{Counters, Tally};
use crate::current::CurrentCall;
use crate::decided::{Decided, Given};
use crate::docs::wit;
use crate::egress::Resolve;
use crate::engine::Engine;
use crate::engine::Variant;
use crate::error::LoadError;
use crate::grant::{Prepared, Storage};
use crate::log_sink::GuestLogSink;
use crate::peers::OtherTools;
use crate::policy::Policy;
use crate::shield::{self, Screening, Verdict};
use crate::state::State;
use crate::typed::{self, TypedFunction};
use crate::{value, world};
use semver::Version;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use toolhold_policy::CallError;
pub use toolhold_policy::Digest;
use toolhold_policy::limits::Limits;
use toolhold_policy::manifest::Manifest;
use toolhold_policy::{Approval, ApprovedBy, CallReport, Grant, Invocation, Standing, ToolSpec};
use wasmtime::component::InstancePre;

/// The export that makes a component a module of the tool world, up to its patch version.
const TOOL_WORLD: &str = "toolhold:module/tools@0.1.";
/// The same for a shield.
const SHIELD_WORLD: &str = "toolhold:module/shields@0.1.";
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
}

/// What a component is loaded from.
pub(crate) struct Source {
    pub name: String,
    pub version: Option<Version>,
    /// The file's or folder's name: what approvals are kept under.
    pub slot: String,
    pub origin: String,
    pub bytes: Vec<u8>,
    /// The `.wit` files beside it, and what was wrong with finding them.
    pub wit: (Vec<wit::Package>, Vec<String>),
    pub manifest: Manifest,
    pub limits: Limits,
    pub grant: Grant,
    pub storage: Storage,
    pub resolver: Arc<dyn Resolve>,
}

/// A loaded module: compiled, linked, ready for calls.
pub struct Module {
    pub name: String,
    pub version: Option<Version>,
    /// The file's or folder's name without its ending: what approvals are kept under.
    pub slot: String,
    /// The file it was loaded from.
    pub origin: String,
    pub digest: Digest,
    /// Size of the component in bytes.
    pub size: u64,
    pub kind: ModuleKind,
    pub manifest: Manifest,
    pub tools: Vec<ToolSpec>,
    /// Exported functions that cannot be tools, and why.
    pub refused: Vec<(String, String)>,
    /// What is odd about it, but no reason to refuse it, such as docs that cannot be read.
    pub notes: Vec<String>,
    /// Interfaces the component imports, in its order.
    pub imports: Vec<String>,
    decided: RwLock<Arc<Decided>>,
    engine: Engine,
    code: Code,
    /// Unlike that of every other module of the process.
    pub(crate) number: u64,
    tally: Tally,
}

enum Code {
    World(ToolModulePre<State>),
    Typed {
        pre: InstancePre<State>,
        functions: HashMap<String, TypedFunction>,
    },
    Shield(ShieldPre<State>),
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
    /// `compiling` is told when a compilation begins; it is the only slow part.
    pub(crate) async fn load(
        engine: &Engine,
        cache: Option<&Cache>,
        source: Source,
        compiling: &(dyn Fn() + Sync),
    ) -> Result<Self, LoadError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Source {
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
        } = source;
        let engine = &engine.variant(Variant::of(&limits))?;
        let granted = Prepared::new(&name, grant, &storage, resolver)?;
        let size = bytes.len() as u64;
        code::check_size(size, limits.component_bytes)?;
        code::check_header(&bytes)?;
        let bytes = Arc::new(bytes);
        let (component, digest) =
            code::compiled(engine, cache, &limits, bytes.clone(), compiling).await?;
        code::within_limits(&component, &limits)?;

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
        let pre = engine
            .linker()
            .instantiate_pre(&component)
            .map_err(|error| LoadError::Link {
                reason: format!("{error:#}"),
            })?;

        let (kind, tools, refused, code) = if speaks_our_world {
            let pre = ToolModulePre::new(pre).map_err(|error| LoadError::Link {
                reason: format!("{error:#}"),
            })?;
            let tools = world::list_tools(engine, &name, &limits, &pre).await?;
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
        } else {
            let texts = manifest.tools.clone();
            // Parsing what the author wrote takes its time, like compiling.
            let sources =
                tokio::task::spawn_blocking(move || typed::Sources::read(&bytes, &packages, texts))
                    .await
                    .map_err(|error| LoadError::Read {
                        source: std::io::Error::other(error),
                    })?;
            let exports = typed::exports(engine, &name, &component, &sources)?;
            notes.extend(sources.into_notes(exports.functions.keys()));
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
        Ok(Self {
            decided: RwLock::new(Arc::new(Decided::new(limits, granted))),
            name,
            version,
            slot,
            origin,
            digest,
            size,
            kind,
            manifest,
            tools,
            refused,
            notes,
            imports,
            engine: engine.clone(),
            code,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            tally: Tally::default(),
        })
    }

    /// What it was given.
    pub fn grant(&self) -> Arc<Grant> {
        self.decided().granted.grant.clone()
    }

    /// What it is held to.
    pub fn limits(&self) -> Limits {
        self.decided().limits.clone()
    }

    /// Whether it may run now.
    pub fn standing(&self) -> Standing {
        self.decided().standing()
    }

    /// Of all that an approval pins: the component, its tools' words, its grant ([`Approval::etag`]).
    pub fn etag(&self) -> String {
        let grant = self.grant();
        Approval::of(
            &self.slot,
            self.digest,
            &self.tools,
            &grant,
            ApprovedBy::Person,
        )
        .etag()
    }

    pub(crate) fn may_run(&self) -> bool {
        self.decided().may_run()
    }

    /// What holds for a call that begins now.
    pub(crate) fn decided(&self) -> Arc<Decided> {
        self.decided
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// From now on this holds.
    pub(crate) fn decide(&self, decided: Arc<Decided>) {
        *self.decided.write().unwrap_or_else(PoisonError::into_inner) = decided;
    }

    /// What `policy` says of the module, ready for calls; nothing if it says what holds already. Blocks
    /// on the file system.
    ///
    /// # Errors
    /// Why it cannot be given what `policy` gives it.
    pub(crate) fn under(&self, policy: &Policy) -> Result<Option<Decided>, String> {
        let now = self.decided();
        let own = policy.modules.get(&self.name).cloned().unwrap_or_default();
        if let Some(reason) = own.fault {
            return Err(reason);
        }
        let mut limits = policy.limits_of(&self.name, &self.manifest.limits);
        if !self.is_compiled_for(policy) {
            // It is run as it was compiled, until it is loaded again.
            (limits.stack_bytes, limits.fuel) = (now.limits.stack_bytes, now.limits.fuel);
        }
        if now.is_same(&limits, &own.grant) {
            return Ok(None);
        }
        let storage = &policy.storage;
        let granted = Prepared::new(&self.name, own.grant, storage, policy.resolver.clone());
        match granted {
            Ok(granted) => Ok(Some(now.anew(limits, granted))),
            Err(LoadError::Grant { reason }) => Err(reason),
            Err(other) => Err(other.to_string()),
        }
    }

    /// Whether its code is of the engine that serves the limits that `policy` sets it.
    pub(crate) fn is_compiled_for(&self, policy: &Policy) -> bool {
        let limits = policy.limits_of(&self.name, &self.manifest.limits);
        Variant::of(&limits) == self.engine.which()
    }

    /// What became of its calls since it was loaded.
    pub fn counters(&self) -> Counters {
        self.tally.read()
    }

    /// Runs one of this module's tools in a fresh instance. `tool` is its name in the module.
    pub(crate) async fn call(
        self: &Arc<Self>,
        given: Given<'_>,
        tool: &str,
        invocation: &Invocation<'_>,
        peers: OtherTools,
    ) -> CallReport {
        let decided = given.decided;
        let mut report = match self.admit(decided, invocation) {
            Ok(()) => self.perform(given, tool, invocation, peers).await,
            Err(error) => CallReport::refused(error),
        };
        if let Some(narrow) = given.narrow {
            narrow.explain(&mut report);
        }
        report.redact(decided.granted.egress.redactor());
        self.tally.add(&report);
        report
    }

    /// Everything that is checked before a call waits for a place.
    fn admit(&self, decided: &Decided, invocation: &Invocation<'_>) -> Result<(), CallError> {
        decided.check()?;
        if !decided.may_run() {
            return Err(CallError::NotApproved {
                module: self.slot.clone(),
                reason: decided.standing().reason(),
            });
        }
        for (rate, limit) in [
            (decided.rate.as_ref(), decided.limits.calls_per_minute),
            (
                self.engine.rate(),
                self.engine.config().calls_per_minute.into(),
            ),
        ] {
            rate.take()
                .map_err(|retry_after| CallError::Rate { limit, retry_after })?;
        }
        let limit = decided.limits.argument_bytes;
        let wrong = |reason| CallError::Arguments { reason };
        let depth = decided.limits.json_depth;
        // First: what follows recurses.
        call::shallow(invocation.arguments, depth).map_err(wrong)?;
        let mut size = Counter { bytes: 0, limit };
        serde_json::to_writer(&mut size, invocation.arguments)
            .map_err(|_| wrong(format!("they have more bytes than the limit of {limit}")))?;
        let Some(reserved) = invocation.reserved else {
            return Ok(());
        };
        let theirs = |reason| wrong(format!("of the call's reserved properties, {reason}"));
        call::shallow_members(reserved, depth).map_err(theirs)?;
        serde_json::to_writer(&mut size, reserved).map_err(|_| {
            wrong(format!(
                "with the call's reserved properties they have more bytes than the limit of {limit}"
            ))
        })
    }

    /// Has a shield screen something, in a fresh instance.
    pub(crate) async fn screen(
        self: &Arc<Self>,
        screening: &Screening<'_>,
    ) -> Result<Verdict, CallError> {
        let Code::Shield(pre) = &self.code else {
            return Err(CallError::UnknownTool {
                tool: self.name.clone(),
                available: "the module exports no shield".into(),
            });
        };
        let invocation = Invocation {
            context: screening.context,
            timeout: screening.timeout,
            ..Invocation::new("", "", screening.value)
        };
        let decided = self.decided();
        let mut report: CallReport = match self.admit(&decided, &invocation) {
            Ok(()) => {
                let given = Given {
                    decided: &decided,
                    narrow: None,
                };
                let terms = self.terms(given, "", &invocation, OtherTools::default());
                let ran = call::run(terms, Errand::Screen(pre, screening.for_guest())).await;
                ran.and_then(|answer| match answer {
                    Answer::Verdict(answer) => shield::output(answer, &decided.limits),
                    _ => Err(mismatched()),
                })
                .into()
            }
            Err(error) => CallReport::refused(error),
        };
        report.redact(decided.granted.egress.redactor());
        self.tally.add(&report);
        shield::verdict(report)
    }

    fn terms<'a>(
        self: &'a Arc<Self>,
        given: Given<'a>,
        tool: &'a str,
        invocation: &Invocation<'a>,
        peers: OtherTools,
    ) -> Terms<'a> {
        let decided = given.decided;
        let own = decided.limits.timeout();
        Terms {
            engine: &self.engine,
            limits: &decided.limits,
            granted: given.granted(),
            module: self.number,
            caller: invocation.caller,
            peers,
            current: CurrentCall::new(self, tool, invocation),
            ear: GuestLogSink::new(
                invocation.listener.clone(),
                decided.granted.egress.redactor(),
            ),
            timeout: invocation.timeout.map_or(own, |timeout| timeout.min(own)),
        }
    }

    async fn perform(
        self: &Arc<Self>,
        given: Given<'_>,
        tool: &str,
        invocation: &Invocation<'_>,
        peers: OtherTools,
    ) -> CallReport {
        let unknown = || {
            let names: Vec<_> = self.tools.iter().map(|t| t.name.as_str()).collect();
            let available = format!("module {} has {}", self.name, names.join(", "));
            CallReport::refused(CallError::UnknownTool {
                tool: invocation.tool.to_owned(),
                available,
            })
        };
        let terms = self.terms(given, tool, invocation, peers);
        let limits = &given.decided.limits;
        match &self.code {
            Code::World(pre) => {
                let guest = types::Invocation {
                    id: invocation.id.to_owned(),
                    tool: tool.to_owned(),
                    arguments: invocation.arguments.to_string(),
                    context: invocation
                        .context
                        .iter()
                        .map(|(path, value)| types::ScopedValue {
                            path: path.clone(),
                            value: value.to_string(),
                        })
                        .collect(),
                };
                let ran = call::run(terms, Errand::World(pre, guest)).await;
                ran.and_then(|answer| match answer {
                    Answer::World(answer) => call::world_output(answer, limits),
                    _ => Err(mismatched()),
                })
                .into()
            }
            Code::Shield(_) => unknown(),
            Code::Typed { pre, functions } => {
                let Some(function) = functions.get(tool) else {
                    return unknown();
                };
                let arguments = match value::arguments(invocation.arguments, &function.params) {
                    Ok(arguments) => arguments,
                    Err(reason) => return CallReport::refused(CallError::Arguments { reason }),
                };
                let ran = call::run(terms, Errand::Typed(pre, function, arguments)).await;
                ran.and_then(|answer| match answer {
                    Answer::Typed(answer) => typed::output(answer, function, limits),
                    _ => Err(mismatched()),
                })
                .into()
            }
        }
    }
}

/// An errand was answered by another errand's answer: a mistake of ours, never of a guest's.
pub(crate) fn mismatched() -> CallError {
    CallError::Host {
        reason: "the answer does not belong to the question".into(),
    }
}
