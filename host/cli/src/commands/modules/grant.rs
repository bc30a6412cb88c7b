//! `toolhold modules grant` and `revoke`: permanent grants of a module.
//!
//! Grants are stored in a file of their own in the state folder, with the keys of `[module.NAME]` of the
//! configuration. The file is the weakest layer: an operator's configuration overrides it.

use super::{load, module};
use crate::commands::module_flags::directory;
use crate::config::{Loaded, ReloadCause};
use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::style::{bold, good, line, warn};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::{Table, Value};
use toolhold_files::{FileReaders, FolderLock, Links, UnfinishedFile};
use toolhold_policy::{PinState, PinStore as _};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_sandbox::{LoadError, Module, Registry};
use toolhold_storage::Draft;

#[derive(Debug, Args)]
pub struct GrantArgs {
    /// Name of the module.
    name: String,
    // Brackets in a doc comment would be links, here and below.
    #[arg(
        long,
        value_name = "DIR",
        help = "Grant a directory: HOST[:GUEST[:rw]]"
    )]
    with_dir: Vec<String>,
    /// Maximum size of the contents of each granted directory, in bytes.
    #[arg(long, value_name = "BYTES", requires = "with_dir")]
    quota: Option<i64>,
    /// Grant an environment variable: NAME=VALUE.
    #[arg(long, value_name = "VARIABLE")]
    with_env: Vec<String>,
    #[arg(
        long,
        value_name = "REQUESTS",
        help = "Grant HTTP requests: [METHODS ]ORIGIN[/PATH], such as 'GET,POST https://api.example.com/v1'"
    )]
    with_http: Vec<String>,
    /// Grant these HTTP requests also where the host is this machine or in its network.
    #[arg(long, requires = "with_http")]
    private: bool,
    #[arg(
        long,
        value_name = "SECRET",
        help = "Grant a secret for such requests: NAME=VARIABLE ORIGIN HEADER, such as 'key=API_KEY https://api.example.com Authorization'"
    )]
    with_secret: Vec<String>,
    /// Grant a scratch directory for every call, or with --keep for every session.
    #[arg(long)]
    scratch: bool,
    /// Keep scratch files between the calls of a session.
    #[arg(long, requires = "scratch")]
    keep: bool,
    /// Grant a key-value store that outlives a call.
    #[arg(long)]
    key_value: bool,
    /// Grant a collection of its callers' documents: NAME, or NAME:RIGHTS of search,read. owner/NAME is one that another
    /// key shares; a * at the end stands for all names that begin so.
    #[arg(long, value_name = "COLLECTION")]
    with_collection: Vec<String>,
    /// Grant facts of its callers: SCOPE, or SCOPE:RIGHTS of recall,remember,forget. Scopes are session, user and agent.
    #[arg(long, value_name = "SCOPE")]
    with_memory: Vec<String>,
    /// Grant calls of a tool of another module, or of all of its tools.
    #[arg(long, value_name = "TOOL")]
    with_tool: Vec<String>,
}

