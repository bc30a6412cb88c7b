//! The keys that go along: a key is bound to the address that it was configured with (`docs/security.md`, "How
//! they are kept").
//!
//! A layer that replaces an address and names no key leaves the key of another layer behind. What is compared is the
//! address that held where the key was named with the one that holds in the end.

use super::{ConfigError, Merged};
use crate::config::found::FOUND;
use crate::config::presets;
use std::collections::BTreeMap;
use toml::Value;

/// The variable of endpoints without a key of their own.
pub const USUAL_KEY: &str = "TOOLHOLD_API_KEY";
/// The standard variables with the address of the collector, or with the URL of one signal there. The standard variables
/// with headers are for these.
pub const COLLECTORS: [&str; 3] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
];

/// Variables of the environment that keys are bound by, and that are no settings.
#[derive(Debug, Default)]
pub struct KeyEnvironment {
    /// [`USUAL_KEY`] is set.
    pub has_usual_key: bool,
    /// The values of [`COLLECTORS`].
    pub collectors: Vec<String>,
}

/// The layers, the weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    BuiltIn,
    Files,
    /// The file of the working folder, which is trusted.
    Found,
    Variables,
    Flags,
}

/// The value that each layer gave at each key, also where a later layer gave something else.
pub type Given = BTreeMap<String, BTreeMap<Layer, Value>>;

/// The leaf with an address, and the one that names the keys for it.
const PAIRS: [(&str, &str, &str); 4] = [
    ("endpoints", "base_url", "api_key_env"),
    ("mcp", "url", "token_env"),
    ("mcp", "command", "secret_env"),
    (TELEMETRY, "endpoint", "headers_env"),
];
const TELEMETRY: &str = "telemetry";
/// Origin of what the exporter reads by itself.
const ENVIRONMENT: &str = "the environment";

/// A key that is not sent, because its address was replaced.
#[derive(Debug, Clone, PartialEq)]
pub struct Withheld {
    /// The table, such as `endpoints.big`.
    pub table: String,
    /// The leaf that named the variables.
    leaf: &'static str,
    /// The variables that hold the secrets.
    pub variables: Vec<String>,
    key_origin: String,
    address_origin: String,
}

impl Withheld {
    /// The error where it is needed.
    pub fn error(&self) -> ConfigError {
        ConfigError::Value {
            key: format!("{}.{}", self.table, self.leaf),
            origin: self.key_origin.clone(),
            reason: self.reason(),
        }
    }

    /// Whether nothing can be done without the key: it is no standard header of a collector.
    pub fn is_demanded(&self) -> bool {
        self.table != TELEMETRY || self.key_origin != ENVIRONMENT
    }

    /// The secret that is not sent, the address, and the remedy.
    pub fn reason(&self) -> String {
        let Self { table, leaf, .. } = self;
        let variables = self.variables.join(", ");
        let remedy = match self.address_origin.split(' ').next() {
            Some("flag") if *leaf == "api_key_env" => {
                "name the variable of the key for this address with --api-key-env VARIABLE (\"\" for none)".to_owned()
            }
            Some("variable") => {
                let variable = format!("{table}.{leaf}").to_ascii_uppercase().replace('.', "__");
                format!("name the variable of the key for this address in TOOLHOLD_{variable} (empty for none)")
            }
            _ => format!("set {leaf} where the address is set"),
        };
        format!(
            "{variables} was not configured with the address of {table} that {} sets, and a key is sent to its own \
             address alone; {remedy}, or give the address a table of its own",
            self.address_origin
        )
    }
}

impl Layer {
    /// `is_named`: the user named the file, so that none was found.
    pub fn of(origin: &str, is_named: bool) -> Self {
        match origin.split_once(' ') {
            None | Some(("preset", _)) => Self::BuiltIn,
            Some(("file", name)) if name == FOUND && !is_named => Self::Found,
            Some(("file", _)) => Self::Files,
            Some(("variable", _)) => Self::Variables,
            Some(_) => Self::Flags,
        }
    }
}

impl Merged {
    fn layer(&self, origin: &str) -> Layer {
        Layer::of(origin, self.is_named)
    }

    /// Takes away the names of keys whose address was replaced.
    pub(super) fn bind_keys(&mut self, environment: &KeyEnvironment) {
        let tables: Vec<(String, &'static str, &'static str)> = PAIRS
            .iter()
            .flat_map(|(kind, address, leaf)| {
                let tables = self.leaves.keys().filter_map(move |key| {
                    let table = key.strip_suffix(leaf)?.strip_suffix('.')?;
                    let is_of = table == *kind || table.strip_prefix(kind)?.starts_with('.');
                    is_of.then(|| (table.to_owned(), *address, *leaf))
                });
                tables.collect::<Vec<_>>()
            })
            .collect();
        for (table, address, leaf) in tables {
            if let Some(withheld) = self.withheld_of(&table, address, leaf, environment) {
                let key = format!("{table}.{leaf}");
                let none = match self.leaves.get(&key) {
                    Some((Value::Array(_), _)) => Value::Array(Vec::new()),
                    _ => Value::String(String::new()),
                };
                self.leaves
                    .insert(key, (none, withheld.address_origin.clone()));
                self.withheld.push(withheld);
            }
        }
    }

