//! Where the configuration comes from: read once, merged from its layers, checked, then passed down as
//! values. Nothing else in Toolhold reads configuration files, variables or flags.
//!
//! Unknown keys are errors: in a host for hostile code a misspelt limit must not silently be no limit. Of a file
//! that was found and is not trusted, only what cannot harm holds.

#[cfg(test)]
mod author_tests;
mod emptied;
mod files;
mod flags;
mod found;
#[cfg(test)]
mod found_tests;
mod harmless;
mod known;
mod layers;
pub mod presets;
mod reload;
mod reserved;
mod restart;
#[cfg(test)]
mod retention_tests;
#[cfg(test)]
mod routes_tests;
pub mod secrets;
pub mod shipped;
mod shown;
#[cfg(test)]
mod surface;
mod syntax;
mod user_folder;

pub use files::{MAX_CONFIG_BYTES, usual_files};
pub use flags::Flags;
pub use found::{FOUND, FoundFile, Untrusted, settings};
pub use known::most_similar;
pub use layers::{ConfigError, MODEL_FLAG, Setting};
pub use reload::ReloadCause;

use crate::program;
use emptied::{ContentInUse, EmptiedFile};
use files::ConfigFiles;
use found::FoundLayer;
use layers::Merged;
use secrecy::ExposeSecret as _;
use secrets::{Needs, ReadSecrets, SecretStore, SecretsTable, StoreChoice, StoredSecrets};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use toml::{Table, Value};
use toolhold_files::Links;
use toolhold_mcp::serve as mcp_server;
use toolhold_policy::Digest;
use toolhold_runtime::config::{
    AgentConfiguration, AgentTable, ConfigContext, ConfigFault, Configuration, DEFAULT_AGENT,
    InvalidAgent, LogFormat, ShippedModules, Tables, UsualModules,
};
use toolhold_runtime::file_pins::FilePins;
use toolhold_sandbox::CompilerProcess;
use toolhold_server::settings as serve;
use user_folder::UserFolder;

/// The command that makes this binary the compiler's process.
pub const COMPILER_COMMAND: &str = "compile-component";

/// A loaded configuration, and the inputs to load it again.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub configuration: Configuration,
    /// The agent of runs that begin at a terminal: the default agent, with what the command line says on top.
    run_agent: Result<AgentConfiguration, InvalidAgent>,
    pub serve: serve::Settings,
    pub mcp_server: mcp_server::Settings,
    /// Every effective value, with its origin.
    pub settings: Vec<Setting>,
    /// The found file, if it is not trusted and sets what only a trusted file may.
    pub untrusted: Option<Untrusted>,
    /// What became of the secrets that the configuration names.
    pub secrets: ReadSecrets,
    needs: Needs,
    /// Records of the trust in the files, whether they exist or not.
    records: Vec<PathBuf>,
    file: Option<PathBuf>,
    /// The file whose bytes are in effect without a pin.
    in_effect: Option<FileInEffect>,
    content: ContentInUse,
    /// A file that lost its content, and whose content of before is in use.
    pub emptied: Option<EmptiedFile>,
    flags: Flags,
    /// The modules that the command needs; all of them if it is absent.
    pub only: Option<Vec<String>>,
}

impl Loaded {
    /// The agent of runs that begin at a terminal.
    ///
    /// # Errors
    /// What is wrong with `[agents.default]`.
    pub fn run_agent(&self) -> Result<&AgentConfiguration, InvalidAgent> {
        self.run_agent.as_ref().map_err(Clone::clone)
    }
}

/// A configuration file as it took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileInEffect {
    path: PathBuf,
    /// SHA-256 of its bytes; absent: there was no file.
    digest: Option<Digest>,
}

/// Merges the layers and checks the result. `file` is read in place of the user's and the folder's file.
///
/// # Errors
/// A file that cannot be read or parsed, a key that does not exist, a value of the wrong type, a secret that is needed
/// and cannot be read.
pub fn load(file: Option<&Path>, flags: &Flags, needs: Needs) -> Result<Loaded, ConfigError> {
    let secrets = SecretReading {
        needs,
        before: ReadSecrets::default(),
    };
    load_granting(file, flags, None, &secrets, None)
}

/// How secrets are read.
struct SecretReading {
    needs: Needs,
    before: ReadSecrets,
}

