//! The order of crates: each uses only earlier ones. Some crates must not depend on certain packages, directly or
//! indirectly.

use anyhow::Result;

use crate::project;
use crate::workspace::{self, Crate};

/// From the bottom to the binary, by folder under `host/`.
pub const ORDER: [&str; 23] = [
    "needs",
    "text",
    "schema",
    "json",
    "intake",
    "admission",
    "files",
    "policy",
    "protocol",
    "model",
    "sandbox",
    "storage",
    "knowledge",
    "oci",
    "telemetry",
    "connections",
    "agent",
    "mcp",
    "runtime",
    "server",
    "devkit",
    "hostile",
    "cli",
];

/// Crates for developers: they may use all, and none of the others may use them.
pub const DEVELOPERS: [&str; 2] = ["fuzz", "xtask"];

/// Packages that must not be linked into a crate: they compile slowly, and are a sign of a wrong dependency.
const FORBIDDEN: [(&str, &[&str]); 15] = [
    ("schema", &["wasmtime", "sqlx", "axum", "reqwest"]),
    ("json", &["wasmtime", "sqlx", "axum", "reqwest"]),
    ("intake", &["wasmtime", "sqlx", "axum", "reqwest"]),
    ("admission", &["wasmtime", "sqlx", "axum", "reqwest"]),
    ("files", &["wasmtime", "sqlx", "axum", "reqwest"]),
    ("policy", &["wasmtime", "sqlx", "axum", "reqwest"]),
    ("protocol", &["wasmtime", "sqlx", "axum", "reqwest"]),
    ("model", &["wasmtime", "sqlx", "axum"]),
    ("sandbox", &["sqlx", "axum"]),
    ("storage", &["wasmtime", "axum"]),
    ("knowledge", &["wasmtime", "axum", "reqwest"]),
    ("telemetry", &["wasmtime"]),
    ("connections", &["wasmtime", "sqlx"]),
    ("agent", &["wasmtime", "sqlx", "axum"]),
    ("mcp", &["wasmtime"]),
];

/// The one crate that names the engine and what belongs to it.
const ENGINE: (&str, &str) = ("sandbox", "wasmtime");

pub fn position(name: &str) -> Option<usize> {
    ORDER.iter().position(|each| *each == name)
}

/// The faults that the `Cargo.toml` files show.
pub fn violations<'a>(crates: impl Iterator<Item = &'a Crate>) -> Vec<String> {
    let mut violations = Vec::new();
    for each in crates {
        let name = &each.name;
        if !DEVELOPERS.contains(&name.as_str()) {
            match position(name) {
                Some(place) => violations.extend(upward(each, place)),
                None => violations.push(format!(
                    "host/{name} has no place in the order of crates: put it into ORDER of host/xtask/src/rooms/order.rs"
                )),
            }
        }
        let (engine, prefix) = ENGINE;
        if name != engine
            && let Some(named) = each.external.iter().find(|named| named.starts_with(prefix))
        {
            violations.push(format!(
                "host/{name}/Cargo.toml names {named}: only host/{engine} does"
            ));
        }
    }
    violations
}

/// Uses of crates in the same place or later.
fn upward(each: &Crate, place: usize) -> Vec<String> {
    let uses = each.uses.iter().filter(|used| {
        // A crate without a place is reported separately; crates for developers come after all others.
        match position(used) {
            Some(other) => other >= place,
            None => DEVELOPERS.contains(&used.as_str()),
        }
    });
    uses.map(|used| {
        format!(
            "host/{}/Cargo.toml depends on {used}, which stands later in the order of crates",
            each.name
        )
    })
    .collect()
}

/// The forbidden packages that a crate is linked with, by `cargo tree`.
pub fn forbidden(each: &Crate) -> Result<Vec<String>> {
    let Some((_, forbidden)) = FORBIDDEN.iter().find(|(name, _)| *name == each.name) else {
        return Ok(Vec::new());
    };
    let mut tree = project::cargo();
    tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none"])
        .args(["--package", &each.package]);
    let printed = workspace::output(&mut tree)?;
    let linked = String::from_utf8_lossy(&printed);
    Ok(found(forbidden, &linked)
        .map(|name| {
            format!(
                "host/{} is linked with {name}: cargo tree -p {} -e normal -i {name}",
                each.name, each.package
            )
        })
        .collect())
}

/// Those of `forbidden` that `cargo tree`, which begins each line with a name, has printed.
fn found<'a>(forbidden: &'a [&str], tree: &str) -> impl Iterator<Item = &'a str> {
    let is_there = |name: &&str| {
        tree.lines()
            .any(|line| line.split_whitespace().next() == Some(name))
    };
    forbidden.iter().copied().filter(is_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations_of(crates: &[(&str, &[&str], &[&str])]) -> Vec<String> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let crates: Vec<_> = crates
            .iter()
            .map(|(name, uses, external)| Crate {
                name: (*name).to_owned(),
                package: format!("toolhold-{name}"),
                description: String::new(),
                roots: Vec::new(),
                benches: Vec::new(),
                uses: names(uses),
                external: names(external),
            })
            .collect();
        violations(crates.iter())
    }

    #[test]
    fn a_crate_uses_earlier_ones_only() {
        let good: [(&str, &[&str], &[&str]); 4] = [
            ("json", &[], &["serde"]),
            ("sandbox", &["json"], &["wasmtime-wasi"]),
            ("cli", &["sandbox", "hostile"], &[]),
            ("fuzz", &["sandbox"], &[]),
        ];
        assert_eq!(violations_of(&good), Vec::<String>::new());
        let found = violations_of(&[
            ("protocol", &["json", "agent"], &[]),
            ("json", &["fuzz"], &[]),
        ]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("host/protocol/Cargo.toml depends on agent"));
        assert!(found[1].contains("depends on fuzz"));
    }

    #[test]
    fn an_unknown_crate_and_a_second_user_of_the_engine_are_told() {
        let found = violations_of(&[("attic", &[], &[]), ("agent", &[], &["wasmtime"])]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("host/attic has no place"));
        assert!(found[1].contains("host/agent/Cargo.toml names wasmtime"));
    }

    #[test]
    fn a_crate_of_a_similar_name_is_another() {
        let tree = "toolhold-storage v0.1.0 (/r/host/storage)\nsqlx v0.9.0\nwasmtime-internal v1.0.0 (*)\n";
        let found: Vec<_> = found(&["wasmtime", "sqlx"], tree).collect();
        assert_eq!(found, ["sqlx"]);
    }

    #[test]
    fn every_rule_is_of_a_crate_in_the_order() {
        let names = FORBIDDEN.iter().map(|(name, _)| *name).chain([ENGINE.0]);
        for name in names {
            assert!(position(name).is_some(), "{name}");
        }
    }
}
