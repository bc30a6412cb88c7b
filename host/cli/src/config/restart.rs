//! Keys that a serving process reads once, when it starts (`docs/server.md`, "What changes without a restart").

use super::{Loaded, Setting};
use std::collections::BTreeSet;

/// Tables that every serving process reads at its start alone.
const TABLES: [&str; 3] = ["storage", "telemetry", "paths"];

/// Single keys of other tables: where modules lie, and what the engine is made with.
const KEYS: [&str; 5] = [
    "modules.folder",
    "modules.concurrent_calls",
    "modules.waiting_calls",
    "modules.calls_per_minute",
    "modules.kept_bytes",
];

/// Whether a change of `key` holds after a restart only. `own` is the table of what the process serves.
fn needs_restart(key: &str, own: &str) -> bool {
    let table = key.split('.').next().unwrap_or_default();
    table == own || TABLES.contains(&table) || KEYS.contains(&key)
}

impl Loaded {
    /// The keys whose values in `now` hold only after a restart of a process that began with this configuration.
    pub fn awaiting_restart(&self, now: &Self, own: &str) -> BTreeSet<String> {
        awaiting_restart(&self.settings, &now.settings, own)
    }
}

fn awaiting_restart(before: &[Setting], now: &[Setting], own: &str) -> BTreeSet<String> {
    let of = |settings: &[Setting]| -> BTreeSet<(String, String)> {
        let read_once = settings.iter().filter(|it| needs_restart(&it.key, own));
        read_once
            .map(|it| (it.key.clone(), it.value.to_string()))
            .collect()
    };
    let (before, now) = (of(before), of(now));
    let changed = before.symmetric_difference(&now);
    changed.map(|(key, _)| key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::files::{flatten, parse};
    use toml::Value;
    use toolhold_runtime::config::DEFAULTS;

    fn settings(of: &[(&str, &str)]) -> Vec<Setting> {
        let setting = |(key, value): &(&str, &str)| Setting {
            key: (*key).to_owned(),
            value: Value::from(*value),
            origin: "default".to_owned(),
        };
        of.iter().map(setting).collect()
    }

    #[test]
    fn keys_that_are_read_once_are_named_and_no_others() {
        let before = settings(&[
            ("serve.listen", "a"),
            ("mcp_server.audit", "on"),
            ("run.max_steps", "1"),
            ("paths.state", "s"),
        ]);
        let now = settings(&[
            ("serve.listen", "b"),
            ("mcp_server.audit", "off"),
            ("run.max_steps", "2"),
            ("paths.state", "s"),
            ("storage.url_env", "DB"),
        ]);
        let named = |own| awaiting_restart(&before, &now, own);
        let expected = ["serve.listen", "storage.url_env"].map(str::to_owned);
        assert_eq!(named("serve"), expected.into());
        let expected = ["mcp_server.audit", "storage.url_env"].map(str::to_owned);
        assert_eq!(named("mcp_server"), expected.into());
        assert_eq!(awaiting_restart(&now, &now, "serve"), BTreeSet::new());
    }

    #[test]
    fn every_named_key_exists() {
        let defaults = parse("the default file", DEFAULTS).unwrap();
        let known: BTreeSet<String> = flatten(&defaults).into_iter().map(|(key, _)| key).collect();
        for key in KEYS {
            assert!(known.contains(key), "{key}");
        }
        for table in TABLES.into_iter().chain(["serve", "mcp_server"]) {
            let prefix = format!("{table}.");
            assert!(known.iter().any(|key| key.starts_with(&prefix)), "{table}");
        }
    }
}
