//! The known keys: those of the default file, and those of tables that users name.

use toolhold_policy::LimitsRequest;
use toolhold_runtime::config::{
    AGENT_KEYS, CLASS_KEYS, ENDPOINT_KEYS, OVERRIDES, POOL_KEYS, RETRIEVAL_KEYS, SHARES,
};

/// Keys of `[module.NAME]` besides `limits`. Tables among them are values, replaced as a whole.
const MODULE: [&str; 12] = [
    "source",
    "directories",
    "http",
    "secrets",
    "scratch",
    "environment",
    "key_value",
    "knowledge",
    "tools",
    "clocks",
    "randomness",
    "log_level",
];
/// Keys among them that give something to a module. Clocks and randomness are none: every module has both, and these keys
/// only say which kind of them. So a file with nothing else about modules grants nothing.
const GRANTS: [&str; 8] = [
    "directories",
    "http",
    "secrets",
    "scratch",
    "environment",
    "key_value",
    "knowledge",
    "tools",
];
/// Keys of `[mcp.NAME]`.
const MCP: [&str; 9] = [
    "command",
    "env",
    "secret_env",
    "url",
    "token_env",
    "timeout_ms",
    "max_result_bytes",
    "tools",
    "offer",
];
/// Keys of `[shields.NAME]`.
const SHIELD: [&str; 16] = [
    "kind",
    "order",
    "places",
    "tools",
    "timeout_ms",
    "on_failure",
    "hide",
    "reveal",
    "reveal_secrets",
    "block",
    "allow",
    "module",
    "settings",
    "endpoint",
    "categories",
    "max_chars",
];

/// Whether a table at this key is one value, with members that the user names or that a type checks.
pub fn is_value(key: &str) -> bool {
    match parts(key).as_slice() {
        ["module", _, leaf] => MODULE.contains(leaf),
        ["mcp", _, "env"]
        | ["endpoints", _, "extra" | "fields" | "price_per_million"]
        | ["shields", _, "settings"]
        | ["agents", _, "shields", _, "settings"]
        // An empty table allows nothing; an absent one allows everything.
        | ["agents", _, SHARES, _] => true,
        _ => false,
    }
}

/// Whether a value at this key gives something to a module.
pub fn is_grant(key: &str) -> bool {
    matches!(parts(key).as_slice(), ["module", _, leaf] if is_grant_of_module(leaf))
}

/// Whether a value at this key of `[module.NAME]` gives something.
pub fn is_grant_of_module(key: &str) -> bool {
    GRANTS.contains(&key)
}

/// Whether the presence of a table at this key has a meaning by itself, even if the table is empty.
pub fn is_entry(key: &str) -> bool {
    matches!(
        parts(key).as_slice(),
        ["agents" | "endpoints" | "mcp" | "pools" | "shields", _, ..] | ["router", "classes", _]
    )
}

/// Whether `key` can be set. `listed`: the keys of the default file.
pub fn is_key(listed: &[String], key: &str) -> bool {
    let is_listed = |key: String| listed.contains(&key);
    if is_listed(key.to_owned()) {
        return true;
    }
    match parts(key).as_slice() {
        ["endpoints", _, leaf] => {
            ENDPOINT_KEYS.contains(leaf) || is_listed(format!("endpoints.default.{leaf}"))
        }
        ["pools", _, leaf] => POOL_KEYS.contains(leaf),
        ["router", "classes", _, leaf] => CLASS_KEYS.contains(leaf),
        ["module", _, leaf] => MODULE.contains(leaf),
        ["mcp", _, leaf] => MCP.contains(leaf),
        ["shields", _, leaf] | ["agents", _, "shields", _, leaf] => SHIELD.contains(leaf),
        ["agents", _, leaf] => AGENT_KEYS.contains(leaf),
        // The members of a share are checked where it is read.
        ["agents", _, SHARES, _] => true,
        // The model is the process's.
        ["agents", _, "knowledge", leaf] => RETRIEVAL_KEYS.contains(leaf),
        ["agents", _, table, rest @ ..] => {
            OVERRIDES.contains(table) && is_listed(format!("{table}.{}", rest.join(".")))
        }
        ["module", _, "limits", leaf] => LimitsRequest::NAMES.contains(leaf),
        _ => false,
    }
}

/// A key for each leaf that [`is_key`] takes below tables that users name, besides those that are keys of the
/// default file for other names.
#[cfg(test)]
pub fn leaves_of_named_tables() -> Vec<String> {
    let below = |table: &str, leaves: &[&str]| -> Vec<String> {
        let leaves = leaves.iter();
        leaves.map(|leaf| format!("{table}.{leaf}")).collect()
    };
    [
        below("module.m", &MODULE),
        below("module.m.limits", LimitsRequest::NAMES),
        below("endpoints.e", &ENDPOINT_KEYS),
        below("mcp.m", &MCP),
        below("shields.s", &SHIELD),
        below("agents.a", &AGENT_KEYS),
        below(&format!("agents.a.{SHARES}"), &["m"]),
        below("agents.a.run", &["max_steps"]),
        below("agents.a.knowledge", &RETRIEVAL_KEYS),
        below("agents.a.shields.s", &SHIELD),
        below("pools.p", &POOL_KEYS),
        below("router.classes.c", &CLASS_KEYS),
    ]
    .concat()
}

