//! `toolhold modules inspect`.

use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::style::{bad, bold, bytes, count, dim, line, warn};
use anyhow::Result;
use toolhold_policy::{DocsSource, PinState};
use toolhold_runtime::module_report::describe;
use toolhold_sandbox::Module;

/// Prints everything about a module.
pub fn inspect(module: &Module, json: bool) -> Result<Exit> {
    if json {
        output::json(&describe(module))?;
        return Ok(Exit::Ok);
    }
    let manifest = &module.manifest;
    let version = manifest.version.as_ref();
    let version = version.map_or(String::new(), |version| format!(" {version}"));
    output::tell(&format!("{}{version}", bold(&module.name)));
    if let Some(description) = &manifest.description {
        output::tell(&format!("  │ {}", description.block("  ")));
    }
    let (size, digest) = (bytes(module.size), module.digest);
    output::tell(&format!("{}  {size}  {digest:?}", module.origin));
    output::tell(&format!("\n{}", bold("tools")));
    for tool in &module.tools {
        let description = tool.description.block("    ");
        output::tell(&format!("  {}\n    │ {description}", bold(&tool.name)));
        output::tell(&format!("    {}", dim(described_by(tool.docs_source))));
        let arguments = line(&tool.input_schema.to_string());
        output::tell(&format!("    arguments {arguments}"));
        if let Some(output) = &tool.output_schema {
            output::tell(&format!("    returns   {}", line(&output.to_string())));
        }
    }
    for (export, reason) in &module.refused {
        output::tell(&format!("  {} {export}: {reason}", bad("not a tool:")));
    }
    for note in &module.notes {
        output::tell(&format!("  {} {note}", bad("note:")));
    }
    output::tell(&format!("\n{}", bold("limits")));
    for limit in module.limits().entries() {
        output::tell(&format!(
            "  {:<20} {:>17}  {}",
            limit.name,
            count(limit.value),
            dim(limit.bounds)
        ));
    }
    output::tell(&format!("\n{}", bold("what it may do")));
    output::tell("  compute, within its limits, on what it is given in a call");
    for sentence in module.grant().sentences() {
        output::tell(&format!("  {}", line(&sentence)));
    }
    if module.grant().is_empty() {
        output::tell("  nothing else: no files, no variables, no network, no other tools");
    }
    output::tell(&format!("\n{}", bold("what it asks for")));
    let wishes = manifest.grants.wishes();
    if wishes.is_empty() {
        output::tell("  nothing");
    }
    for wish in &wishes {
        output::tell(&format!("  to {}: {}", wish.to, wish.reason));
    }
    if !wishes.is_empty() {
        let how = format!(
            "give it with `toolhold modules grant {0}`, or for one command with flags such as --dir {0}=HOST:GUEST:rw",
            module.name
        );
        output::tell(&format!("  {}", dim(&how)));
    }
    output::tell(&format!("\n{}", bold("pin")));
    let pin_state = module.pin_state();
    match &pin_state {
        PinState::Trusted => {
            output::tell("  everything is trusted here (modules.pinning = \"never\")");
        }
        PinState::Approved => output::tell("  approved as it is"),
        PinState::Pending { .. } => {
            output::tell(&format!(
                "  {} {}",
                warn("disabled:"),
                line(&pin_state.reason())
            ));
        }
    }
    Ok(Exit::Ok)
}

fn described_by(source: DocsSource) -> &'static str {
    match source {
        DocsSource::Module => "described by the module itself",
        DocsSource::Section => "described by the docs section in the component",
        DocsSource::Wit => "described by a .wit file beside the component",
        DocsSource::Manifest => "described by module.toml",
        DocsSource::PackageDocs => "described by the package-docs section in the component",
        DocsSource::Signature => "no description; generated from the signature",
    }
}
