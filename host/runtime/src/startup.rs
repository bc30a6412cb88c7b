//! How far a process is with what it begins with: modules that the configuration names and that are loaded while it serves
//! already.

use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_sandbox::Registry;

/// Clones share the state.
#[derive(Debug, Clone)]
pub struct Startup(Arc<watch::Sender<bool>>);

impl Default for Startup {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Startup {
    /// Every module that the configuration names is loaded, or cannot be.
    pub fn end(&self) {
        self.0.send_replace(true);
    }

    pub fn is_over(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes when it is over, or when a module more is loaded or refused.
    pub async fn goes_on(&self, registry: &Registry) {
        let (mut over, mut changes) = (self.0.subscribe(), registry.changes());
        if self.is_over() {
            return;
        }
        tokio::select! {
            _ = over.changed() => {}
            _ = changes.changed() => {}
        }
    }

    /// The modules that `tools` need and that are not loaded yet: those that run them, and those that these may call.
    /// None, once all are loaded or refused: then there is nothing to wait for. Which modules a sub-agent needs its
    /// Request says, so with one of them all are waited for.
    pub fn awaited(&self, tools: &[Bound], registry: &Registry) -> BTreeSet<String> {
        let mut awaited = BTreeSet::new();
        if self.is_over() {
            return awaited;
        }
        let failures = registry.failures();
        let mut looked_for = BTreeSet::new();
        let mut names: Vec<String> = Vec::new();
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
                    let grant = module.grant();
                    names.extend(grant.tools.iter().map(|tool| module_of(tool)));
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
    use toolhold_protocol::tool::Tool;
    use toolhold_sandbox::{Engine, EngineConfig, Policy};

    fn bound(runner: Runner) -> Bound {
        Bound {
            tool: Tool::new("t").into(),
            runner,
        }
    }

    #[tokio::test]
    async fn what_is_not_loaded_is_waited_for_until_the_start_is_over() {
        let engine = Engine::new(EngineConfig::default()).unwrap();
        let registry = Registry::new(engine, None, Policy::default());
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
}