    fn withheld_of(
        &self,
        table: &str,
        address: &'static str,
        leaf: &'static str,
        environment: &KeyEnvironment,
    ) -> Option<Withheld> {
        let has_usual_key = environment.has_usual_key;
        let (key, key_origin) = self.leaves.get(&format!("{table}.{leaf}"))?;
        let variables = names(key);
        let address_key = format!("{table}.{address}");
        let (at, address_origin) = self.leaves.get(&address_key)?;
        // The key of a preset does not outlive the address of the preset.
        if variables.is_empty() || key_origin.starts_with("preset ") {
            return None;
        }
        let is_usual = variables == [USUAL_KEY] && key_origin == "default";
        let none = BTreeMap::new();
        let history = self.given.get(&address_key).unwrap_or(&none);
        if table == TELEMETRY && key_origin == "default" {
            let is_theirs = is_of_standard_headers(history, environment, at);
            return (!is_theirs).then(|| Withheld {
                table: table.to_owned(),
                leaf,
                variables,
                key_origin: ENVIRONMENT.to_owned(),
                address_origin: address_origin.clone(),
            });
        }
        let is_placed = history.keys().any(|given| *given <= Layer::Files);
        let layer = match self.layer(key_origin) {
            // A stored secret belongs to the address in the user's files, where they have one.
            Layer::BuiltIn if is_usual && (has_usual_key || !is_placed) => Layer::Variables,
            Layer::BuiltIn if is_usual => Layer::Files,
            layer => layer,
        };
        let preset = table.strip_prefix("endpoints.").and_then(presets::settings);
        let preset = preset
            .and_then(|leaves| Some(leaves.into_iter().find(|(leaf, _)| *leaf == address)?.1));
        let is_own = self.given.contains_key(&format!("{table}.{leaf}"));
        let built_in = preset.filter(|_| is_own);
        let home = home(history, built_in.as_ref(), layer);
        let goes = history.is_empty() || home.is_some_and(|(_, home)| is_same(home, at));
        let inherits = || {
            let history = self
                .given
                .get("endpoints.default.base_url")
                .unwrap_or(&none);
            if history.is_empty() {
                return true;
            }
            let place = self.layer(address_origin);
            place == layer
                || self::home(history, None, layer)
                    .is_some_and(|(home, value)| home == place || is_same(value, at))
        };
        let is_default = table == "endpoints.default";
        let goes = goes && (is_own || is_default || history.is_empty() || inherits());
        (!goes).then(|| Withheld {
            table: table.to_owned(),
            leaf,
            variables,
            key_origin: match (is_usual, has_usual_key) {
                (true, true) => format!("variable {USUAL_KEY}"),
                _ => key_origin.clone(),
            },
            address_origin: address_origin.clone(),
        })
    }
}

/// Whether the headers of the standard variables are for the collector at `address`: each of the standard variables that
/// is set names it, or without any the user does, in a file of their own, a variable or a flag. A found file names its own
/// headers.
fn is_of_standard_headers(
    history: &BTreeMap<Layer, Value>,
    environment: &KeyEnvironment,
    address: &Value,
) -> bool {
    if address.as_str() == Some("") {
        // The standard variables name both.
        return true;
    }
    if environment.collectors.is_empty() {
        let own = history.iter().rfind(|(given, _)| **given != Layer::Found);
        return own.is_some_and(|(_, own)| is_same(own, address));
    }
    let mut collectors = environment.collectors.iter();
    collectors.all(|collector| {
        let signal = collector.rsplit_once("/v1/").map(|(base, _)| base);
        is_same(
            &Value::String(signal.unwrap_or(collector).to_owned()),
            address,
        )
    })
}

/// The address that a key of `layer` was configured with: the one that held there, or else the first that was given
/// later. A found file takes no key with it that it does not name: not from the user's files, and not by replacing
/// their address.
fn home<'v>(
    history: &'v BTreeMap<Layer, Value>,
    built_in: Option<&'v Value>,
    layer: Layer,
) -> Option<(Layer, &'v Value)> {
    let is_replaced = built_in.is_some() || history.keys().any(|given| *given < Layer::Found);
    let counts = |given: Layer| given != Layer::Found || layer == Layer::Found || !is_replaced;
    let all = history.iter().map(|(given, value)| (*given, value));
    let before = all
        .clone()
        .rfind(|(given, _)| *given <= layer && counts(*given));
    before
        .or_else(|| Some((Layer::BuiltIn, built_in?)))
        .or_else(|| {
            let mut later = all.clone();
            later.find(|(given, _)| *given > layer && *given != Layer::Found)
        })
}

/// Addresses are compared as they are written, but for a slash at the end.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one.as_str(), other.as_str()) {
        (Some(one), Some(other)) => one.trim_end_matches('/') == other.trim_end_matches('/'),
        _ => one == other,
    }
}

fn names(key: &Value) -> Vec<String> {
    let names = match key {
        Value::Array(names) => names.as_slice(),
        other => std::slice::from_ref(other),
    };
    let names = names.iter().filter_map(Value::as_str);
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}
