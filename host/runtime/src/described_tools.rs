//! Tools of modules as runs are offered them, made once for each module that is loaded. Runs, requests and nested calls
//! share them, so a list of them is known by its addresses (`toolhold_agent::catalogue`).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use toolhold_agent::module_tool;
use toolhold_protocol::tool::Tool;
use toolhold_sandbox::Module;

/// Returns the tools of a module, with the party that their calls take turns with.
pub(crate) fn described(module: &Arc<Module>) -> Arc<[Arc<Tool>]> {
    // What an operator grants a module decides it, and may change.
    let takes_turns = module.takes_turns();
    if let Some(known) = shared().find(module, takes_turns) {
        return known;
    }
    let party = takes_turns.then(|| module.name.clone());
    let digest = module.digest.to_string();
    let tools = module.tools.iter().map(|spec| {
        Arc::new(Tool {
            takes_turns: party.clone(),
            module_digest: Some(digest.clone()),
            ..module_tool(spec)
        })
    });
    let tools = tools.collect();
    shared().keep(module, takes_turns, tools)
}

fn shared() -> MutexGuard<'static, DescribedTools> {
    static SHARED: LazyLock<Mutex<DescribedTools>> = LazyLock::new(Mutex::default);
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tools by the numbers of their modules.
#[derive(Debug, Default)]
struct DescribedTools(HashMap<u64, DescribedModule>);

#[derive(Debug)]
struct DescribedModule {
    /// When it is gone, its tools go with the next module that is described.
    module: Weak<Module>,
    takes_turns: bool,
    tools: Arc<[Arc<Tool>]>,
}

impl DescribedTools {
    fn find(&self, module: &Module, takes_turns: bool) -> Option<Arc<[Arc<Tool>]>> {
        let known = self.0.get(&module.number())?;
        (known.takes_turns == takes_turns).then(|| known.tools.clone())
    }

    /// Keeps the tools, or returns those that another caller has kept meanwhile.
    fn keep(
        &mut self,
        module: &Arc<Module>,
        takes_turns: bool,
        tools: Arc<[Arc<Tool>]>,
    ) -> Arc<[Arc<Tool>]> {
        if let Some(known) = self.find(module, takes_turns) {
            return known;
        }
        self.0.retain(|_, known| known.module.strong_count() > 0);
        let described = DescribedModule {
            module: Arc::downgrade(module),
            takes_turns,
            tools: tools.clone(),
        };
        self.0.insert(module.number(), described);
        tools
    }
}