/// Loads with another grants file than the one in the state folder. `content` stands in for files that are empty now.
fn load_granting(
    file: Option<&Path>,
    flags: &Flags,
    grants: Option<&Path>,
    secrets: &SecretReading,
    content: Option<&ContentInUse>,
) -> Result<Loaded, ConfigError> {
    let (mut files, mut trusted) = files_with_trust(file, flags)?;
    // Keys that do not exist are told, whatever else the file lost.
    let mut untrusted = layers::untrusted(&files)?;
    let mut emptied = content.and_then(|content| {
        // Where they do not hold together, the reason is told below.
        let merged = layers::merge(&files, flags, variables()).ok();
        content.restore(&mut files, merged.as_ref())
    });
    if emptied.is_some() {
        untrusted = layers::untrusted(&files)?;
    }
    if file.is_some() {
        // `trust` keeps a named file where the user's own configuration says, not where the file does.
        trusted = self::trusted(flags).ok();
    }
    let mut load = || {
        // The folder of the grants is itself a setting.
        let merged = layers::merge(&files, flags, variables())?;
        let usual = grants_file(&state_folder(&merged)?);
        files.read_grants(grants.unwrap_or(&usual))?;
        let without_grants = content.and_then(|content| content.restore_grants(&mut files));
        emptied = emptied.take().or(without_grants);
        let merged = layers::merge(&files, flags, variables())?.known()?;
        resolved(&merged, &files, flags, secrets)
    };
    let loaded = load().map_err(|error| match &untrusted {
        Some(untrusted) => error.beside(untrusted),
        None => error,
    })?;
    if emptied.is_some() {
        untrusted = layers::untrusted(&files)?;
    }
    let is_found = file.is_none();
    let folder = Path::new(".").canonicalize().ok().filter(|_| is_found);
    let records = trusted.map(|trusted| {
        let found = folder.map(|folder| trusted.record_path(&folder.join(FOUND)));
        let own = files.own_path().map(|own| trusted.record_path(&real(&own)));
        found.into_iter().chain(own).collect()
    });
    Ok(Loaded {
        untrusted,
        records: records.unwrap_or_default(),
        file: file.map(Path::to_owned),
        in_effect: in_effect(&files),
        content: ContentInUse::of(&files),
        emptied,
        ..loaded
    })
}

fn in_effect(files: &ConfigFiles) -> Option<FileInEffect> {
    let path = files.own_path()?;
    let digest = files.own_digest;
    Some(FileInEffect { path, digest })
}

