//! How far a process is with what it begins with: modules that the configuration names and that are loaded while it serves
//! already.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_sandbox::Registry;

/// Longest time after the begin of the process for which resumed runs wait for modules. A cold start of many large modules
/// takes minutes; a fetch or a compilation that hangs must not hold runs for ever.
const MAX_MODULES_WAIT: Duration = Duration::from_mins(10);

/// Longest time after the begin of the process for which resumed runs wait for another version of a module that is loaded,
/// although no file that claims its name is being loaded. The files may not be listed yet, or a version is fetched. But the
/// operator may have exchanged the module, and then the version never comes.
const MAX_VERSIONS_WAIT: Duration = Duration::from_secs(30);

/// Clones share the state.
#[derive(Debug, Clone)]
pub struct Startup {
    over: Arc<watch::Sender<bool>>,
    /// End of the time in which resumed runs wait for modules.
    modules_deadline: Instant,
    /// End of the time in which they wait for other versions of modules whose names are not being loaded.
    versions_deadline: Instant,
}

impl Default for Startup {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            over: Arc::new(watch::Sender::new(false)),
            modules_deadline: now + MAX_MODULES_WAIT,
            versions_deadline: now + MAX_VERSIONS_WAIT,
        }
    }
}

impl Startup {
    /// Every module that the configuration names is loaded, or cannot be.
    pub fn end(&self) {
        self.over.send_replace(true);
    }

    pub fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Completes when it is over, or when a module more is loaded or refused.
    pub async fn goes_on(&self, registry: &Registry) {
        let (mut over, mut changes) = (self.over.subscribe(), registry.changes());
        if self.is_over() {
            return;
        }
        tokio::select! {
            _ = over.changed() => {}
            _ = changes.changed() => {}
        }
    }

    /// True while a run with these `tools` may have to wait for another version of a module: only then are the digests of its
    /// modules worth reading.
    pub fn awaits_versions(&self, tools: &[Bound], registry: &Registry) -> bool {
        let is_awaited = |bound: &Bound| match &bound.runner {
            Runner::Module(own) => self.awaits_version(own, registry),
            _ => false,
        };
        !self.is_over() && tools.iter().any(is_awaited)
    }

    /// True while resumed runs wait for another version of this loaded module: while files that claim its name are being
    /// loaded, or the process has just begun.
    fn awaits_version(&self, name: &str, registry: &Registry) -> bool {
        Instant::now() < self.versions_deadline || registry.is_loading(&module_of(name))
    }

    /// The modules that `tools` need and that are not loaded yet: those that run them, and those that these may call.
    /// `modules`: digests, in hex, of the modules that the run was working with. A module that is loaded with another digest
    /// counts as not loaded while files that claim its name are being loaded, and for thirty seconds after the begin of the
    /// process: of two versions the older one may be there first. None, once all are loaded or refused, or ten minutes after
    /// that begin. Which modules a sub-agent needs its Request says, so with one of them all are waited for.
    pub fn awaited(
        &self,
        tools: &[Bound],
        modules: &BTreeMap<String, String>,
        registry: &Registry,
    ) -> BTreeSet<String> {
        let mut awaited = BTreeSet::new();
        if self.is_over() || Instant::now() >= self.modules_deadline {
            return awaited;
        }
        let failures = registry.failures();
        let has_failed = |name: &str| {
            let module = module_of(name);
            failures.iter().any(|failed| failed.name.raw() == module)
        };
        let mut looked_for = BTreeSet::new();
        let mut names = Vec::new();
        for bound in tools {
            match &bound.runner {
                Runner::Module(own) => match own.rsplit_once('.') {
                    // A component by its path or address.
                    Some((module, _)) if !module.contains(['/', ':']) => {
                        names.push(module.to_owned());
                    }
                    _ => drop(awaited.insert(EVERY_MODULE.to_owned())),
                },
                Runner::Request(_) | Runner::CleanRoom => {
                    awaited.insert(EVERY_MODULE.to_owned());
                }
                Runner::Activity(_) | Runner::Advisor | Runner::Client | Runner::Model => {}
            }
        }
        while let Some(name) = names.pop() {
            if !looked_for.insert(name.clone()) {
                continue;
            }
            match registry.module(&name) {
                Some(module) => {
                    let digest = modules.get(&name);
                    let is_it = digest.is_none_or(|digest| module.digest.to_string() == *digest);
                    if is_it || has_failed(&name) || !self.awaits_version(&name, registry) {
                        let grant = module.grant();
                        names.extend(grant.tools.iter().map(|tool| module_of(tool)));
                    } else {
                        awaited.insert(format!("{name} in the version that the run works with"));
                    }
                }
                None if has_failed(&name) => {}
                None => {
                    awaited.insert(name);
                }
            }
        }
        awaited
    }
}