/// Stores the grants, and approves the module with them if nothing else changed.
pub async fn grant(loaded: &Loaded, args: &GrantArgs) -> Result<Exit> {
    let config = &loaded.configuration;
    if args.is_empty() {
        bail!(
            "nothing to grant: name it, such as --with-dir ./notes:/data:rw or --scratch; \
             `toolhold modules inspect {}` says what it asks for",
            args.name
        );
    }
    let registry = load(config, Some(&args.name)).await?;
    let then = module(config, &registry, &args.name)?;
    let store = host::store(config).await?;
    let grants = GrantsFile(loaded.grants_file());
    // Running servers apply the file at once, so it is put in place last: validated and logged. That takes long, and is
    // done again if another command changed the file meanwhile.
    let (registry, now) = loop {
        let before = grants.read()?;
        let mut file = before.clone();
        put(entry(&mut file, &args.name)?, args, &then)?;
        let unfinished = grants.beside(&file)?;
        let granting = loaded.granting(unfinished.path())?.configuration;
        let (registry, now) = Box::pin(with_grant(&granting, &args.name)).await?;
        let may = store
            .redaction()
            .value(&now.grant().without_values().into());
        let draft = Draft::module_granted(&now.slot, &now.digest.to_string(), may);
        store.audit(draft).await?;
        let lock = grants.lock()?;
        if grants.read()? == before {
            grants.put_in_place(&lock, unfinished)?;
            break (registry, now);
        }
    };
    output::tell(&format!("{} may", bold(&now.name)));
    for sentence in now.grant().sentences() {
        output::tell(&format!("  {}", line(&sentence)));
    }
    let policy = registry.policy();
    let inside = policy.reserved_in_grants().into_iter();
    for inside in inside.filter(|it| it.module == now.name) {
        output::tell(&format!("  {} {}", warn("not:"), line(&inside.to_string())));
    }
    match now.pin_state() {
        // The person decided about this grant, but not about other changes.
        PinState::Pending { changes }
            if changes.iter().all(|c| c.what.raw().starts_with("grant: ")) =>
        {
            // A decision of meanwhile holds.
            let etag = now.etag();
            let draft = Draft::module_approved("", &now.slot, &now.digest.to_string());
            store.audit(draft).await?;
            registry.approve(&now, &etag).await.with_context(|| {
                format!(
                    "it was granted, and not approved; see `toolhold modules approve {}`",
                    now.slot
                )
            })?;
            let with = if now.grant().is_empty() {
                "approved as it is"
            } else {
                "approved with this grant"
            };
            output::tell(&good(with));
        }
        PinState::Pending { .. } => output::tell(&format!(
            "{} {}; see `toolhold modules approve {}`",
            warn("still disabled:"),
            line(&now.pin_state().reason()),
            now.slot
        )),
        PinState::Approved | PinState::Trusted => {}
    }
    Ok(Exit::Ok)
}

/// Loads the module with the grants of this configuration.
async fn with_grant(config: &Configuration, name: &str) -> Result<(Registry, Arc<Module>)> {
    let registry = load(config, Some(name)).await?;
    if let Some(module) = registry.module(name) {
        return Ok((registry, module));
    }
    let failures = registry.failures();
    let reason = failures.first().map_or_else(
        || "the module is gone".to_owned(),
        |failed| match &failed.error {
            LoadError::Grant { reason } => line(reason),
            other => line(&other.to_string()),
        },
    );
    bail!("this cannot be granted: {reason}")
}

/// Removes the grants of `grant`, and the pin.
pub async fn revoke(loaded: &Loaded, name: &str) -> Result<Exit> {
    let config = &loaded.configuration;
    let grants = GrantsFile(loaded.grants_file());
    let lock = grants.lock()?;
    let mut file = grants.read()?;
    let given = file
        .get_mut("module")
        .and_then(Value::as_table_mut)
        .and_then(|modules| modules.remove(name));
    // A revocation takes effect even if it cannot be logged.
    if given.is_some() {
        grants.put_in_place(&lock, grants.beside(&file)?)?;
    }
    drop(lock);
    // The module may have failed to load with these grants.
    let registry = load(
        &loaded.again(ReloadCause::Person)?.configuration,
        Some(name),
    )
    .await?;
    let slot = match module(config, &registry, name) {
        Ok(module) => module.slot.clone(),
        Err(_) if given.is_some() => name.to_owned(),
        Err(error) => return Err(error),
    };
    config
        .module_pins()
        .revoke(&slot)
        .context("the pin cannot be taken back")?;
    let logged = async {
        let draft = Draft::module_revoked(&slot);
        host::store(config).await?.audit(draft).await?;
        Ok::<_, anyhow::Error>(())
    };
    let logged = logged.await;
    logged.context("it is revoked, but that is not in the audit log")?;
    output::tell(&format!(
        "{name} has nothing any more that `grant` gave it, and is disabled"
    ));
    let config = loaded.again(ReloadCause::Person)?.configuration;
    if !load(&config, Some(name))
        .await?
        .module(name)
        .is_none_or(|m| m.grant().is_empty())
    {
        output::tell(&format!(
            "{} the configuration still gives it something: see [module.{name}]",
            warn("note:")
        ));
    }
    Ok(Exit::Ok)
}

impl GrantArgs {
    fn is_empty(&self) -> bool {
        self.with_dir.is_empty()
            && self.with_env.is_empty()
            && self.with_http.is_empty()
            && self.with_secret.is_empty()
            && self.with_tool.is_empty()
            && self.with_collection.is_empty()
            && self.with_memory.is_empty()
            && !self.scratch
            && !self.key_value
    }
}

