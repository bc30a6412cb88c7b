//! The list of commands and configuration keys (`host/cli/surface.toml`), compared with the program.

use super::files::{flatten, parse};
use super::known;
use crate::usage;
use std::collections::{BTreeMap, BTreeSet};
use toolhold_runtime::config::{DEFAULTS, OVERRIDES};

const LIST: &str = include_str!("../../surface.toml");

/// Most configuration keys of the default file.
const MAX_DEFAULT_KEYS: usize = 160;
const MAX_REASON_CHARS: usize = 100;
const MIN_REASON_WORDS: usize = 4;

#[derive(serde::Deserialize)]
struct Surface {
    commands: BTreeMap<String, String>,
    keys: BTreeMap<String, String>,
}

fn surface() -> Surface {
    toml::from_str(LIST).unwrap()
}

/// Commands that do something: those without subcommands, and those whose subcommands may be left out.
fn commands() -> BTreeSet<String> {
    fn walk(command: &clap::Command, above: &str, found: &mut BTreeSet<String>) {
        let below = command
            .get_subcommands()
            .filter(|it| !it.is_hide_set() && it.get_name() != "help");
        for command in below {
            let name = format!("{above}{}", command.get_name());
            if !command.has_subcommands() || !command.is_subcommand_required_set() {
                found.insert(name.clone());
            }
            walk(command, &format!("{name} "), found);
        }
    }
    let mut found = BTreeSet::new();
    walk(&usage::command(), "", &mut found);
    found
}

fn default_keys() -> BTreeSet<String> {
    let defaults = parse("the default file", DEFAULTS).unwrap();
    let leaves = flatten(&defaults);
    leaves.into_iter().map(|(key, _)| key).collect()
}

/// Keys of tables that users name, with `NAME` for the name, but for those that other tables have as well.
fn named_keys(default: &BTreeSet<String>) -> BTreeSet<String> {
    let leaves = known::leaves_of_named_tables().into_iter();
    leaves
        .filter_map(|key| {
            let mut parts: Vec<&str> = key.split('.').collect();
            let name = usize::from(parts[..2] == ["router", "classes"]) + 1;
            parts[name] = "NAME";
            let of_agent = parts[0] == "agents";
            let repeated = match parts.as_slice() {
                ["module", _, "limits", leaf] => default.contains(&format!("limits.{leaf}")),
                [_, _, "shields", ..] => of_agent,
                [_, _, table, _] => of_agent && OVERRIDES.contains(table),
                _ => false,
            };
            if let ([_, _, _, module], true) = (parts.as_mut_slice(), of_agent) {
                *module = "MODULE";
            }
            (!repeated).then(|| parts.join("."))
        })
        .collect()
}

fn compare(what: &str, program: &BTreeSet<String>, listed: &BTreeMap<String, String>) {
    let listed: BTreeSet<String> = listed.keys().cloned().collect();
    let added: Vec<_> = program.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(program).collect();
    assert!(
        added.is_empty() && gone.is_empty(),
        "host/cli/surface.toml has all {what} with the reason for each. Not in the list: {added:?}. Only in the list: {gone:?}"
    );
}

#[test]
fn commands_are_listed_with_their_reasons() {
    compare("commands", &commands(), &surface().commands);
}

#[test]
fn keys_are_listed_with_their_reasons() {
    let default = default_keys();
    assert!(default.len() <= MAX_DEFAULT_KEYS, "{}", default.len());
    let keys = default.union(&named_keys(&default)).cloned().collect();
    compare("configuration keys", &keys, &surface().keys);
}

#[test]
fn reasons_say_something_of_their_own() {
    let Surface { commands, keys } = surface();
    let mut reasons = BTreeSet::new();
    for (name, reason) in commands.iter().chain(&keys) {
        let words = reason.split_whitespace().count();
        assert!(words >= MIN_REASON_WORDS, "{name}: {reason}");
        assert!(
            reason.chars().count() <= MAX_REASON_CHARS,
            "{name}: {reason}"
        );
        assert!(
            reasons.insert(reason),
            "{name}: another has this reason: {reason}"
        );
    }
}
