//! Which revision of the protocol a request speaks, and what it says of its sender.

use super::rpc::{Error, INVALID_REQUEST, Request, UNSUPPORTED_VERSION};
use opentelemetry::Context;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use toolhold_policy::{LogLevel, visible};
use toolhold_telemetry as telemetry;

/// The revision without sessions.
pub const MODERN: &str = "2026-07-28";
/// Revisions that begin with `initialize`, the newest first.
pub const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// Those of them whose clients may send several messages at a time.
pub const BATCHED: [&str; 2] = ["2025-03-26", "2024-11-05"];

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_KEY: &str = "io.modelcontextprotocol/clientInfo";
const LOG_LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";
pub const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";
pub const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// Characters of what a client says of itself.
const MAX_CLIENT_CHARS: usize = 64;

/// How a request is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// Within a session that `initialize` began.
    Legacy,
    /// By itself.
    Modern,
}

/// What holds for one request.
#[derive(Debug, Clone)]
pub struct Terms {
    pub era: Era,
    /// Whether the client can show its user a form.
    pub elicits: bool,
    /// The least level of log lines that the client wants; none without one.
    pub least: Option<LogLevel>,
    /// Under which the client wants to hear of progress.
    pub progress: Option<Value>,
    /// Whose scratch files a module sees.
    pub session: Arc<str>,
    /// Whose calls are made, for the record; empty for the user of this machine.
    pub owner: &'static str,
    /// What the client says that it is.
    pub client: Option<Value>,
    /// The client's trace.
    pub trace: Context,
}

/// The version that a request names in its `_meta`, which only requests of the modern era do.
pub fn named(request: &Request) -> Option<&Value> {
    meta(&request.params)?.get(VERSION_KEY)
}

/// The terms of a request of the modern era.
pub fn modern(request: &Request, session: Arc<str>) -> Result<Terms, Error> {
    let meta = meta(&request.params);
    let key = |key: &str| {
        let missing = || {
            Error::params(format!(
                "params._meta lacks {key:?}, which every request of revision {MODERN} has; earlier revisions begin \
                 with \"initialize\""
            ))
        };
        meta.and_then(|meta| meta.get(key)).ok_or_else(missing)
    };
    let version = key(VERSION_KEY)?;
    let version = version
        .as_str()
        .ok_or_else(|| Error::params(format!("params._meta.{VERSION_KEY:?} must be a text")))?;
    let capabilities = key(CAPABILITIES_KEY)?;
    if !capabilities.is_object() {
        let form = format!("params._meta.{CAPABILITIES_KEY:?} must be an object");
        return Err(Error::params(form));
    }
    if version != MODERN {
        return Err(unsupported(version));
    }
    let least = meta.and_then(|meta| meta.get(LOG_LEVEL_KEY));
    Ok(Terms {
        era: Era::Modern,
        elicits: elicits(capabilities),
        least: least.map(level).transpose()?,
        progress: progress(&request.params),
        session,
        owner: "",
        client: meta.and_then(|meta| meta.get(CLIENT_KEY)).and_then(client),
        trace: trace(&request.params),
    })
}

pub fn unsupported(version: &str) -> Error {
    let shown: String = version.chars().take(64).collect();
    Error::new(UNSUPPORTED_VERSION, "Unsupported protocol version")
        .with(json!({"supported": [MODERN], "requested": shown}))
}

/// The version of a session: the client's, if we have it, else our newest.
pub fn agreed(asked: &str) -> &'static str {
    let same = LEGACY.into_iter().find(|own| *own == asked);
    same.unwrap_or(LEGACY[0])
}

/// Whether capabilities offer forms: an empty object has always meant that.
pub fn elicits(capabilities: &Value) -> bool {
    match capabilities.get("elicitation") {
        Some(Value::Object(modes)) => modes.is_empty() || modes.contains_key("form"),
        _ => false,
    }
}

/// The token that a request wants progress told under.
pub fn progress(params: &Map<String, Value>) -> Option<Value> {
    let token = meta(params)?.get("progressToken")?;
    (token.is_string() || token.is_i64() || token.is_u64()).then(|| token.clone())
}