/// Adds the arguments to the existing grants.
fn put(given: &mut Table, args: &GrantArgs, module: &Module) -> Result<()> {
    let asks = &module.manifest.grants;
    for text in &args.with_dir {
        let mut value = directory(text);
        if let Value::Table(table) = &mut value {
            // Relative to the working folder, not to the grants file. Where its links lead now is what is granted.
            let host = Path::new(table["host"].as_str().unwrap_or_default());
            let host = host.canonicalize().or_else(|_| std::path::absolute(host));
            let host = host.with_context(|| format!("--with-dir {text}"))?;
            table.insert("host".into(), host.display().to_string().into());
            if let Some(quota) = args.quota {
                table.insert("quota_bytes".into(), quota.into());
            }
            let guest = table["guest"].clone();
            list(given, "directories")?.retain(|other| other.get("guest") != Some(&guest));
        }
        list(given, "directories")?.push(value);
    }
    for text in &args.with_env {
        let Some((name, value)) = text.split_once('=') else {
            bail!("--with-env {text}: expected NAME=VALUE");
        };
        table(given, "environment")?.insert(name.into(), value.into());
    }
    for text in &args.with_http {
        let value = requests(text, args.private)?;
        list(given, "http")?.push(value);
    }
    for text in &args.with_secret {
        let mut value = secret(text)?;
        let name = value.get("name").cloned();
        let secrets = list(given, "secrets")?;
        // The operator's decision about responses stays: the command has no word for it.
        let known = secrets
            .iter()
            .find(|known| known.get("name") == name.as_ref());
        if let (Some(reflect), Some(value)) = (
            known.and_then(|known| known.get("reflect")),
            value.as_table_mut(),
        ) {
            value.insert("reflect".into(), reflect.clone());
        }
        secrets.retain(|other| other.get("name") != name.as_ref());
        secrets.push(value);
    }
    for tool in &args.with_tool {
        let tools = list(given, "tools")?;
        if !tools.iter().any(|known| known.as_str() == Some(tool)) {
            tools.push(tool.as_str().into());
        }
    }
    if args.scratch {
        let scratch = table(given, "scratch")?;
        if let Some(wish) = &asks.scratch {
            scratch.insert("guest".into(), wish.guest.as_str().into());
            let quota = i64::try_from(wish.quota_bytes).unwrap_or(i64::MAX);
            scratch.insert("quota_bytes".into(), quota.into());
        }
        if args.keep {
            scratch.insert("keep".into(), "session".into());
        }
    }
    if args.key_value {
        let key_value = table(given, "key_value")?;
        if let Some(wish) = &asks.key_value {
            let quota = i64::try_from(wish.quota_bytes).unwrap_or(i64::MAX);
            key_value.insert("quota_bytes".into(), quota.into());
        }
    }
    for text in &args.with_collection {
        let (name, rights) = rights("--with-collection", text, &["search", "read"])?;
        let collections = list(table(given, "knowledge")?, "collections")?;
        collections.retain(|known| known.get("name").and_then(Value::as_str) != Some(name));
        let mut collection = Table::new();
        collection.insert("name".into(), name.into());
        collection.insert("rights".into(), rights.into());
        collections.push(Value::Table(collection));
    }
    for text in &args.with_memory {
        let (scope, rights) = rights("--with-memory", text, &["recall", "remember", "forget"])?;
        if !["session", "user", "agent"].contains(&scope) {
            bail!("--with-memory {text}: the scopes are session, user and agent");
        }
        let memory = table(table(given, "knowledge")?, "memory")?;
        memory.insert(scope.to_owned(), rights.into());
    }
    Ok(())
}

/// `fees:search,read` as a name and rights of those in `known`; without rights, all that there are.
fn rights<'a>(flag: &str, text: &'a str, known: &[&str]) -> Result<(&'a str, Vec<Value>)> {
    let (name, named) = match text.rsplit_once(':') {
        Some((name, named)) => (name, named.split(',').map(str::trim).collect()),
        None => (text, known.to_vec()),
    };
    if name.is_empty() || named.iter().any(|right| !known.contains(right)) {
        bail!(
            "{flag} {text}: expected NAME or NAME:RIGHTS, and the rights are {}",
            known.join(", ")
        );
    }
    Ok((name, named.into_iter().map(Value::from).collect()))
}

