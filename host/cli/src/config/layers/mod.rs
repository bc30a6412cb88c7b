//! The layers of the configuration: defaults, files, environment, flags; a later layer overrides.

mod endpoints;
mod keys;

use super::files::{ConfigFiles, flatten, parse};
use super::flags::{Flags, scalar};
use super::found::{FOUND, FoundLayer, Untrusted};
use super::secrets::{KeyringError, UnreadSecret};
use super::shown::shown;
use super::{harmless, known};
use endpoints::{endpoint, preset_of_variable};
use keys::{Given, Layer, Withheld};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use thiserror::Error;
use toml::{Table, Value};
use toolhold_policy::text::shell_word;
use toolhold_runtime::config::DEFAULTS;
use toolhold_runtime::file_pins::FilePinState;

/// The flag that may name a preset together with its model.
pub const MODEL_FLAG: &str = "--model";

const PREFIX: &str = "TOOLHOLD_";
/// Short variables of common settings.
const SHORT: [(&str, &str); 2] = [("BASE_URL", "base_url"), ("MODEL", "model")];

/// The address of `[endpoints.default]`.
const ADDRESS: &str = "TOOLHOLD_BASE_URL";

const NOT_SETTINGS: [&str; 9] = [
    "CONFIG",
    "API_KEY",
    // The token that clients of `toolhold mcp` send.
    "MCP_TOKEN",
    "LOG",
    // Values of secrets, which are not settings and never shown.
    "DATABASE_URL",
    "OCI_HOST",
    "OCI_USERNAME",
    "OCI_PASSWORD",
    "OCI_TOKEN_HOST",
];
/// Variables of the tests, which may be exported (`TOOLHOLD_E2E_BASE_URL`, `TOOLHOLD_TEST_DATABASE_URL`) in a
/// shell that also uses the binary.
const TESTS: [&str; 2] = ["E2E", "TEST_"];

/// A wrong setting, with its source.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("the configuration file {} cannot be read: {source}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the file {} cannot be written: {source}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{origin} is not valid TOML: {reason}")]
    Syntax { origin: String, reason: String },
    #[error(
        "{origin} sets {found} keys, and may set {most}; a file that is named with --config may set more"
    )]
    TooMany {
        origin: String,
        found: usize,
        most: usize,
    },
    #[error("{origin} has no meaning for {key:?};{suggestion} `toolhold config` lists all keys")]
    UnknownKey {
        origin: String,
        key: String,
        suggestion: String,
    },
    #[error("{key:?}, set by {origin}: {reason}")]
    Value {
        key: String,
        origin: String,
        reason: String,
    },
    #[error("{needed_by}: {}", untrusted.in_words())]
    Untrusted {
        untrusted: Untrusted,
        needed_by: &'static str,
    },
    #[error(
        "{} {}, and the module {module} may write files where it lies; what it gives is not taken over{}",
        path.display(),
        if *is_gone { "is gone" } else { "has changed" },
        if *is_gone {
            ": put it back, or start again without it".to_owned()
        } else {
            let path = path.display().to_string();
            format!(". `toolhold --config {} trust` shows it and asks", shell_word(&path))
        }
    )]
    WrittenByModules {
        path: PathBuf,
        module: String,
        is_gone: bool,
    },
    #[error(transparent)]
    Secret(#[from] UnreadSecret),
    #[error(
        "the keyring cannot be used: {source}. Unlock or repair it, or use the file alone: secrets.store = \"file\", or \
         TOOLHOLD_SECRETS__STORE=file"
    )]
    KeyringUnusable {
        #[source]
        source: KeyringError,
    },
    #[error(
        "there is no home folder to keep {what} in, and a folder in the working folder could be anybody's; \
         set {variable} to an absolute path"
    )]
    NoHome {
        what: &'static str,
        variable: &'static str,
    },
}

/// Characters of the reason for which a value is refused, which may name a key of any length.
const MAX_REASON_CHARS: usize = 2_000;

impl ConfigError {
    /// The same error, which may follow from what does not hold.
    pub fn beside(self, untrusted: &Untrusted) -> Self {
        match self {
            Self::Value {
                key,
                origin,
                reason,
            } => Self::Value {
                key,
                origin,
                reason: format!("{reason} ({})", untrusted.in_words()),
            },
            other => other,
        }
    }
}

/// One effective value, as commands show it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    pub key: String,
    /// Without passwords of addresses ([`shown`]): the value itself is that of [`Merged::table`].
    pub value: Value,
    /// `default`, `preset NAME`, `file PATH`, `variable NAME` or `flag --NAME`.
    pub origin: String,
}