/// Path with a folder that has no links; the path itself where its folder cannot be found.
fn real(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let folder = folder
        .canonicalize()
        .or_else(|_| std::path::absolute(folder));
    match (folder, path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// The files, and what is trusted, as far as it can be read.
fn files_with_trust(
    file: Option<&Path>,
    flags: &Flags,
) -> Result<(ConfigFiles, Option<FilePins>), ConfigError> {
    let mut files = ConfigFiles::read(file)?;
    let trusted = trusted_files(&files, flags).ok();
    match (&mut files.found, &trusted) {
        (Some(found), Some(trusted)) => found.compare(trusted),
        (found @ None, Some(trusted)) if file.is_none() => *found = FoundLayer::gone(trusted),
        _ => {}
    }
    Ok((files, trusted))
}

/// Where secrets are kept, for the command that changes them. No secret is read.
///
/// # Errors
/// A file cannot be read or parsed. There is no home folder.
pub fn secret_store(file: Option<&Path>, flags: &Flags) -> Result<SecretStore, ConfigError> {
    secret_store_of(chosen_store(file, flags)?)
}

/// As [`secret_store`], for a command that puts no secret anywhere. What is wrong with the configuration keeps nobody
/// from forgetting a secret: it is returned, and both places are looked through.
///
/// # Errors
/// There is no home folder.
pub fn secret_store_at_least(
    file: Option<&Path>,
    flags: &Flags,
) -> Result<(SecretStore, Option<ConfigError>), ConfigError> {
    let (store, fault) = match chosen_store(file, flags) {
        Ok(store) => (store, None),
        Err(fault) => (StoreChoice::Auto, Some(fault)),
    };
    Ok((secret_store_of(store)?, fault))
}

fn chosen_store(file: Option<&Path>, flags: &Flags) -> Result<StoreChoice, ConfigError> {
    let (files, _) = files_with_trust(file, flags)?;
    store_choice(&layers::merge(&files, flags, variables())?)
}

fn secret_store_of(store: StoreChoice) -> Result<SecretStore, ConfigError> {
    let file = secrets::path().ok_or(ConfigError::NoHome {
        what: "secrets",
        variable: "HOME or XDG_CONFIG_HOME",
    })?;
    Ok(SecretStore::new(store, file))
}

fn store_choice(merged: &Merged) -> Result<StoreChoice, ConfigError> {
    let table: SecretsTable = section(merged, &merged.table(), "secrets")?;
    Ok(table.store)
}

/// The format of logs. It is needed before anything is checked: no secret is read for it, and errors are told later.
pub fn log_format(file: Option<&Path>) -> Option<LogFormat> {
    let flags = Flags::default();
    let (files, _) = files_with_trust(file, &flags).ok()?;
    let named = match layers::merge(&files, &flags, variables()) {
        Ok(merged) => merged.text(LOG_FORMAT)?.to_owned(),
        // The fault itself is told in this format.
        Err(_) => variable(LOG_FORMAT_VARIABLE).or_else(|| files.text(LOG_FORMAT))?,
    };
    Value::from(named).try_into().ok()
}

const LOG_FORMAT: &str = "telemetry.log_format";
const LOG_FORMAT_VARIABLE: &str = "TOOLHOLD_TELEMETRY__LOG_FORMAT";

/// What the layers say, checked, with the secrets that it refers to.
fn resolved(
    merged: &Merged,
    files: &ConfigFiles,
    flags: &Flags,
    SecretReading { needs, before }: &SecretReading,
) -> Result<Loaded, ConfigError> {
    let secrets = StoredSecrets::read(store_choice(merged)?, *needs, files.named.is_some())?
        .of_modules(variables_of_modules(&merged.table()))
        .after(before.clone());
    let loaded = resolved_with(merged, files, flags, &secrets);
    let read = secrets.outcome();
    // It may be why something else is wrong.
    let database = merged.text("storage.url_env").unwrap_or_default();
    if let Some(lacking) = read.lacking(*needs, database) {
        return Err(lacking.clone().into());
    }
    Ok(Loaded {
        secrets: read,
        needs: *needs,
        ..loaded?
    })
}

/// The variables of the secrets that modules are granted.
fn variables_of_modules(table: &Table) -> BTreeSet<String> {
    let modules = table.get("module").and_then(Value::as_table);
    let modules = modules.into_iter().flat_map(Table::values);
    let secrets = modules.filter_map(|module| module.get("secrets")?.as_array());
    let named = secrets
        .flatten()
        .filter_map(|secret| secret.get("env")?.as_str());
    named.map(str::to_owned).collect()
}

fn resolved_with(
    merged: &Merged,
    files: &ConfigFiles,
    flags: &Flags,
    secrets: &StoredSecrets,
) -> Result<Loaded, ConfigError> {
    let table = merged.table();
    let serve: serve::Settings = section(merged, &table, "serve")?;
    if let Some((leaf, reason)) = serve.fault() {
        return Err(merged.wrong(&format!("serve.{leaf}"), reason));
    }
    let mut mcp_server: mcp_server::Settings = section(merged, &table, "mcp_server")?;
    let token_env = &mcp_server.token_env;
    let mut configuration = configuration(merged, files, secrets, table.clone(), token_env)?;
    if let Some((leaf, reason)) = mcp_server.fault() {
        return Err(merged.wrong(&format!("mcp_server.{leaf}"), reason));
    }
    mcp_server.token = secret(secrets, &mcp_server.token_env).map(Into::into);
    for (name, agent) in configuration.agent_tables() {
        let tables = table.get("agents");
        let own = (name.as_str(), &agent, tables);
        let resolved = resolve_agent(files, flags, secrets, own, AgentRank::AboveFlags);
        configuration.add_agent(name, resolved);
    }
    let tables = table.get("agents");
    let run_agent = match configuration.agent_tables().get(DEFAULT_AGENT) {
        Some(agent) if tables.is_some_and(|tables| tables.get(DEFAULT_AGENT).is_some()) => {
            let own = (DEFAULT_AGENT, agent, tables);
            resolve_agent(files, flags, secrets, own, AgentRank::BelowFlags)
        }
        _ => Ok(AgentConfiguration::without_table(configuration.clone())),
    };
    Ok(Loaded {
        configuration,
        run_agent,
        serve,
        mcp_server,
        settings: merged.settings(),
        untrusted: None,
        secrets: ReadSecrets::default(),
        needs: Needs::default(),
        records: Vec::new(),
        file: None,
        in_effect: None,
        content: ContentInUse::default(),
        emptied: None,
        flags: flags.clone(),
        only: None,
    })
}

/// The files that the user trusts. They are kept in the user's own state folder: not where the found file says,
/// trusted or not, and not in the working folder.
fn trusted_files(files: &ConfigFiles, flags: &Flags) -> Result<FilePins, ConfigError> {
    let key = "paths.state";
    let named = files
        .own_text(key)
        .map(|folder| (folder, "your file".to_owned()));
    let variable = variable("TOOLHOLD_PATHS__STATE");
    let variable = variable.map(|folder| (folder, "variable TOOLHOLD_PATHS__STATE".to_owned()));
    let flag = flags.text(key);
    let flag = flag.map(|(flag, folder)| (folder.to_owned(), format!("flag {flag}")));
    let named = flag.or(variable).or(named);
    let Some((folder, origin)) = named.filter(|(folder, _)| !folder.is_empty()) else {
        return Ok(FilePins::new(&users_state_folder()?));
    };
    let folder = PathBuf::from(folder);
    if folder.is_absolute() {
        return Ok(FilePins::new(&folder));
    }
    Err(ConfigError::Value {
        key: key.to_owned(),
        origin,
        reason: "must be an absolute path, or a file could be found together with the trust in it"
            .into(),
    })
}

/// The files that the user trusts, for the commands that change them.
///
/// # Errors
/// There is no state folder of the user's, or the user's file is wrong.
pub fn trusted(flags: &Flags) -> Result<FilePins, ConfigError> {
    trusted_files(&ConfigFiles::users_alone()?, flags)
}

/// The configuration without any found file, trusted or not: what is decided about found files is logged where it
/// says.
///
/// # Errors
/// The user's file or a flag is wrong.
pub fn of_user(flags: &Flags) -> Result<Configuration, ConfigError> {
    let files = ConfigFiles::users_alone()?;
    let merged = layers::merge(&files, flags, variables())?.known()?;
    let secrets = SecretReading {
        needs: Needs::Database,
        before: ReadSecrets::default(),
    };
    Ok(resolved(&merged, &files, flags, &secrets)?.configuration)
}

/// What of this file would not hold if it were found and not trusted.
///
/// # Errors
/// The file, or another one, is wrong.
pub fn in_need_of_trust(file: FoundFile) -> Result<Vec<Setting>, ConfigError> {
    let mut files = ConfigFiles::users_alone()?;
    files.found = Some(FoundLayer::of(file)?);
    let untrusted = layers::untrusted(&files)?;
    Ok(untrusted
        .map(|untrusted| untrusted.ignored)
        .unwrap_or_default())
}

fn grants_file(state_folder: &Path) -> PathBuf {
    state_folder.join("grants.toml")
}

/// The tables of one merge of the layers, checked.
fn configuration(
    merged: &Merged,
    files: &ConfigFiles,
    secrets: &StoredSecrets,
    mut table: Table,
    mcp_token_env: &str,
) -> Result<Configuration, ConfigError> {
    // They belong to the server: see `Loaded`. Where secrets lie is known by now.
    for known in ["serve", "mcp_server", "secrets"] {
        table.remove(known);
    }
    withhold(merged, secrets)?;
    let tables: Tables = read(merged, "", Value::Table(table))?;
    // What is not sent is kept out of records all the same.
    let withheld = merged.withheld.iter().flat_map(|it| it.variables.clone());
    let secret_variables = withheld.chain([mcp_token_env.to_owned()]).collect();
    let compiler = program::own().map(|program| CompilerProcess {
        program: program.to_owned(),
        arguments: vec![COMPILER_COMMAND.into()],
        serves_author: false,
    });
    let cache = cache_folder(merged)?;
    let surroundings = ConfigContext {
        variable: &|name| secret(secrets, name),
        // Mounted secrets are often links.
        secret_file: &|path| toolhold_files::read_text(path, MAX_CONFIG_BYTES, Links::Follow),
        state_folder: state_folder(merged)?,
        usual_modules: usual_modules(merged, &cache),
        cache_folder: cache,
        compiler,
        one_off_grants: merged.granted_by_flags(),
        is_max_tokens_default: merged.origin("run.max_tokens") == "default",
        is_temperature_default: merged.origin("run.temperature") == "default",
        is_untrusted: &|key| merged.is_found(key),
        secret_variables,
        reserved: reserved::paths(files),
        program_path: variable("PATH"),
        home: variable("HOME").map(PathBuf::from),
    };
    Configuration::new(tables, &surroundings)
        .map_err(|ConfigFault { key, reason }| merged.wrong(&key, reason))
}

/// Says which keys are not sent, because their address was replaced.
///
/// # Errors
/// A key is set and needed: the endpoint is the run's own, or it is no endpoint's.
fn withhold(merged: &Merged, secrets: &StoredSecrets) -> Result<(), ConfigError> {
    // Nothing is sent where no secret is needed, and what takes something back has to go on.
    if !secrets.are_needed() {
        return Ok(());
    }
    for withheld in &merged.withheld {
        let is_set = |name: &String| {
            let value = secret(secrets, name);
            value.is_some_and(|value| !value.trim().is_empty())
        };
        if !withheld.variables.iter().any(is_set) {
            continue;
        }
        let other = withheld.table.strip_prefix("endpoints.");
        let is_used = other.is_none_or(|name| merged.text("endpoint") == Some(name));
        if is_used && withheld.is_demanded() {
            return Err(withheld.error());
        }
        warn_once(withheld.reason());
    }
    Ok(())
}

/// The configurations of agents and a reload have the same ones.
fn warn_once(reason: String) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !said.contains(&reason) {
        tracing::warn!("{reason}");
        said.insert(reason);
    }
}

/// Whether an agent's own values or the command line's count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentRank {
    /// The command line is about a server or about all agents.
    AboveFlags,
    /// The command line is about one run of this agent.
    BelowFlags,
}