/// In the place of names, where all modules are waited for.
const EVERY_MODULE: &str = "those of its Requests and paths";

/// The name of the module of a tool, `MODULE.tool`, or `MODULE@VERSION.tool`, or of the module itself.
fn module_of(tool: &str) -> String {
    let module = tool.split(['.', '@']).next().unwrap_or_default();
    module.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::path::{Path, PathBuf};
    use toolhold_protocol::tool::Tool;
    use toolhold_sandbox::{Engine, EngineConfig, LoadEvent, Policy};

    fn registry() -> Registry {
        let engine = Engine::new(EngineConfig::default()).unwrap();
        Registry::new(engine, None, Policy::default())
    }

    fn units_file() -> PathBuf {
        let file = "../../tests/components/units/units.wasm";
        Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
    }

    /// A registry with the small module `units`, and its digest in hex.
    async fn with_units() -> (Registry, String) {
        let bytes = std::fs::read(units_file()).unwrap();
        let registry = registry();
        registry.load_bytes("units", bytes).await.unwrap();
        let digest = registry.module("units").unwrap().digest.to_string();
        (registry, digest)
    }

    fn bound(runner: Runner) -> Bound {
        Bound {
            tool: Tool::new("t").into(),
            runner,
        }
    }

    #[tokio::test]
    async fn what_is_not_loaded_is_waited_for_until_the_start_is_over() {
        let registry = registry();
        let startup = Startup::default();
        let awaited = |tools: &[Bound]| startup.awaited(tools, &BTreeMap::new(), &registry);
        let module = || bound(Runner::Module("calc@1.2.0.evaluate".into()));
        let client = bound(Runner::Client);
        assert_eq!(
            awaited(&[module(), client]),
            ["calc@1.2.0".to_owned()].into()
        );
        assert!(awaited(&[]).is_empty());
        let room = bound(Runner::CleanRoom);
        assert_eq!(awaited(&[room]).len(), 1);
        startup.clone().end();
        assert!(startup.is_over() && awaited(&[module()]).is_empty());
    }

    /// The digest is the last one that the run worked with, and not the one of its begin.
    #[tokio::test]
    async fn another_version_of_a_loaded_module_is_waited_for_shortly() {
        let (registry, digest) = with_units().await;
        let tool = Tool {
            module_digest: Some("old".into()),
            ..Tool::new("units.length")
        };
        let tools = [Bound {
            tool: tool.into(),
            runner: Runner::Module("units.length".into()),
        }];
        let modules = |digest: &str| BTreeMap::from([("units".to_owned(), digest.to_owned())]);
        let mut startup = Startup::default();
        assert!(
            startup
                .awaited(&tools, &modules(&digest), &registry)
                .is_empty()
        );
        let awaited = startup.awaited(&tools, &modules("aa"), &registry);
        let expected = "units in the version that the run works with";
        assert_eq!(awaited, [expected.to_owned()].into());
        startup.versions_deadline = Instant::now();
        assert!(
            startup
                .awaited(&tools, &modules("aa"), &registry)
                .is_empty()
        );
        let missing = [bound(Runner::Module("calc.evaluate".into()))];
        let awaited = |startup: &Startup| startup.awaited(&missing, &modules("aa"), &registry);
        assert_eq!(
            awaited(&startup).len(),
            1,
            "a missing module is waited for longer"
        );
        startup.modules_deadline = Instant::now();
        assert!(awaited(&startup).is_empty());
        assert!(!startup.is_over(), "readiness goes on waiting");
    }

    #[tokio::test]
    async fn another_version_is_waited_for_while_its_name_is_loaded() {
        let (registry, _) = with_units().await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(units_file(), folder.path().join("units.wasm")).unwrap();
        let ignored = |_: LoadEvent| ();
        let mut load = Box::pin(registry.load_folder(folder.path(), None, &ignored));
        while !registry.is_loading("units") {
            assert!(load.as_mut().now_or_never().is_none(), "it takes longer");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let tools = [bound(Runner::Module("units.length".into()))];
        let modules = BTreeMap::from([("units".to_owned(), "aa".to_owned())]);
        let startup = Startup {
            versions_deadline: Instant::now(),
            ..Startup::default()
        };
        assert_eq!(startup.awaited(&tools, &modules, &registry).len(), 1);
        assert!(startup.awaits_versions(&tools, &registry));
        drop(load);
        assert!(!startup.awaits_versions(&tools, &registry));
        assert!(startup.awaited(&tools, &modules, &registry).is_empty());
    }
}