/// All layers merged, each leaf with its origin.
#[derive(Debug)]
pub struct Merged {
    leaves: BTreeMap<String, (Value, String)>,
    order: Vec<String>,
    /// Whether the user named the file to read.
    is_named: bool,
    /// What the found file sets in vain, because it is not trusted.
    ignored: Vec<Setting>,
    /// Variables that are no settings, with the error of each.
    unknown: Vec<(String, ConfigError)>,
    given: Given,
    /// Keys that are not sent to the address that another layer gave.
    pub withheld: Vec<Withheld>,
}

impl Merged {
    /// The same, after checking that every variable that looks like a setting is one, or is named by one:
    /// such a variable may have any name.
    ///
    /// # Errors
    /// The first variable that is neither.
    pub fn known(mut self) -> Result<Self, ConfigError> {
        let mut unknown = std::mem::take(&mut self.unknown).into_iter();
        match unknown.find(|(name, _)| !self.names(name)) {
            Some((_, error)) => Err(error),
            None => Ok(self),
        }
    }

    /// In the order of the default file, then the added keys.
    pub fn settings(&self) -> Vec<Setting> {
        let added = self.leaves.keys().filter(|key| !self.order.contains(key));
        let settings = self.order.iter().chain(added).filter_map(|key| {
            let (value, origin) = self.leaves.get(key)?.clone();
            Some(Setting {
                key: key.clone(),
                value: shown(value),
                origin,
            })
        });
        settings.collect()
    }

    pub fn table(&self) -> Table {
        let mut root = Table::new();
        for (key, (value, _)) in &self.leaves {
            insert(&mut root, key, value);
        }
        root
    }

    /// Modules with grants from this command line.
    pub fn granted_by_flags(&self) -> BTreeSet<String> {
        self.leaves
            .iter()
            .filter(|(_, (_, origin))| origin.starts_with("flag "))
            .filter_map(|(key, _)| key.strip_prefix("module.")?.split('.').next())
            .map(str::to_owned)
            .collect()
    }