/// Name and version of a client, as it says them, and no more of it than a record needs.
pub fn client(info: &Value) -> Option<Value> {
    let said = |key: &str| Some(visible(info.get(key)?.as_str()?, MAX_CLIENT_CHARS));
    let name = said("name")?;
    Some(json!({"name": name, "version": said("version")}))
}

/// The trace that a request says it is part of.
pub fn trace(params: &Map<String, Value>) -> Context {
    let said = |key: &str| meta(params)?.get(key)?.as_str();
    match said("traceparent") {
        Some(parent) => telemetry::named(parent, said("tracestate").unwrap_or_default()),
        None => Context::default(),
    }
}

/// Reads one of syslog's levels; a module's are fewer.
pub fn level(name: &Value) -> Result<LogLevel, Error> {
    Ok(match name.as_str() {
        Some("debug") => LogLevel::Trace,
        Some("info") => LogLevel::Info,
        Some("notice" | "warning") => LogLevel::Warn,
        Some("error" | "critical" | "alert" | "emergency") => LogLevel::Error,
        _ => {
            return Err(Error::params(
                "the level must be debug, info, notice, warning, error, critical, alert or emergency",
            ));
        }
    })
}

/// A module's level as syslog names it.
pub fn level_name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Trace | LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warning",
        LogLevel::Error => "error",
    }
}

/// Who we are.
pub fn server_info() -> Value {
    json!({
        "name": "toolhold",
        "title": "Toolhold",
        "version": env!("CARGO_PKG_VERSION"),
    })
}

pub fn not_initialized() -> Error {
    Error::new(
        INVALID_REQUEST,
        format!(
            "begin with \"initialize\", or name revision {MODERN} in params._meta of every request"
        ),
    )
}

fn meta(params: &Map<String, Value>) -> Option<&Map<String, Value>> {
    params.get("_meta")?.as_object()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::rpc::{INVALID_PARAMS, Id};

    fn request(params: Value) -> Request {
        Request {
            id: Id::Number(1.into()),
            method: "tools/list".into(),
            params: params.as_object().cloned().unwrap_or_default(),
        }
    }

    #[test]
    fn a_modern_request_says_all_about_itself() {
        let full = |version: Value, capabilities: Value| {
            json!({"_meta": {VERSION_KEY: version, CAPABILITIES_KEY: capabilities,
                "progressToken": 7, LOG_LEVEL_KEY: "warning"}})
        };
        let terms = modern(
            &request(full(MODERN.into(), json!({"elicitation": {}}))),
            "s".into(),
        )
        .unwrap();
        assert!(terms.elicits && terms.progress == Some(json!(7)));
        assert_eq!(terms.least, Some(LogLevel::Warn));
        for (params, code) in [
            (json!({}), INVALID_PARAMS),
            (json!({"_meta": 5}), INVALID_PARAMS),
            (json!({"_meta": {VERSION_KEY: MODERN}}), INVALID_PARAMS),
            (full(5.into(), json!({})), INVALID_PARAMS),
            (full(MODERN.into(), json!([])), INVALID_PARAMS),
            (full("1900-01-01".into(), json!({})), UNSUPPORTED_VERSION),
            (full(LEGACY[0].into(), json!({})), UNSUPPORTED_VERSION),
        ] {
            let error = modern(&request(params.clone()), "s".into()).unwrap_err();
            assert_eq!(error.code, code, "{params}");
        }
    }

    #[test]
    fn a_client_without_forms_is_not_asked() {
        for (capabilities, expect) in [
            (json!({}), false),
            (json!({"elicitation": {}}), true),
            (json!({"elicitation": {"form": {}}}), true),
            (json!({"elicitation": {"form": {}, "url": {}}}), true),
            (json!({"elicitation": {"url": {}}}), false),
            (json!({"elicitation": true}), false),
        ] {
            assert_eq!(elicits(&capabilities), expect, "{capabilities}");
        }
    }

    #[test]
    fn versions_are_agreed() {
        for version in LEGACY {
            assert_eq!(agreed(version), version);
        }
        for unknown in ["", "1900-01-01", MODERN] {
            assert_eq!(agreed(unknown), "2025-11-25", "{unknown}");
        }
    }
}
