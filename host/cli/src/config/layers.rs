//! The layers of the configuration: defaults, files, environment, flags; a later layer overrides.

use super::known;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use thiserror::Error;
use toml::{Table, Value};
use toolhold_runtime::config::{DEFAULTS, ROUTER};

const PREFIX: &str = "TOOLHOLD_";
/// Short variables of common settings, and variables that are not settings.
const SHORT: [(&str, &str); 2] = [("BASE_URL", "base_url"), ("MODEL", "model")];

/// The file that is read from the working folder.
const FOUND: &str = "toolhold.toml";
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
    #[error("{origin} is not valid TOML: {reason}")]
    Syntax { origin: String, reason: String },
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
}

/// One effective value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    pub key: String,
    pub value: Value,
    /// `default`, `file PATH`, `variable NAME` or `flag --NAME`.
    pub origin: String,
}

/// Settings given on the command line: flag, key, value.
#[derive(Debug, Clone, Default)]
pub struct Flags(Vec<(String, String, Value)>);

impl Flags {
    pub fn set(&mut self, flag: &str, key: impl Into<String>, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.0.push((flag.to_owned(), key.into(), value.into()));
        }
    }

    /// A setting whose value is parsed as in a variable.
    pub fn set_text(&mut self, flag: &str, key: impl Into<String>, text: &str) {
        self.set(flag, key, Some(scalar(text)));
    }

    /// Every setting of a file, as if given on the command line.
    ///
    /// # Errors
    /// The file cannot be read, or is not TOML.
    pub fn set_file(&mut self, flag: &str, path: &Path) -> Result<(), ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        for (key, value) in flatten(&parse(&format!("file {}", path.display()), &text)?) {
            self.set(flag, key, Some(value));
        }
        Ok(())
    }

    /// Every setting of a table at `key`.
    pub fn set_table(&mut self, flag: &str, key: &str, value: &Value) {
        let mut table = Table::new();
        table.insert(key.to_owned(), value.clone());
        for (key, value) in flatten(&table) {
            self.set(flag, key, Some(value));
        }
    }

    /// The number of set keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The keys that were set after the first `n`.
    pub fn since(&self, n: usize) -> impl Iterator<Item = &str> {
        self.0.iter().skip(n).map(|(_, key, _)| key.as_str())
    }
}

