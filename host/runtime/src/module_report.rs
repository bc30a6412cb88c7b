//! Modules as JSON: the same for `toolhold modules inspect --json` and for the HTTP API.

use serde_json::{Value, json};
use toolhold_sandbox::Module;

/// Why a module may not run, and what to do.
pub fn disabled(module: &Module) -> Option<String> {
    let (slot, pin_state) = (&module.slot, module.pin_state());
    let reason = pin_state.reason();
    (!pin_state.may_run()).then(|| format!("disabled: {reason}; toolhold modules approve {slot}"))
}

/// Everything about a module: its tools, limits, what it asks for, and what it may do.
pub fn describe(module: &Module) -> Value {
    json!({
        "name": module.name,
        "version": module.version.as_ref().map(ToString::to_string),
        "origin": module.origin,
        "digest": module.digest,
        // Of all that is approved with it.
        "etag": module.etag(),
        "bytes": module.size,
        "kind": module.kind,
        "tools": module.tools,
        "refused": module.refused.iter().map(|(export, reason)| json!({"export": export, "reason": reason})).collect::<Vec<_>>(),
        "notes": module.notes,
        "imports": module.imports,
        "limits": module.limits(),
        "asks_for": module.manifest.grants,
        "granted": *module.grant(),
        "may": module.grant().sentences(),
        "standing": module.pin_state(),
        "counters": module.counters(),
    })
}
