//! How far a process is with what it begins with: modules that the configuration names and that are loaded while it serves
//! already.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_sandbox::{Module, Registry};

/// Longest time after the begin of the process for which resumed runs wait for modules. A cold start of many large modules
/// takes minutes; a fetch or a compilation that hangs must not hold runs for ever.
const MAX_MODULES_WAIT: Duration = Duration::from_mins(10);

/// Clones share the state.
#[derive(Debug, Clone)]
pub struct Startup {
    over: Arc<watch::Sender<bool>>,
    /// End of the time in which resumed runs wait for modules.
    modules_deadline: Instant,
}

impl Default for Startup {
    fn default() -> Self {
        Self {
            over: Arc::new(watch::Sender::new(false)),
            modules_deadline: Instant::now() + MAX_MODULES_WAIT,
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

    /// The modules that `tools` need and that are not loaded yet: those that run them, and those that these may call.
    /// A module that is loaded with another digest than its tool names counts as not loaded: of two versions the older one
    /// may be there first. None, once all are loaded or refused, or ten minutes after the begin of the process. Which
    /// modules a sub-agent needs its Request says, so with one of them all are waited for.
    pub fn awaited(&self, tools: &[Bound], registry: &Registry) -> BTreeSet<String> {
        let mut awaited = BTreeSet::new();
        if self.is_over() || Instant::now() >= self.modules_deadline {
            return awaited;
        }
        let failures = registry.failures();
        let mut looked_for = BTreeSet::new();
        let mut names: Vec<(String, Option<&str>)> = Vec::new();
        for bound in tools {
            match &bound.runner {
                Runner::Module(own) => match own.rsplit_once('.') {
                    // A component by its path or address.
                    Some((module, _)) if !module.contains(['/', ':']) => {
                        names.push((module.to_owned(), bound.tool.module_digest.as_deref()));
                    }
                    _ => drop(awaited.insert(EVERY_MODULE.to_owned())),
                },
                Runner::Request(_) | Runner::CleanRoom => {
                    awaited.insert(EVERY_MODULE.to_owned());
                }
                Runner::Activity(_) | Runner::Advisor | Runner::Client | Runner::Model => {}
            }
        }
        while let Some((name, digest)) = names.pop() {
            if !looked_for.insert((name.clone(), digest)) {
                continue;
            }
            let is_it =
                |module: &Arc<Module>| digest.is_none_or(|it| module.digest.to_string() == it);
            match registry.module(&name).filter(is_it) {
                Some(module) => {
                    let grant = module.grant();
                    names.extend(grant.tools.iter().map(|tool| (module_of(tool), None)));
                }
                None if failures
                    .iter()
                    .any(|failed| failed.name.raw() == module_of(&name)) => {}
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
    use std::path::Path;
    use toolhold_protocol::tool::Tool;
    use toolhold_sandbox::{Engine, EngineConfig, Policy};

    fn registry() -> Registry {
        let engine = Engine::new(EngineConfig::default()).unwrap();
        Registry::new(engine, None, Policy::default())
    }

    /// A registry with the small module `units`, and its digest in hex.
    async fn with_units() -> (Registry, String) {
        let file = "../../tests/components/units/units.wasm";
        let bytes = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
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
        let module = || bound(Runner::Module("calc@1.2.0.evaluate".into()));
        let client = bound(Runner::Client);
        assert_eq!(
            startup.awaited(&[module(), client], &registry),
            ["calc@1.2.0".to_owned()].into()
        );
        assert!(startup.awaited(&[], &registry).is_empty());
        let room = bound(Runner::CleanRoom);
        assert_eq!(startup.awaited(&[room], &registry).len(), 1);
        startup.clone().end();
        assert!(startup.is_over() && startup.awaited(&[module()], &registry).is_empty());
    }

    #[tokio::test]
    async fn a_module_of_another_digest_is_waited_for_as_long_as_the_start_may_take() {
        let (registry, digest) = with_units().await;
        let tool = |digest: &str| {
            let tool = Tool {
                module_digest: Some(digest.to_owned()),
                ..Tool::new("units.length")
            };
            Bound {
                tool: tool.into(),
                runner: Runner::Module("units.length".into()),
            }
        };
        let mut startup = Startup::default();
        assert!(startup.awaited(&[tool(&digest)], &registry).is_empty());
        let awaited = startup.awaited(&[tool("aa")], &registry);
        assert_eq!(awaited, ["units".to_owned()].into());
        startup.modules_deadline = Instant::now();
        assert!(startup.awaited(&[tool("aa")], &registry).is_empty());
        assert!(!startup.is_over(), "readiness goes on waiting");
    }
}
