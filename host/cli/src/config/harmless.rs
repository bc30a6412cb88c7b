//! Which settings of a found file hold before a person trusts it: those that cannot harm
//! (`docs/security.md`, "Files that were found").
//!
//! This is a list of what is allowed. A key that is not in it needs trust, so a new key does until it is added
//! here; a test asks for a decision about every key.

use toml::Value;

/// What the value of an untrusted file must be, so that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Any: it decides how something is shown, or how the model is asked, and nothing about what may happen.
    Any,
    /// A number of at most what holds without the file.
    AtMost,
    /// The same, where 0 stands for "no limit".
    AtMostUnlessZero,
    /// This one.
    Only(bool),
    /// Not before what holds without the file, in this order: the strictest is last.
    Stricter(&'static [&'static str]),
    /// A list with everything that is in the list that holds without the file.
    Longer,
}

/// Limits of modules: keys of `[limits]` and `[ceiling]`.
const LIMITS: [&str; 14] = [
    "timeout_ms",
    "memory_bytes",
    "host_bytes",
    "argument_bytes",
    "output_bytes",
    "http_requests",
    "http_request_bytes",
    "http_response_bytes",
    "http_timeout_ms",
    "concurrent_calls",
    "component_bytes",
    "compile_ms",
    "compile_memory_bytes",
    "kept_bytes",
];
/// Those of which 0 means "no limit".
const LIMITS_UNLESS_ZERO: [&str; 2] = ["fuel", "calls_per_minute"];

/// Absent: the key needs trust, whatever its value is.
fn rule(key: &str) -> Option<Rule> {
    let limit = ["limits.", "ceiling."].map(|table| key.strip_prefix(table));
    if let Some(leaf) = limit.into_iter().flatten().next() {
        return if LIMITS.contains(&leaf) {
            Some(Rule::AtMost)
        } else {
            let is_limit = LIMITS_UNLESS_ZERO.contains(&leaf);
            is_limit.then_some(Rule::AtMostUnlessZero)
        };
    }
    Some(match key {
        "run.shape"
        | "run.examples"
        | "run.reasons"
        | "run.temperature"
        | "run.top_p"
        | "run.seed"
        | "telemetry.log_format" => Rule::Any,
        "run.max_steps"
        | "run.max_tokens"
        | "run.timeout_ms"
        | "run.call_timeout_ms"
        | "run.parallel_calls"
        | "run.max_calls"
        | "run.result_chars"
        | "run.max_depth"
        | "run.max_tools"
        | "fallback.attempts"
        | "tool_retry.attempts"
        | "jobs.timeout_ms"
        | "requests.timeout_ms"
        | "modules.start_timeout_ms"
        | "modules.concurrent_calls"
        | "modules.waiting_calls"
        | "oci.timeout_ms"
        | "mcp_server.answer_timeout_ms"
        | "mcp_server.message_bytes"
        | "mcp_server.calls"
        | "mcp_server.connections"
        | "mcp_server.sessions"
        | "serve.concurrent_runs"
        | "serve.key_concurrent_runs"
        | "serve.waiting_runs"
        | "serve.queue_timeout_ms"
        | "serve.connections"
        | "serve.body_bytes"
        | "serve.key_image_bytes"
        | "serve.image_bytes"
        | "serve.unsent_bytes"
        | "serve.disconnect_wait_ms" => Rule::AtMost,
        "run.token_budget"
        | "run.max_cost"
        | "run.max_tool_calls"
        | "modules.calls_per_minute"
        | "serve.key_requests_per_minute" => Rule::AtMostUnlessZero,
        "decisions.plans" | "oci.offline" => Rule::Only(true),
        "fallback.enabled" | "requests.plain_loopback" | "serve.module_upload" => Rule::Only(false),
        "decisions.default" => Rule::Stricter(&["never", "on-write", "always"]),
        "modules.pinning" => Rule::Stricter(&["never", "first-sight", "always"]),
        "serve.keys" => Rule::Stricter(&["never", "auto", "always"]),
        "serve.on_disconnect" => Rule::Stricter(&["continue", "wait", "cancel"]),
        "decisions.always" => Rule::Longer,
        _ => return None,
    })
}