/// All layers merged, each leaf with its origin.
#[derive(Debug)]
pub struct Merged {
    leaves: BTreeMap<String, (Value, String)>,
    order: Vec<String>,
    /// Whether the user named the file to read.
    is_named: bool,
    /// Variables that are no settings, with the error of each.
    unknown: Vec<(String, ConfigError)>,
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
        let listed = self.order.iter();
        let added = self.leaves.keys().filter(|key| !self.order.contains(key));
        listed
            .chain(added)
            .filter_map(|key| {
                let (value, origin) = self.leaves.get(key)?;
                Some(Setting {
                    key: key.clone(),
                    value: value.clone(),
                    origin: origin.clone(),
                })
            })
            .collect()
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
            key: key.to_owned(),
            origin: self.origin(key),
            reason,
        }
    }

    pub fn origin(&self, key: &str) -> String {
        let exact = self.leaves.get(key);
        // An error inside a value, such as a list of directories, names a deeper key.
        let nearest = || {
            self.leaves
                .iter()
                .find(|(k, _)| key.starts_with(k.as_str()))
                .map(|(_, v)| v)
        };
        // What is missing in a table has the origin of what is there.
        let beside = || {
            let (table, _) = key.rsplit_once('.')?;
            let mut leaves = self.leaves.iter();
            let own = |k: &str| {
                k.strip_prefix(table)
                    .is_some_and(|rest| rest.starts_with('.'))
            };
            let found = leaves.find(|(k, (_, origin))| origin != "default" && own(k));
            found.map(|(_, leaf)| leaf)
        };
        exact
            .or_else(nearest)
            .or_else(beside)
            .map_or_else(|| "the configuration".into(), |(_, origin)| origin.clone())
    }

    fn put(&mut self, key: String, value: Value, origin: &str) -> Result<(), ConfigError> {
        let is_table = is_empty(&value) && known::is_table(&self.order, &key);
        if !is_table && !known::is_key(&self.order, &key) {
            let meant = known::nearest(&self.order, &key);
            return Err(ConfigError::UnknownKey {
                origin: origin.to_owned(),
                suggestion: meant.map_or_else(String::new, |key| format!(" did you mean {key:?}?")),
                key,
            });
        }
        // An empty table of another layer leaves everything else as it was.
        if !is_table || known::is_entry(&key) {
            self.leaves.insert(key, (value, origin.to_owned()));
        }
        Ok(())
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

    /// An endpoint that a file adds inherits the defaults, except those that identify an endpoint.
    fn complete_endpoints(&mut self) {
        let names: Vec<String> = self
            .leaves
            .keys()
            .filter_map(|key| {
                key.strip_prefix("endpoints.")?
                    .split('.')
                    .next()
                    .map(str::to_owned)
            })
            .collect();
        for leaf in self
            .order
            .iter()
            .filter_map(|key| key.strip_prefix("endpoints.default."))
        {
            let (value, origin) = match leaf {
                "base_url" => continue,
                "model" => (Value::String(String::new()), "default".to_owned()),
                "weight" => (Value::Integer(1), "default".to_owned()),
                // Price and capacity of one endpoint do not apply to another.
                "price_per_million" => (Value::Table(Table::new()), "default".to_owned()),
                "gpu_hour" | "window" => (Value::Integer(0), "default".to_owned()),
                _ => self.leaves[&format!("endpoints.default.{leaf}")].clone(),
            };
            for name in &names {
                let key = format!("endpoints.{name}.{leaf}");
                self.leaves
                    .entry(key)
                    .or_insert_with(|| (value.clone(), origin.clone()));
            }
        }
    }

    /// Whether a setting names this variable: `api_key_env = "…"`, `secret_env = ["…"]`, or `env = "…"` in a
    /// module's secret or environment.
    fn names(&self, variable: &str) -> bool {
        let mut leaves = self.leaves.iter();
        leaves.any(|(key, (value, _))| {
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
            let inner = table
                .entry(first.to_owned())
                .or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

/// The parsed configuration files: each with its origin, the weakest first.
#[derive(Debug)]
pub struct ConfigFiles {
    grants: Option<(String, Table)>,
    others: Vec<(String, Table)>,
    is_named: bool,
}

impl ConfigFiles {
    /// Reads `file`, or else the existing ones of the user's and the folder's file.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    pub fn read(file: Option<&Path>) -> Result<Self, ConfigError> {
        let mut others = Vec::new();
        match file {
            Some(file) => others.extend(read(file, true)?),
            None => {
                for file in usual_files() {
                    others.extend(read(&file, false)?);
                }
            }
        }
        Ok(Self {
            grants: None,
            others,
            is_named: file.is_some(),
        })
    }

    /// Reads the file of `toolhold modules grant`. It is the weakest layer above the defaults: a person's
    /// configuration overrides it.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    pub fn read_grants(&mut self, file: &Path) -> Result<(), ConfigError> {
        self.grants = read(file, false)?;
        Ok(())
    }
}

/// A file with its origin; `None` if it does not exist and is optional.
fn read(path: &Path, is_required: bool) -> Result<Option<(String, Table)>, ConfigError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_required => {
            return Ok(None);
        }
        Err(source) => {
            return Err(ConfigError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    let origin = format!("file {}", path.display());
    let table = parse(&origin, &text)?;
    Ok(Some((origin, table)))
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
        is_named: files.is_named,
        unknown: Vec::new(),
    };
    let defaults = parse("the default file", DEFAULTS)?;
    for (key, value) in flatten(&defaults) {
        merged.order.push(key.clone());
        merged.leaves.insert(key, (value, "default".into()));
    }
    for (origin, table) in files.grants.iter().chain(&files.others) {
        for (key, value) in flatten(table) {
            merged.put(key, value, origin)?;
        }
    }
    merged.complete_endpoints();
    let mut variables: Vec<_> = variables
        .filter(|(name, _)| name.starts_with(PREFIX))
        .collect();
    variables.sort();
    // A short setting of the run's endpoint applies to the endpoint that the run finally uses.
    let variable = variables
        .iter()
        .find(|(name, _)| name == "TOOLHOLD_ENDPOINT");
    let flag = flags.0.iter().rfind(|(_, key, _)| key == "endpoint");
    let chosen = flag.map(|(flag, _, value)| (value.clone(), format!("flag {flag}")));
    let chosen = chosen.or_else(|| {
        let (name, text) = variable?;
        Some((Value::String(text.clone()), format!("variable {name}")))
    });
    if let Some((value, origin)) = chosen {
        merged.put("endpoint".into(), value, &origin)?;
    }
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
            // A user of a pool may have set it for other runs.
            Some((_, leaf)) => match endpoint(&merged, flags, &origin) {
                Ok(endpoint) => format!("endpoints.{endpoint}.{leaf}"),
                Err(_) => continue,
            },
            None => short.to_ascii_lowercase().replace("__", "."),
        };
        let is_list = merged
            .leaves
            .get(&key)
            .is_some_and(|(value, _)| value.is_array());
        let value = match scalar(&text) {
            Value::String(text) if is_list => listed(&text),
            value => value,
        };
        if let Err(error) = merged.put(key, value, &origin) {
            merged.unknown.push((name, error));
        }
    }
    for (flag, key, value) in &flags.0 {
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
    // A flag may add an endpoint (`--against`).
    merged.complete_endpoints();
    merged.forget_filled();
    Ok(merged)
}

/// The endpoint of runs, for settings without an endpoint's name.
fn endpoint(merged: &Merged, flags: &Flags, origin: &str) -> Result<String, ConfigError> {
    let name = merged
        .leaves
        .get("endpoint")
        .and_then(|(value, _)| value.as_str())
        .unwrap_or("default");
    let has = |prefix: &str| {
        let brought = flags.0.iter().map(|(_, key, _)| key);
        let mut keys = merged.leaves.keys().chain(brought);
        keys.any(|key| key.starts_with(prefix))
    };
    let kind = if has(&format!("endpoints.{name}.")) {
        return Ok(name.to_owned());
    } else if has(&format!("pools.{name}.")) {
        "is a pool and no endpoint"
    } else if name == ROUTER && has("router.classes.") {
        "is the router and no endpoint"
    } else {
        "is no endpoint"
    };
    Err(ConfigError::Value {
        key: "endpoint".into(),
        origin: origin.to_owned(),
        reason: format!(
            "{name} {kind}; set it in [endpoints.NAME], or name an endpoint with --endpoint"
        ),
    })
}

/// Path of the user's file, if there is a home folder.
pub fn user_file() -> Option<PathBuf> {
    use etcetera::BaseStrategy as _;
    let base = etcetera::choose_base_strategy().ok()?;
    Some(base.config_dir().join("toolhold").join("config.toml"))
}

/// The files that are read unless one is named.
pub fn usual_files() -> Vec<PathBuf> {
    let found = PathBuf::from(FOUND);
    user_file().into_iter().chain([found]).collect()
}

fn parse(origin: &str, text: &str) -> Result<Table, ConfigError> {
    text.parse::<Table>().map_err(|error| ConfigError::Syntax {
        origin: origin.to_owned(),
        reason: error.to_string().trim_end().to_owned(),
    })
}

/// Leaves with their dotted keys. Lists, tables that are one value, and tables with nothing in them are leaves.
fn flatten(table: &Table) -> Vec<(String, Value)> {
    fn walk(prefix: &str, table: &Table, out: &mut Vec<(String, Value)>) {
        for (name, value) in table {
            let key = if prefix.is_empty() {
                name.clone()
            } else {
                format!("{prefix}.{name}")
            };
            match value {
                Value::Table(inner) if !inner.is_empty() && !known::is_value(&key) => {
                    walk(&key, inner, out);
                }
                _ => out.push((key, value.clone())),
            }
        }
    }
    let mut out = Vec::new();
    walk("", table, &mut out);
    out
}

fn is_empty(value: &Value) -> bool {
    value.as_table().is_some_and(Table::is_empty)
}

/// A variable's text as the TOML value it looks like; a string otherwise.
fn scalar(text: &str) -> Value {
    let parsed = format!("v = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut table| table.remove("v"));
    match parsed {
        Some(
            value @ (Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Array(_)
            | Value::Table(_)),
        ) => value,
        _ => Value::String(text.to_owned()),
    }
}

/// A comma-separated list, where a list is expected.
fn listed(text: &str) -> Value {
    let names = text.split(',').map(str::trim);
    let names = names.filter(|name| !name.is_empty());
    Value::Array(names.map(|name| Value::String(name.into())).collect())
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;