/// Whether `key` is that of a table.
pub fn is_table(listed: &[String], key: &str) -> bool {
    let leads = |key: &str| {
        let below = |known: &String| {
            let rest = known.strip_prefix(key);
            rest.is_some_and(|rest| rest.starts_with('.'))
        };
        listed.iter().any(below)
    };
    match parts(key).as_slice() {
        ["agents" | "endpoints" | "mcp" | "module" | "pools" | "shields"]
        | [
            "agents" | "endpoints" | "mcp" | "module" | "pools" | "shields",
            _,
        ]
        | ["router", "classes"]
        | ["router", "classes", _]
        | ["module", _, "limits"]
        | ["agents", _, "shields" | SHARES]
        | ["agents", _, "shields", _] => true,
        ["agents", _, rest @ ..] => {
            rest.first().is_some_and(|table| OVERRIDES.contains(table)) && leads(&rest.join("."))
        }
        _ => leads(key),
    }
}

/// Characters of a key in a message: a stranger's file has keys of any length.
const MAX_NAMED_CHARS: usize = 200;

/// A key as messages name it.
pub fn named(key: &str) -> String {
    toolhold_text::cut(key, MAX_NAMED_CHARS)
}

/// Returns words about the key that an unknown `key` stands for, or nothing. They begin with a space and end with a
/// semicolon or question mark.
pub fn advice(listed: &[String], key: &str) -> String {
    if let ["limits" | "ceiling", leaf] = parts(key).as_slice()
        && LimitsRequest::NAMES.contains(leaf)
    {
        return format!(" [module.NAME.limits] sets {leaf:?} for one module;");
    }
    if let Some(new) = renamed(key) {
        return format!(" it is called {:?};", named(&new));
    }
    if is_fixed(key) {
        return " its value is fixed, so take it out;".to_owned();
    }
    nearest(listed, key).map_or_else(String::new, |key| {
        format!(" did you mean {:?}?", named(&key))
    })
}

/// Returns the present name of a key that had another one before the first release.
fn renamed(key: &str) -> Option<String> {
    match parts(key).as_slice() {
        ["modules", "approval"] => Some("modules.pinning".to_owned()),
        ["approval", rest @ ..] => Some([&["decisions"], rest].concat().join(".")),
        ["agents", name, "approval", rest @ ..] => {
            Some([&["agents", name, "decisions"], rest].concat().join("."))
        }
        _ => None,
    }
}

/// True for a key of before the first release whose value is fixed now.
fn is_fixed(key: &str) -> bool {
    match parts(key).as_slice() {
        [
            "endpoints" | "pools",
            _,
            "max_backoff_ms" | "max_retry_after_ms",
        ]
        | [
            "endpoints",
            _,
            "breaker_window_ms" | "breaker_rest_ms" | "waiting_requests",
        ]
        | ["tool_retry", "max_backoff_ms" | "total_wait_ms"]
        | ["run", "result_cache_ms"]
        | ["mcp_server", "session_idle_ms"]
        | ["oci", "idle_timeout_ms"]
        | ["compiler", "own_process"] => true,
        ["agents", _, rest @ ..] => is_fixed(&rest.join(".")),
        _ => false,
    }
}

/// The known key that is most similar: one of the same table if a user names it, else one of the default file.
fn nearest(listed: &[String], key: &str) -> Option<String> {
    let leaves: &[&str] = match parts(key).as_slice() {
        ["module", _, "limits", _] => LimitsRequest::NAMES,
        ["module", _, _] => &MODULE,
        ["mcp", _, _] => &MCP,
        ["pools", _, _] => &POOL_KEYS,
        ["router", "classes", _, _] => &CLASS_KEYS,
        ["agents", _, _] => &AGENT_KEYS,
        ["shields", _, _] | ["agents", _, "shields", _, _] => &SHIELD,
        _ => return most_similar(listed.iter().map(String::as_str), key).map(str::to_owned),
    };
    let (table, leaf) = key.rsplit_once('.')?;
    let meant = most_similar(leaves.iter().copied(), leaf)?;
    Some(format!("{table}.{meant}"))
}

/// Bytes of a name that may be like a known one. None is so long, and each comparison costs the product of both lengths.
const MAX_SIMILAR_BYTES: usize = 1_000;

/// The one of `known` that `key` is most likely meant to be, if it is similar enough.
pub fn most_similar<'k>(known: impl Iterator<Item = &'k str>, key: &str) -> Option<&'k str> {
    if key.len() > MAX_SIMILAR_BYTES {
        return None;
    }
    let scored = known.map(|known| (strsim::jaro_winkler(known, key), known));
    let (score, known) = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (score > 0.85).then_some(known)
}

fn parts(key: &str) -> Vec<&str> {
    key.split('.').collect()
}
