//! `toolhold modules inspect`.

use crate::exit::Exit;
use crate::terminal::style::{bad, bold, bytes, count, dim, plain, warn};
use anyhow::Result;
use toolhold_policy::{DocsSource, Standing};
use toolhold_runtime::module_report::describe;
use toolhold_sandbox::Module;

/// Prints everything about a module.
pub fn inspect(module: &Module, json: bool) -> Result<Exit> {
    if json {
        println!("{}", serde_json::to_string_pretty(&describe(module))?);
        return Ok(Exit::Ok);
    }
    let manifest = &module.manifest;
    let version = manifest.version.as_deref();
    let version = version.map_or(String::new(), |version| format!(" {version}"));
    println!("{}{version}", bold(&module.name));
    if let Some(description) = &manifest.description {
        println!("{}", plain(description));
    }
    println!(
        "{}  {}  {:?}",
        module.origin,
        bytes(module.size),
        module.digest
    );
    println!("\n{}", bold("tools"));
    for tool in &module.tools {
        println!(
            "  {}\n    {}",
            bold(&tool.name),
            plain(&tool.description).replace('\n', "\n    ")
        );
        println!("    {}", dim(described_by(tool.docs_source)));
        println!("    arguments {}", plain(&tool.input_schema.to_string()));
        if let Some(output) = &tool.output_schema {
            println!("    returns   {}", plain(&output.to_string()));
        }
    }
    for (export, reason) in &module.refused {
        println!(
            "  {} {}: {}",
            bad("not a tool:"),
            plain(export),
            plain(reason)
        );
    }
    for note in &module.notes {
        println!("  {} {}", bad("note:"), plain(note));
    }
    println!("\n{}", bold("limits"));
    for limit in module.limits().entries() {
        println!(
            "  {:<20} {:>17}  {}",
            limit.name,
            count(limit.value),
            dim(limit.bounds)
        );
    }
    println!("\n{}", bold("what it may do"));
    println!("  compute, within its limits, on what it is given in a call");
    for sentence in module.grant().sentences() {
        println!("  {}", plain(&sentence));
    }
    if module.grant().is_empty() {
        println!("  nothing else: no files, no variables, no network, no other tools");
    }
    println!("\n{}", bold("what it asks for"));
    let wishes = manifest.grants.wishes();
    if wishes.is_empty() {
        println!("  nothing");
    }
    for wish in &wishes {
        println!("  to {}: {}", plain(&wish.to), plain(&wish.reason));
    }
    if !wishes.is_empty() {
        let how = format!(
            "give it with `toolhold modules grant {0}`, or for one command with flags such as --dir {0}=HOST:GUEST:rw",
            module.name
        );
        println!("  {}", dim(&how));
    }
    println!("\n{}", bold("approval"));
    let standing = module.standing();
    match &standing {
        Standing::Trusted => {
            println!("  everything is trusted here (modules.approval = \"never\")");
        }
        Standing::Approved => println!("  approved as it is"),
        Standing::Pending { .. } => {
            println!("  {} {}", warn("disabled:"), plain(&standing.reason()));
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
