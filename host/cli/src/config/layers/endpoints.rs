//! Endpoints in the layers: what they have from presets and from the default, and which one a setting without a name
//! is of.

use super::{ConfigError, Merged};
use crate::config::flags::Flags;
use crate::config::presets;
use std::collections::BTreeSet;
use toml::{Table, Value};
use toolhold_runtime::config::ROUTER;

impl Merged {
    /// An endpoint with the name of a preset and without an address has the preset's values. Any that a file adds
    /// inherits the defaults, except those that identify an endpoint.
    pub(super) fn complete_endpoints(&mut self) {
        let name = |key: &String| {
            let name = key.strip_prefix("endpoints.")?.split('.').next();
            name.map(str::to_owned)
        };
        let names: BTreeSet<String> = self.leaves.keys().filter_map(name).collect();
        for name in &names {
            if self
                .leaves
                .contains_key(&format!("endpoints.{name}.base_url"))
            {
                continue;
            }
            for (leaf, value) in presets::settings(name).into_iter().flatten() {
                let origin = || (value, format!("preset {name}"));
                let key = format!("endpoints.{name}.{leaf}");
                self.leaves.entry(key).or_insert_with(origin);
            }
        }
        let listed = self.order.iter();
        for leaf in listed.filter_map(|key| key.strip_prefix("endpoints.default.")) {
            let own = match leaf {
                "base_url" => continue,
                "model" => Some(Value::String(String::new())),
                "weight" => Some(Value::Integer(1)),
                // Price and capacity of one endpoint do not apply to another.
                "price_per_million" => Some(Value::Table(Table::new())),
                "gpu_hour" | "window" => Some(Value::Integer(0)),
                _ => None,
            };
            let inherited = match own {
                Some(value) => (value, "default".to_owned()),
                None => self.leaves[&format!("endpoints.default.{leaf}")].clone(),
            };
            for name in &names {
                let key = format!("endpoints.{name}.{leaf}");
                self.leaves.entry(key).or_insert_with(|| inherited.clone());
            }
        }
    }

    /// A preset is an address and the key for it: where another layer says the address, nothing else of the preset
    /// holds. Its key would be sent there.
    pub(super) fn forget_presets_without_address(&mut self) {
        let is_elsewhere = |name: &str| {
            let address = self.leaves.get(&format!("endpoints.{name}.base_url"));
            address.is_some_and(|(_, origin)| *origin != format!("preset {name}"))
        };
        let moved: BTreeSet<String> = self
            .leaves
            .iter()
            .filter_map(|(key, (_, origin))| {
                let name = origin.strip_prefix("preset ")?;
                is_elsewhere(name).then(|| key.clone())
            })
            .collect();
        self.leaves.retain(|key, _| !moved.contains(key));
    }

    /// A preset that is chosen by its name needs no table.
    pub(super) fn add_preset(&mut self) {
        let Some(name) = self
            .text("endpoint")
            .filter(|name| presets::is_preset(name))
        else {
            return;
        };
        let tables = [format!("endpoints.{name}."), format!("pools.{name}.")];
        let is_there = |key: &String| tables.iter().any(|table| key.starts_with(table));
        if !self.leaves.keys().any(is_there) {
            let (key, origin) = (format!("endpoints.{name}.model"), format!("preset {name}"));
            self.leaves.insert(key, (String::new().into(), origin));
        }
        self.complete_endpoints();
    }
}

/// The preset and the model that `TOOLHOLD_MODEL` names, unless something else says which endpoint or model is meant.
pub(super) fn preset_of_variable<'v>(
    variables: &'v [(String, String)],
    flags: &Flags,
) -> Option<(&'v str, &'v str)> {
    let named = |name: &str| variables.iter().find(|(own, _)| own == name);
    let is_given = |leaf: &str| {
        let key = format!("endpoints.{{endpoint}}.{leaf}");
        flags.all().iter().any(|(_, own, _)| *own == key)
    };
    if named("TOOLHOLD_BASE_URL").is_some() || is_given("base_url") || is_given("model") {
        return None;
    }
    presets::split(&named("TOOLHOLD_MODEL")?.1)
}

/// The endpoint of runs, for settings without an endpoint's name.
pub(super) fn endpoint(
    merged: &Merged,
    flags: &Flags,
    origin: &str,
) -> Result<String, ConfigError> {
    let name = merged.text("endpoint").unwrap_or("default");
    let has = |prefix: &str| {
        let brought = flags.all().iter().map(|(_, key, _)| key);
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