/// Whether the value holds although the file is not trusted. `without`: what holds without the file.
pub fn holds(key: &str, value: &Value, without: Option<&Value>) -> bool {
    let (Some(rule), Some(without)) = (rule(key), without) else {
        return false;
    };
    match rule {
        Rule::Any => true,
        Rule::AtMost => match (number(value), number(without)) {
            (Some(value), Some(without)) => (0.0..=without).contains(&value),
            _ => false,
        },
        Rule::AtMostUnlessZero => match (number(value), number(without)) {
            (Some(value), Some(without)) => value > 0.0 && (without == 0.0 || value <= without),
            _ => false,
        },
        Rule::Only(allowed) => value.as_bool() == Some(allowed),
        Rule::Stricter(order) => {
            let place = |value: &Value| {
                let name = value.as_str()?;
                order.iter().position(|known| *known == name)
            };
            match (place(value), place(without)) {
                (Some(place), Some(without)) => place >= without,
                _ => false,
            }
        }
        Rule::Longer => match (value.as_array(), without.as_array()) {
            (Some(list), Some(without)) => without.iter().all(|name| list.contains(name)),
            _ => false,
        },
    }
}

/// A number, or an amount of money, which may be written as text. Rounding is far below what a limit means.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// Whether the setting protects, so that less than the file's author meant would hold without it.
pub fn protects(key: &str) -> bool {
    let parts: Vec<&str> = key.split('.').collect();
    matches!(
        parts.as_slice(),
        ["shields", ..] | ["agents", _, "shields", ..] | ["decisions", "on_write"]
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::files::{flatten, parse};
    use crate::config::known;
    use toolhold_runtime::config::DEFAULTS;

    /// Keys that need trust, whatever their value is. A name that ends in a dot stands for a whole table.
    const DANGEROUS: [&str; 54] = [
        // Which files are read.
        "knowledge.",
        // 0 is a share of the machine, which any number may exceed.
        "modules.kept_bytes",
        // Who is asked, with which key, and what for.
        "endpoint",
        "endpoints.",
        "pools.",
        "router.",
        "fallback.models",
        "fallback.max_tool_failures",
        "fallback.tool_errors",
        "fallback.order",
        // How soon a tool that is busy is called again.
        "tool_retry.backoff_ms",
        // How soon a module is asked about a job again.
        "jobs.backoff_ms",
        // What prices mean.
        "run.currency",
        // Off by default only to measure.
        "run.repair",
        // What a model is told in place of what a tool says now.
        "run.result_cache",
        "run.result_cache_tools",
        "run.summarizer",
        // Moves data between tools that the model never sees.
        "run.wiring",
        // Whether calls that advisors are against are held.
        "run.council",
        // What need not wait for a person.
        "decisions.never",
        "decisions.on_write",
        "decisions.calls_in_prose",
        // Which code and which prompts are loaded.
        "requests.folder",
        "requests.http",
        "modules.folder",
        "modules.roots",
        "module.",
        // Programs, addresses and tokens.
        "mcp.",
        "mcp_server.token_env",
        "mcp_server.hosts",
        "mcp_server.origins",
        "mcp_server.ask",
        "mcp_server.requests",
        "mcp_server.audit",
        // A shield sees everything, may be a component or a model, and names who is shown personal data.
        "shields.",
        "agents.",
        // Plain HTTP.
        "oci.insecure",
        "serve.listen",
        "serve.drain_ms",
        "serve.lame_duck_ms",
        "serve.origins",
        // Variables that hold addresses and passwords; what is deleted; where data is sent.
        "storage.url_env",
        "storage.keep_days",
        "storage.keep_audit_days",
        "storage.audit_results",
        "storage.patience_ms",
        "telemetry.endpoint",
        "telemetry.headers_env",
        "telemetry.service_name",
        "telemetry.sample_ratio",
        "telemetry.capture_content",
        // Whether keys are encrypted, and whether those in the other place hold.
        "secrets.store",
        // Folders with pins, grants, keys and compiled code.
        "paths.cache",
        "paths.state",
    ];

    /// Every key of the reference, and one of each table that users name.
    fn all_keys() -> Vec<String> {
        let defaults = parse("the default file", DEFAULTS).unwrap();
        let mut keys: Vec<String> = flatten(&defaults).into_iter().map(|(key, _)| key).collect();
        keys.extend(known::leaves_of_named_tables());
        keys
    }

    fn is_listed(key: &str) -> bool {
        DANGEROUS.iter().any(|listed| {
            let is_table = listed.ends_with('.');
            *listed == key || (is_table && key.starts_with(listed))
        })
    }

    #[test]
    fn every_key_is_said_to_be_harmless_or_dangerous() {
        let keys = all_keys();
        assert!(keys.len() > 200, "{}", keys.len());
        for key in &keys {
            let (is_harmless, is_dangerous) = (rule(key).is_some(), is_listed(key));
            assert!(
                is_harmless != is_dangerous,
                "{key}: can it harm when a stranger sets it? If it cannot, give it a rule; if it can, name it in \
                 DANGEROUS. harmless: {is_harmless}, dangerous: {is_dangerous}"
            );
        }
        for listed in DANGEROUS {
            let is_there = |key: &String| key == listed || key.starts_with(listed);
            assert!(keys.iter().any(is_there), "{listed} is no key any more");
        }
    }

    fn value(text: &str) -> Value {
        parse("a test", &format!("v = {text}")).unwrap()["v"].clone()
    }

    #[test]
    fn what_narrows_holds_and_what_widens_does_not() {
        for (key, without, narrow, wide) in [
            ("run.max_steps", "12", "12", "13"),
            ("run.max_steps", "12", "0", "-1"),
            ("run.max_steps", "12", "3", "\"many\""),
            ("run.token_budget", "0", "500", "0"),
            ("run.token_budget", "500", "499", "0"),
            ("run.max_cost", "0", "\"0.05\"", "0"),
            ("run.max_cost", "\"0.05\"", "0.01", "\"0.06\""),
            ("run.max_cost", "1", "0.5", "nan"),
            ("limits.fuel", "0", "5", "0"),
            ("limits.fuel", "5", "5", "6"),
            ("ceiling.memory_bytes", "8", "7", "9"),
            ("limits.timeout_ms", "8", "7", "[1]"),
            ("decisions.plans", "false", "true", "false"),
            ("fallback.enabled", "true", "false", "true"),
            (
                "decisions.default",
                "\"never\"",
                "\"on-write\"",
                "\"sometimes\"",
            ),
            (
                "decisions.default",
                "\"on-write\"",
                "\"always\"",
                "\"never\"",
            ),
            (
                "modules.pinning",
                "\"first-sight\"",
                "\"always\"",
                "\"never\"",
            ),
            ("serve.keys", "\"auto\"", "\"always\"", "\"never\""),
            ("decisions.always", "[\"a\"]", "[\"b\", \"a\"]", "[\"b\"]"),
            ("decisions.always", "[]", "[\"a\"]", "\"a\""),
        ] {
            let holds = |text: &str| holds(key, &value(text), Some(&value(without)));
            assert!(holds(narrow), "{key} = {narrow}, where {without} holds");
            assert!(!holds(wide), "{key} = {wide}, where {without} holds");
        }
    }

    #[test]
    fn what_is_in_no_list_needs_trust() {
        for key in ["nonsense", "limits.nonsense", "run", "module.m.limits.fuel"] {
            assert!(!holds(key, &value("1"), Some(&value("1"))), "{key}");
        }
        // There is nothing to compare with.
        assert!(!holds("run.max_steps", &value("1"), None));
    }

    #[test]
    fn shields_and_waiting_calls_protect() {
        for key in [
            "shields.mails.kind",
            "agents.a.shields.b.hide",
            "decisions.on_write",
        ] {
            assert!(protects(key), "{key}");
        }
        assert!(!protects("decisions.never") && !protects("module.files.directories"));
    }
}