/// The configuration of an agent: the same layers, and the agent's own values above or below those of flags.
fn resolve_agent(
    files: &ConfigFiles,
    flags: &Flags,
    secrets: &StoredSecrets,
    (name, agent, tables): (&str, &AgentTable, Option<&Value>),
    rank: AgentRank,
) -> Result<AgentConfiguration, InvalidAgent> {
    let origin = format!("[agents.{name}]");
    let mut all = flags.clone();
    let is_below = rank == AgentRank::BelowFlags;
    let endpoint = agent.endpoint.clone();
    let endpoint = endpoint.filter(|_| !(is_below && flags.name_endpoint()));
    all.set_agents_endpoint(&origin, endpoint);
    let own = tables.and_then(|agents| agents.get(name)?.as_table());
    let own = own.into_iter().flatten();
    for (section, value) in
        own.filter(|(key, _)| toolhold_runtime::config::OVERRIDES.contains(&key.as_str()))
    {
        if is_below {
            all.set_table_below(&origin, section, value);
        } else {
            all.set_table(&origin, section, value);
        }
    }
    let resolved = || {
        let merged = layers::merge(files, &all, variables())?.known()?;
        let table = merged.table();
        let token_env = table.get("mcp_server").and_then(|it| it.get("token_env"));
        let token_env = token_env.and_then(Value::as_str).unwrap_or_default();
        configuration(&merged, files, secrets, table.clone(), token_env)
    };
    let invalid = |error: ConfigError| InvalidAgent(error.to_string());
    let configuration = resolved().map_err(invalid)?;
    let schema = agent.output_schema.as_deref().map(schema).transpose();
    let schema = schema.map_err(InvalidAgent)?;
    let resolved = configuration.of_agent(name, agent, schema);
    resolved.map_err(|ConfigFault { key, reason }| {
        invalid(ConfigError::Value {
            key: known::named(&key),
            origin,
            reason,
        })
    })
}

