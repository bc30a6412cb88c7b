//! `toolhold modules pull`: a component from a registry into the modules folder.

use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::progress::Spinner;
use crate::terminal::style::{bytes, dim, good, warn};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};
use toolhold_files::Links;
use toolhold_oci::PulledComponent;
use toolhold_policy::Digest;
use toolhold_policy::is_name;
use toolhold_runtime::components;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::install;
use toolhold_runtime::install::InstallPlace;
use toolhold_storage::Draft;

/// Maximum bytes of a component that is replaced: its digest is logged. Much larger than one that loads.
const MAX_REPLACED_BYTES: u64 = 1 << 30;

#[derive(Debug, Args)]
pub struct PullArgs {
    /// Reference: oci://HOST/REPOSITORY:TAG or oci://HOST/REPOSITORY@sha256:HEX
    reference: String,
    /// Name of the module [default: the last part of REPOSITORY].
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// Replace an existing component of this name.
    #[arg(long)]
    force: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub async fn pull(config: &Configuration, args: PullArgs) -> Result<Exit> {
    let reference = components::reference(&args.reference)?;
    let name = args.name.unwrap_or_else(|| reference.module_name());
    if !is_name(&name) {
        bail!(
            "{name:?} cannot name a module; choose a name of lower case letters, digits and _ with --as NAME"
        );
    }
    // Checked before anything is fetched, and again when the file is written.
    let place = place(config.new_modules_folder(), &name, args.force)?;
    let fetcher = host::fetcher(config)?;
    let fetched = {
        let _spinner = Spinner::start(format!("fetching {reference}"));
        let most = config.policy().component_bytes(&name);
        fetcher.resolve(&reference, most).await?
    };
    let replaced = toolhold_files::read(&place, MAX_REPLACED_BYTES, Links::Follow).ok();
    let replaced = replaced.map(|bytes| Digest::of(&bytes).to_string());
    let digest = Digest::of(&fetched.bytes).to_string();
    let draft = Draft::module_uploaded("", &name, &digest, replaced.as_deref());
    // Logged first: the audit log has every pulled component.
    host::store(config).await?.audit(draft).await?;
    put(&place, &fetched.bytes, args.force)?;
    if args.json {
        let whole = json!({
            "module": name,
            "path": place,
            "reference": reference.to_string(),
            "pinned": fetched.pinned.to_string(),
            "digest": fetched.pinned.digest().map(|digest| digest.to_string()),
            "component": fetched.component.to_string(),
            "bytes": fetched.bytes.len(),
            "from_cache": fetched.from_cache,
            "moved_from": fetched.moved_from.map(|digest| digest.to_string()),
        });
        output::json(&whole)?;
    } else {
        say(&place, &fetched);
    }
    Ok(Exit::Ok)
}

fn say(place: &Path, fetched: &PulledComponent) {
    let from = if fetched.from_cache {
        ", from the cache"
    } else {
        ""
    };
    let size = bytes(fetched.bytes.len() as u64);
    println!("{} {} ({size}{from})", good("pulled"), place.display());
    println!("  component {}", fetched.component);
    println!("  pinned    {}", fetched.pinned);
    if let Some(note) = fetched.note() {
        println!("{} {note}", warn("note:"));
    }
    println!(
        "{}",
        dim("  what it may do is yours to grant; it has nothing yet")
    );
}

/// `FOLDER/NAME.wasm`, if it may be written.
fn place(folder: &Path, name: &str, force: bool) -> Result<PathBuf> {
    match install::place(folder, name) {
        InstallPlace::Free(place) => Ok(place),
        InstallPlace::Taken(place) if force => Ok(place),
        InstallPlace::Taken(place) => Err(taken(&place)),
        InstallPlace::Folder(own) => bail!(
            "{} is already a module of that name; choose another with --as",
            own.display()
        ),
    }
}

fn taken(place: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "{} exists already; replace it with --force, or choose another name with --as",
        place.display()
    )
}

fn put(place: &Path, component: &[u8], force: bool) -> Result<()> {
    match install::put(place, component, force) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(taken(place)),
        other => other.with_context(|| format!("{} cannot be written", place.display())),
    }
}