    /// Whether a setting below `key` comes from a file that the user did not name: another person may have
    /// written it.
    pub fn is_found(&self, key: &str) -> bool {
        let found = format!("file {FOUND}");
        let is_below = |own: &str| {
            let rest = own.strip_prefix(key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let mut leaves = self.leaves.iter();
        !self.is_named && leaves.any(|(own, (_, origin))| *origin == found && is_below(own))
    }

    /// The text at `key`.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.leaves.get(key)?.0.as_str()
    }

    /// The error of a wrong value at `key`.
    pub fn wrong(&self, key: &str, reason: String) -> ConfigError {
        ConfigError::Value {
            key: known::named(key),
            origin: self.origin(key),
            reason: toolhold_text::cut(&reason, MAX_REASON_CHARS),
        }
    }

    pub fn origin(&self, key: &str) -> String {
        // An error inside a value, such as a list of directories, names a deeper key.
        let mut nearest = self.leaves.iter().filter(|(own, _)| key.starts_with(*own));
        // What is missing in a table has the origin of what is there.
        let beside = || {
            let (table, _) = key.rsplit_once('.')?;
            let mut leaves = self.leaves.iter();
            let is_own = |own: &str| {
                own.strip_prefix(table)
                    .is_some_and(|rest| rest.starts_with('.'))
            };
            let found = leaves.find(|(own, (_, origin))| origin != "default" && is_own(own));
            Some(found?.1)
        };
        let found = self.leaves.get(key).or_else(|| Some(nearest.next()?.1));
        let found = found.or_else(beside);
        found.map_or_else(|| "the configuration".into(), |(_, origin)| origin.clone())
    }

    fn put(&mut self, key: String, value: Value, origin: &str) -> Result<(), ConfigError> {
        if self.sets(&key, &value, origin)? {
            let given = self.given.entry(key.clone()).or_default();
            given.insert(Layer::of(origin, self.is_named), value.clone());
            self.leaves.insert(key, (value, origin.to_owned()));
        }
        Ok(())
    }

    /// As [`put`](Self::put), for a file that is not trusted: only what cannot harm holds.
    fn put_untrusted(
        &mut self,
        key: String,
        value: Value,
        origin: &str,
    ) -> Result<(), ConfigError> {
        let is_there = || {
            let below = format!("{key}.");
            self.leaves.keys().any(|own| own.starts_with(&below))
        };
        if !self.sets(&key, &value, origin)? || (is_empty(&value) && is_there()) {
            return Ok(());
        }
        let without = self.leaves.get(&key).map(|(value, _)| value);
        let origin = origin.to_owned();
        if harmless::holds(&key, &value, without) {
            self.leaves.insert(key, (value, origin));
        } else {
            self.ignored.push(Setting {
                key,
                value: shown(value),
                origin,
            });
        }
        Ok(())
    }

    /// Whether the value at `key` says anything. An empty table of another layer leaves everything else as it was.
    ///
    /// # Errors
    /// There is no such key.
    fn sets(&self, key: &str, value: &Value, origin: &str) -> Result<bool, ConfigError> {
        let is_table = is_empty(value) && known::is_table(&self.order, key);
        if is_table || known::is_key(&self.order, key) {
            return Ok(!is_table || known::is_entry(key));
        }
        Err(ConfigError::UnknownKey {
            origin: origin.to_owned(),
            suggestion: known::advice(&self.order, key),
            key: known::named(key),
        })
    }

    /// Removes empty tables that another layer or a default has filled.
    fn forget_filled(&mut self) {
        let is_filled = |key: &String| {
            let below = format!("{key}.");
            let mut rest = self.leaves.range(below.clone()..);
            rest.next().is_some_and(|(key, _)| key.starts_with(&below))
        };
        let empty = self.leaves.iter().filter(|(_, (value, _))| is_empty(value));
        let filled: Vec<String> = empty
            .map(|(key, _)| key.clone())
            .filter(is_filled)
            .collect();
        for key in filled {
            self.leaves.remove(&key);
        }
    }

    /// Whether a setting names this variable: `api_key_env = "…"`, `secret_env = ["…"]`, or `env = "…"` in a
    /// module's secret or environment.
    fn names(&self, variable: &str) -> bool {
        let leaves = self.leaves.iter().map(|(key, (value, _))| (key, value));
        // It is a variable of somebody's, whether its key is trusted or not.
        let ignored = self.ignored.iter().map(|it| (&it.key, &it.value));
        let mut withheld = self.withheld.iter().flat_map(|it| &it.variables);
        if withheld.any(|name| name == variable) {
            return true;
        }
        leaves.chain(ignored).any(|(key, value)| {
            let name = key.rsplit('.').next().unwrap_or(key);
            says(name, value, variable)
        })
    }
}

/// Whether the value of the key `name`, or a value inside of it, names this variable.
fn says(name: &str, value: &Value, variable: &str) -> bool {
    match value {
        Value::String(text) => text == variable && (name == "env" || name.ends_with("_env")),
        Value::Array(values) => values.iter().any(|value| says(name, value, variable)),
        Value::Table(table) => table
            .iter()
            .any(|(name, value)| says(name, value, variable)),
        _ => false,
    }
}

/// Puts a leaf under its dotted key.
fn insert(table: &mut Table, key: &str, value: &Value) {
    match key.split_once('.') {
        None => drop(table.insert(key.to_owned(), value.clone())),
        Some((first, rest)) => {
            let inner = table.entry(first).or_insert_with(|| Table::new().into());
            if let Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

/// What the found file sets in vain, if it is not trusted.
///
/// # Errors
/// A key of a file does not exist.
pub fn untrusted(files: &ConfigFiles) -> Result<Option<Untrusted>, ConfigError> {
    let merged = merge(files, &Flags::default(), std::iter::empty())?;
    let is_changed = |found: &FoundLayer| matches!(found.trust, FilePinState::Changed { .. });
    Ok((!merged.ignored.is_empty()).then(|| Untrusted {
        is_changed: files.found.as_ref().is_some_and(is_changed),
        is_gone: files
            .found
            .as_ref()
            .is_some_and(|it| it.trust == FilePinState::Gone),
        ignored: merged.ignored,
    }))
}

/// Merges all layers. [`known`](Merged::known) needs the grants among them.
pub fn merge(
    files: &ConfigFiles,
    flags: &Flags,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Merged, ConfigError> {
    let mut merged = Merged {
        leaves: BTreeMap::new(),
        order: Vec::new(),
        is_named: files.named.is_some(),
        ignored: Vec::new(),
        unknown: Vec::new(),
        given: Given::new(),
        withheld: Vec::new(),
    };
    let defaults = parse("the default file", DEFAULTS)?;
    for (key, value) in flatten(&defaults) {
        merged.order.push(key.clone());
        merged.leaves.insert(key, (value, "default".into()));
    }
    for (origin, table) in files.users() {
        for (key, value) in flatten(table) {
            merged.put(key, value, origin)?;
        }
    }
    if let Some(found) = &files.found {
        for (key, value) in flatten(&found.table) {
            match found.trust {
                FilePinState::Pinned => merged.put(key, value, &found.origin)?,
                _ => merged.put_untrusted(key, value, &found.origin)?,
            }
        }
    }
    merged.complete_endpoints();
    let is_collector = |name: &str| keys::COLLECTORS.contains(&name);
    let (collectors, mut variables): (Vec<_>, Vec<_>) = variables
        .filter(|(name, _)| name.starts_with(PREFIX) || is_collector(name))
        .partition(|(name, _)| is_collector(name));
    variables.sort();
    // A short flag, and the model's variable, are of the endpoint that the run finally uses.
    let mut named = variables.iter();
    let variable = named.find(|(name, _)| name == "TOOLHOLD_ENDPOINT");
    let flag = flags.all().iter().rfind(|(_, key, _)| key == "endpoint");
    let chosen = flag.map(|(flag, _, value)| (value.clone(), format!("flag {flag}")));
    let chosen = chosen.or_else(|| {
        let (name, text) = variable?;
        Some((Value::String(text.clone()), format!("variable {name}")))
    });
    let has_address = variables.iter().any(|(name, _)| name == ADDRESS);
    // The model's variable is of another endpoint than one that is named together with its model.
    let mut has_model = flag.is_none_or(|(flag, ..)| flag != MODEL_FLAG);
    if let Some((value, origin)) = chosen {
        merged.put("endpoint".into(), value, &origin)?;
    } else if let Some((preset, model)) = preset_of_variable(&variables, flags) {
        let origin = "variable TOOLHOLD_MODEL";
        merged.put("endpoint".into(), preset.into(), origin)?;
        merged.put(format!("endpoints.{preset}.model"), model.into(), origin)?;
        has_model = false;
    }
    merged.add_preset();
    let environment = keys::KeyEnvironment {
        has_usual_key: variables
            .iter()
            .any(|(name, text)| name == keys::USUAL_KEY && !text.trim().is_empty()),
        collectors: collectors
            .into_iter()
            .map(|(_, text)| text)
            .filter(|text| !text.trim().is_empty())
            .collect(),
    };
    for (name, text) in variables {
        let short = &name[PREFIX.len()..];
        if short == "ENDPOINT" {
            continue;
        }
        let is_tests = TESTS.iter().any(|prefix| short.starts_with(prefix));
        if NOT_SETTINGS.contains(&short) || is_tests {
            continue;
        }
        let origin = format!("variable {name}");
        let key = match SHORT.iter().find(|(variable, _)| *variable == short) {
            // The address is the default's alone: the key of another endpoint is not for it. A model that is named
            // beside the address is of that server.
            Some((_, leaf)) if has_address => format!("endpoints.default.{leaf}"),
            Some(_) if !has_model => continue,
            // A user of a pool may have set it for other runs.
            Some((_, leaf)) => match endpoint(&merged, flags, &origin) {
                Ok(endpoint) => format!("endpoints.{endpoint}.{leaf}"),
                Err(_) => continue,
            },
            None => short.to_ascii_lowercase().replace("__", "."),
        };
        let is_list = merged.leaves.get(&key).is_some_and(|(it, _)| it.is_array());
        let value = match scalar(&text) {
            Value::String(text) if is_list => listed(&text),
            value => value,
        };
        if let Err(error) = merged.put(key, value, &origin) {
            merged.unknown.push((name, error));
        }
    }
    for (flag, key, value) in flags.all() {
        if key == "endpoint" {
            continue;
        }
        let origin = format!("flag {flag}");
        let key = match key.strip_prefix("endpoints.{endpoint}.") {
            Some(leaf) => format!("endpoints.{}.{leaf}", endpoint(&merged, flags, &origin)?),
            None => key.clone(),
        };
        merged.put(key, value.clone(), &origin)?;
    }
    if let Some((origin, name)) = flags.agents_endpoint() {
        merged.put("endpoint".into(), name.clone(), &format!("flag {origin}"))?;
        merged.add_preset();
    }
    merged.forget_presets_without_address();
    // A flag may add an endpoint (`--against`), and a preset that is gone leaves defaults.
    merged.complete_endpoints();
    merged.bind_keys(&environment);
    merged.forget_filled();
    Ok(merged)
}

fn is_empty(value: &Value) -> bool {
    value.as_table().is_some_and(Table::is_empty)
}

/// A comma-separated list, where a list is expected.
fn listed(text: &str) -> Value {
    let names = text.split(',').map(str::trim);
    let names = names.filter(|name| !name.is_empty());
    Value::Array(names.map(|name| Value::String(name.into())).collect())
}

#[cfg(test)]
mod tests;