/// A file with a JSON Schema.
fn schema(path: &Path) -> Result<serde_json::Value, String> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{} is not JSON: {error}", path.display()))
}

/// One table of the configuration.
fn section<T: DeserializeOwned>(
    merged: &Merged,
    table: &Table,
    name: &str,
) -> Result<T, ConfigError> {
    let section = table.get(name).cloned();
    read(
        merged,
        name,
        section.unwrap_or_else(|| Value::Table(Table::new())),
    )
}

/// Reads a value that stands at the key `at`, or at the root if that is empty. Errors name the key.
fn read<T: DeserializeOwned>(merged: &Merged, at: &str, value: Value) -> Result<T, ConfigError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let key = match (at, path.as_str()) {
            ("", path) => path.to_owned(),
            (at, "." | "") => at.to_owned(),
            (at, path) => format!("{at}.{path}"),
        };
        merged.wrong(&key, in_words(error.inner().message()))
    })
}

/// What is wrong with a value, as an operator says it: types of TOML in the place of types of Rust.
fn in_words(message: &str) -> String {
    if message == "invalid socket address syntax" {
        return "must be an address with a port, such as 127.0.0.1:8700".to_owned();
    }
    let mistyped = ["invalid type: ", "invalid value: "];
    let mistyped = mistyped.iter().find_map(|kind| message.strip_prefix(kind));
    let Some((found, expected)) = mistyped.and_then(|rest| rest.rsplit_once(", expected ")) else {
        let message = message.replace("unknown variant", "unknown value");
        let message = message.replace("unknown field", "unknown key");
        return message.replace("missing field", "missing key");
    };
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of at least 0",
        "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    let found = match found {
        "sequence" => "a list",
        "map" => "a table",
        // `string "x"`, "integer `-1`", "floating point `1.5`"
        other => other
            .trim_start_matches(|c: char| c.is_ascii_lowercase() || c == ' ')
            .trim_matches('`'),
    };
    format!("must be {expected}, not {found}")
}

