//! `toolhold modules list`.

use crate::commands::loaded::warn_of_left_out;
use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::style::{bold, bytes, dim, headline, line, warn};
use anyhow::Result;
use serde_json::json;
use toolhold_runtime::module_report::describe;
use toolhold_sandbox::Registry;

/// Prints all modules with their tools, then those that could not be loaded.
pub fn list(registry: &Registry, json: bool) -> Result<Exit> {
    if json {
        let failed: Vec<_> = registry
            .failures()
            .iter()
            .map(|f| json!({"name": f.name, "origin": f.origin, "error": f.error.to_string()}))
            .collect();
        let modules: Vec<_> = registry.modules().iter().map(|m| describe(m)).collect();
        output::json(&json!({"modules": modules, "failed": failed}))?;
        return Ok(Exit::Ok);
    }
    if registry.modules().is_empty() && registry.failures().is_empty() {
        output::tell(
            "no modules; drop a component into the folder, or start one with `toolhold new-module NAME --lang rust`",
        );
    }
    for module in registry.modules() {
        let version = module.version.as_ref();
        let version = version.map_or(String::new(), |version| format!(" {version}"));
        let digest = module.digest.to_string();
        let about = format!("{}, sha256:{digest:.12}…", bytes(module.size));
        output::tell(&format!("{}{version}  {}", bold(&module.name), dim(&about)));
        let pin_state = module.pin_state();
        if !pin_state.may_run() {
            output::tell(&format!(
                "  {} {}; toolhold modules approve {}",
                warn("disabled:"),
                line(&pin_state.reason()),
                module.slot
            ));
        }
        for tool in &module.tools {
            let headline = headline(tool.description.raw(), 100);
            output::tell(&format!("  {}  {}", tool.name, dim(&headline)));
        }
    }
    warn_of_left_out(registry);
    Ok(Exit::Ok)
}
