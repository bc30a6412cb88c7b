//! The modules of a registry as an MCP server offers them.

use crate::tools::SandboxTools;
use std::sync::Arc;
use toolhold_admission::MemoryCeiling;
use toolhold_agent::Toolbox;
use toolhold_mcp::serve::{Disabled, ModuleHost};
use toolhold_policy::ToolSpec;
use toolhold_sandbox::Registry;

/// All modules that are loaded.
#[derive(Debug)]
pub struct RegistryModules(pub Registry);

impl ModuleHost for RegistryModules {
    fn tools(&self) -> Vec<ToolSpec> {
        self.0.tools()
    }

    fn disabled(&self, module: &str) -> Option<Disabled> {
        let module = self.0.module(module)?;
        let pin_state = module.pin_state();
        (!pin_state.may_run()).then(|| Disabled {
            slot: module.slot.clone(),
            reason: pin_state.reason(),
        })
    }

    fn argument_bytes(&self, tool: &str) -> Option<u64> {
        let (module, _) = tool.rsplit_once('.')?;
        Some(self.0.module(module)?.limits().argument_bytes)
    }

    fn kept(&self) -> MemoryCeiling {
        self.0.kept().clone()
    }

    fn toolbox(&self, session: &str) -> Toolbox {
        Arc::new(SandboxTools::new(self.0.clone()).on_behalf_of("", session)).into()
    }
}
