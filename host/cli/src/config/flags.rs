//! The settings of the command line.

use super::files::{self, flatten};
use super::layers::ConfigError;
use std::path::Path;
use toml::{Table, Value};

/// Settings given on the command line: flag, key, value.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    settings: Vec<(String, String, Value)>,
    /// An agent's endpoint, after its origin. Flags without an endpoint's name are of the
    /// run's endpoint all the same.
    agents_endpoint: Option<(String, Value)>,
}

impl Flags {
    pub fn set(&mut self, flag: &str, key: impl Into<String>, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.settings
                .push((flag.to_owned(), key.into(), value.into()));
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
        if let Some((_, table)) = files::read(path, true)? {
            self.set_all(flag, &table);
        }
        Ok(())
    }

    /// Every setting of a table at `key`.
    pub fn set_table(&mut self, flag: &str, key: &str, value: &Value) {
        self.set_all(flag, &Table::from_iter([(key.to_owned(), value.clone())]));
    }

    /// Every setting of a table at `key`, below those that were given.
    pub fn set_table_below(&mut self, flag: &str, key: &str, value: &Value) {
        let given = std::mem::take(&mut self.settings);
        self.set_table(flag, key, value);
        self.settings.extend(given);
    }

    /// Whether they say which endpoint a run asks, or what its endpoint is.
    pub fn name_endpoint(&self) -> bool {
        let mut settings = self.settings.iter();
        settings.any(|(_, key, _)| key == "endpoint" || key.starts_with("endpoints.{endpoint}."))
    }

    fn set_all(&mut self, flag: &str, table: &Table) {
        for (key, value) in flatten(table) {
            self.set(flag, key, Some(value));
        }
    }

    /// The endpoint of an agent's runs.
    pub fn set_agents_endpoint(&mut self, origin: &str, name: Option<String>) {
        self.agents_endpoint = name.map(|name| (origin.to_owned(), name.into()));
    }

    /// The endpoint of an agent's runs, after what says so.
    pub(super) fn agents_endpoint(&self) -> Option<&(String, Value)> {
        self.agents_endpoint.as_ref()
    }

    /// The settings: flag, key, value. The last one counts.
    pub(super) fn all(&self) -> &[(String, String, Value)] {
        &self.settings
    }

    /// The text at `key`, with its flag.
    pub(super) fn text(&self, key: &str) -> Option<(&str, &str)> {
        let last = self.settings.iter().rfind(|(_, own, _)| own == key);
        let (flag, _, value) = last?;
        Some((flag, value.as_str()?))
    }

    /// The number of set keys.
    pub fn len(&self) -> usize {
        self.settings.len()
    }

    /// The keys that were set after the first `n`.
    pub fn since(&self, n: usize) -> impl Iterator<Item = &str> {
        self.settings.iter().skip(n).map(|(_, key, _)| key.as_str())
    }
}

/// A variable's text as the TOML value it looks like; a string otherwise.
pub fn scalar(text: &str) -> Value {
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
