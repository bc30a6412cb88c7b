//! The protocol revision of a request, and the metadata of its sender.

use crate::rpc::{INVALID_REQUEST, RpcError, RpcRequest, UNSUPPORTED_VERSION};
use opentelemetry::Context;
use serde_json::{Map, Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use toolhold_policy::{BeginCheck, LogLevel, visible};
use toolhold_telemetry as telemetry;

/// The revision without sessions.
pub const MODERN: &str = "2026-07-28";
/// Revisions that begin with `initialize`, the newest first.
pub const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// Those of them that have batches.
pub const BATCHED: [&str; 2] = ["2025-03-26", "2024-11-05"];

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_KEY: &str = "io.modelcontextprotocol/clientInfo";
const LOG_LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";
pub const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";
pub const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// Most characters kept of the client's description of itself.
const MAX_CLIENT_CHARS: usize = 64;

/// How a request is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolEra {
    /// Within a session that `initialize` began.
    Legacy,
    /// Without a session.
    Modern,
}

/// The source of a client that does not come over HTTP: it is the only one.
pub const HERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The metadata of one request.
#[derive(Debug, Clone)]
pub struct RequestMetadata {
    pub era: ProtocolEra,
    /// Whether the client can show its user a form.
    pub elicits: bool,
    /// Least level of log lines that the client wants; absent: no log lines.
    pub least: Option<LogLevel>,
    /// Token for progress notifications; absent: none are wanted.
    pub progress: Option<Value>,
    /// Session whose scratch files a module sees.
    pub session: Arc<str>,
    /// Where the client is, as far as clients are told apart by that.
    pub source: IpAddr,
    /// Owner of the calls, for the record; empty for the user of this machine.
    pub owner: &'static str,
    /// The client's name for itself.
    pub client: Option<Arc<Value>>,
    /// The client's trace context.
    pub trace: Context,
    /// Asked by the request's calls before they begin. Absent: the request is alone on its connection, and ends with that.
    pub begin: Option<Arc<dyn BeginCheck>>,
}

/// The version in a request's `_meta`, which only requests of the modern era have.
pub fn requested_version(request: &RpcRequest) -> Option<&Value> {
    meta(&request.params)?.get(VERSION_KEY)
}

/// The metadata of a request of the modern era.
pub fn modern(request: &RpcRequest, session: Arc<str>) -> Result<RequestMetadata, RpcError> {
    let meta = meta(&request.params);
    let key = |key: &str| {
        let missing = || {
            RpcError::params(format!(
                "params._meta lacks {key:?}, which every request of revision {MODERN} has; earlier revisions begin \
                 with \"initialize\""
            ))
        };
        meta.and_then(|meta| meta.get(key)).ok_or_else(missing)
    };
    let version = key(VERSION_KEY)?;
    let version = version
        .as_str()
        .ok_or_else(|| RpcError::params(format!("params._meta.{VERSION_KEY:?} must be a text")))?;
    let capabilities = key(CAPABILITIES_KEY)?;
    if !capabilities.is_object() {
        let form = format!("params._meta.{CAPABILITIES_KEY:?} must be an object");
        return Err(RpcError::params(form));
    }
    if version != MODERN {
        return Err(unsupported(version));
    }
    let least = meta.and_then(|meta| meta.get(LOG_LEVEL_KEY));
    Ok(RequestMetadata {
        era: ProtocolEra::Modern,
        elicits: elicits(capabilities),
        least: least.map(level).transpose()?,
        progress: progress(&request.params),
        session,
        source: HERE,
        owner: "",
        client: meta.and_then(|meta| meta.get(CLIENT_KEY)).and_then(client),
        trace: trace(&request.params),
        begin: None,
    })
}

pub fn unsupported(version: &str) -> RpcError {
    let shown: String = version.chars().take(64).collect();
    RpcError::new(UNSUPPORTED_VERSION, "Unsupported protocol version")
        .with(json!({"supported": [MODERN], "requested": shown}))
}

/// The version of a session: the requested one if it is supported, else our newest.
pub fn negotiated_version(asked: &str) -> &'static str {
    let same = LEGACY.into_iter().find(|own| *own == asked);
    same.unwrap_or(LEGACY[0])
}

/// Whether the client supports forms: an empty object has always meant that.
pub fn elicits(capabilities: &Value) -> bool {
    match capabilities.get("elicitation") {
        Some(Value::Object(modes)) => modes.is_empty() || modes.contains_key("form"),
        _ => false,
    }
}

/// The progress token of a request.
pub fn progress(params: &Map<String, Value>) -> Option<Value> {
    let token = meta(params)?.get("progressToken")?;
    (token.is_string() || token.is_i64() || token.is_u64()).then(|| token.clone())
}

/// Name and version of a client, shortened for the record.
pub fn client(info: &Value) -> Option<Arc<Value>> {
    let said = |key: &str| Some(visible(info.get(key)?.as_str()?, MAX_CLIENT_CHARS));
    let name = said("name")?;
    Some(Arc::new(json!({"name": name, "version": said("version")})))
}

/// The trace context of a request.
pub fn trace(params: &Map<String, Value>) -> Context {
    let said = |key: &str| meta(params)?.get(key)?.as_str();
    match said("traceparent") {
        Some(parent) => telemetry::parse_context(parent, said("tracestate").unwrap_or_default()),
        None => Context::default(),
    }
}

/// Converts a syslog level to a module's level; several syslog levels map to one.
pub fn level(name: &Value) -> Result<LogLevel, RpcError> {
    Ok(match name.as_str() {
        Some("debug") => LogLevel::Trace,
        Some("info") => LogLevel::Info,
        Some("notice" | "warning") => LogLevel::Warn,
        Some("error" | "critical" | "alert" | "emergency") => LogLevel::Error,
        _ => {
            return Err(RpcError::params(
                "the level must be debug, info, notice, warning, error, critical, alert or emergency",
            ));
        }
    })
}

/// Converts a module's level to syslog's name.
pub fn level_name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Trace | LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warning",
        LogLevel::Error => "error",
    }
}

/// This server's name and version.
pub fn server_info() -> Value {
    json!({
        "name": "toolhold",
        "title": "Toolhold",
        "version": env!("CARGO_PKG_VERSION"),
    })
}

pub fn not_initialized() -> RpcError {
    RpcError::new(
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
    use crate::rpc::{INVALID_PARAMS, Id};

    fn request(params: Value) -> RpcRequest {
        RpcRequest {
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
        let metadata = modern(
            &request(full(MODERN.into(), json!({"elicitation": {}}))),
            "s".into(),
        )
        .unwrap();
        assert!(metadata.elicits && metadata.progress == Some(json!(7)));
        assert_eq!(metadata.least, Some(LogLevel::Warn));
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
            assert_eq!(negotiated_version(version), version);
        }
        for unknown in ["", "1900-01-01", MODERN] {
            assert_eq!(negotiated_version(unknown), "2025-11-25", "{unknown}");
        }
    }
}