/// `GET,POST https://api.example.com/v1` as a value of the configuration.
fn requests(text: &str, private: bool) -> Result<Value> {
    let (methods, url) = match text.split_once(' ') {
        Some((methods, url)) => (Some(methods), url.trim()),
        None => (None, text),
    };
    let Some((scheme, rest)) = url.split_once("://") else {
        bail!(
            "--with-http {text}: expected [METHODS ]ORIGIN[/PATH], such as 'GET https://api.example.com/v1'"
        );
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let mut table = Table::new();
    table.insert("origin".into(), format!("{scheme}://{host}").into());
    if !path.is_empty() {
        table.insert("path_prefix".into(), path.into());
    }
    if let Some(methods) = methods {
        let methods: Vec<Value> = methods
            .split(',')
            .map(|method| method.trim().into())
            .collect();
        table.insert("methods".into(), methods.into());
    }
    if private {
        table.insert("private".into(), true.into());
    }
    Ok(Value::Table(table))
}

/// `key=API_KEY https://api.example.com Authorization` as a value of the configuration.
fn secret(text: &str) -> Result<Value> {
    let parts: Vec<_> = text.split_whitespace().collect();
    let [named, origin, header] = parts.as_slice() else {
        bail!("--with-secret {text:?}: expected 'NAME=VARIABLE ORIGIN HEADER'");
    };
    let Some((name, variable)) = named.split_once('=') else {
        bail!("--with-secret {text:?}: expected NAME=VARIABLE first");
    };
    let mut place = Table::new();
    let header = Table::from_iter([("name".to_owned(), Value::from(*header))]);
    place.insert("header".into(), header.into());
    let mut table = Table::new();
    table.insert("name".into(), name.into());
    table.insert("origin".into(), (*origin).into());
    table.insert("place".into(), place.into());
    table.insert("env".into(), variable.into());
    Ok(Value::Table(table))
}

fn entry<'a>(file: &'a mut Table, name: &str) -> Result<&'a mut Table> {
    table(table(file, "module")?, name)
}

fn table<'a>(parent: &'a mut Table, key: &str) -> Result<&'a mut Table> {
    parent
        .entry(key.to_owned())
        .or_insert_with(|| Value::Table(Table::new()))
        .as_table_mut()
        .with_context(|| format!("{key} in the file of grants is no table"))
}

fn list<'a>(parent: &'a mut Table, key: &str) -> Result<&'a mut Vec<Value>> {
    parent
        .entry(key.to_owned())
        .or_insert_with(|| Value::Array(Vec::new()))
        .as_array_mut()
        .with_context(|| format!("{key} in the file of grants is no list"))
}

/// Maximum bytes of the file of grants.
const MAX_GRANTS_BYTES: u64 = 16 << 20;

/// The file of grants, which several commands may change at the same time.
struct GrantsFile(PathBuf);

impl GrantsFile {
    fn read(&self) -> Result<Table> {
        let Self(path) = self;
        match toolhold_files::read_text(path, MAX_GRANTS_BYTES, Links::Follow) {
            Ok(text) => text
                .parse()
                .with_context(|| format!("{} is damaged", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Table::new()),
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
        }
    }

    fn folder(&self) -> &Path {
        self.0.parent().unwrap_or(Path::new("/"))
    }

    fn unwritable(&self) -> String {
        format!("{} cannot be written", self.0.display())
    }

    /// The right to change the file, and pins that grants come with.
    fn lock(&self) -> Result<FolderLock> {
        FolderLock::take(self.folder()).with_context(|| self.unwritable())
    }

    /// Writes the new content to a temporary file beside the target.
    fn beside(&self, file: &Table) -> Result<UnfinishedFile> {
        let text = toml::to_string_pretty(file)?;
        std::fs::create_dir_all(self.folder()).with_context(|| self.unwritable())?;
        UnfinishedFile::write(self.folder(), text.as_bytes(), FileReaders::Usual)
            .with_context(|| self.unwritable())
    }

    fn put_in_place(&self, lock: &FolderLock, unfinished: UnfinishedFile) -> Result<()> {
        lock.put_in_place(unfinished, self.0.file_name().unwrap_or_default())
            .with_context(|| self.unwritable())
    }
}