/// The environment variables that are UTF-8.
fn variables() -> impl Iterator<Item = (String, String)> {
    let all = std::env::vars_os();
    all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The value of a variable that is set, or of the stored secret of its name.
fn secret(stored: &StoredSecrets, name: &str) -> Option<String> {
    let set = variable(name);
    let is_blank = set.as_ref().is_none_or(|value| value.trim().is_empty());
    if !is_blank {
        return set;
    }
    let stored = stored.get(name);
    stored.map(|value| value.expose_secret().to_owned()).or(set)
}

/// The configured folder, or the user's.
fn state_folder(merged: &Merged) -> Result<PathBuf, ConfigError> {
    let own = merged.text("paths.state").filter(|own| !own.is_empty());
    own.map_or_else(users_state_folder, |own| Ok(own.into()))
}

fn cache_folder(merged: &Merged) -> Result<PathBuf, ConfigError> {
    let own = merged.text("paths.cache").filter(|own| !own.is_empty());
    own.map_or_else(users_cache_folder, |own| Ok(own.into()))
}

/// Where modules are found in any folder, unless somebody says where they are. Without a cache folder to put them into,
/// there are none that come with the program.
fn usual_modules(merged: &Merged, cache: &Path) -> UsualModules {
    // The names are reserved in every folder.
    if merged.origin("modules.folder") != "default" {
        return UsualModules {
            digest: Some(shipped::digest),
            ..UsualModules::default()
        };
    }
    let users = UserFolder::Data.path();
    let cache = cache.to_owned();
    let shipped = move || shipped::folder(&cache).map_err(|error| error.to_string());
    UsualModules {
        users: users.map(|folder| folder.join("toolhold").join("modules")),
        shipped: Some(ShippedModules::new(shipped)),
        digest: Some(shipped::digest),
    }
}

fn users_state_folder() -> Result<PathBuf, ConfigError> {
    own_folder(
        UserFolder::State,
        "pins, grants and runs",
        "TOOLHOLD_PATHS__STATE",
    )
}

fn users_cache_folder() -> Result<PathBuf, ConfigError> {
    own_folder(
        UserFolder::Cache,
        "compiled modules",
        "TOOLHOLD_PATHS__CACHE",
    )
}

/// `toolhold` in a folder of the user's. One in the working folder could come with a repository, and bring grants,
/// pins and compiled code with it.
fn own_folder(
    users: UserFolder,
    what: &'static str,
    variable: &'static str,
) -> Result<PathBuf, ConfigError> {
    let folder = users.path().ok_or(ConfigError::NoHome { what, variable })?;
    Ok(folder.join("toolhold"))
}
