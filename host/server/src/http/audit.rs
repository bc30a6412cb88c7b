//! The audit log.

use crate::http::App;
use crate::http::auth::Client;
use crate::http::body::QueryParams;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::runs::{check_limit, usual_limit};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhold_storage::{AuditFilter, AuditOrder, Scope};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Filter of entries; an absent field matches every entry.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct EntryFilter {
    /// The most entries of a page; 1 to 1000.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default = "usual_limit")]
    limit: u32,
    /// Only entries older than this number: the last number of the previous page.
    before: Option<i64>,
    /// Milliseconds since 1970 (UTC).
    since_ms: Option<u64>,
    until_ms: Option<u64>,
    tool: Option<String>,
    /// Name of an API key, or a user of the server's machine, such as `uid:1000`.
    owner: Option<String>,
    run: Option<Uuid>,
    /// Text within the entry; ASCII letters match in either case.
    text: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct AuditList {
    entries: Vec<AuditItem>,
}

#[derive(Debug, Serialize, ToSchema)]
struct AuditItem {
    number: i64,
    /// One audited action: who did what and when, without personal data and secrets.
    #[schema(value_type = Object)]
    entry: Value,
    /// SHA-256 in hex, over the hash of the entry before, a line break, and this entry as JSON without
    /// spaces and with sorted members.
    hash: String,
}

/// Returns audit entries, the newest first.
#[utoipa::path(
    get, path = "/v1/audit", tag = "audit", security(("key" = [])), params(EntryFilter),
    responses((status = 200, body = AuditList), (status = "4XX", body = ErrorBody)),
)]
async fn list(
    State(app): State<App>,
    client: Client,
    QueryParams(which): QueryParams<EntryFilter>,
) -> Result<Json<AuditList>, ApiError> {
    client.may(Scope::Admin)?;
    check_limit(which.limit)?;
    let filter = AuditFilter {
        since_ms: which.since_ms,
        until_ms: which.until_ms,
        tool: which.tool,
        owner: which.owner,
        run: which.run,
        text: which.text,
    };
    let order = AuditOrder::Before(which.before.unwrap_or(i64::MAX));
    let store = app.dispatcher.store();
    if let Err(error) = store.audit_interrupted().await {
        tracing::warn!(%error, "calls that were interrupted since the last look may be missing in the audit log");
    }
    let entries = store.audited(&filter, order, which.limit).await?;
    let entries = entries.into_iter().map(|entry| AuditItem {
        number: entry.number,
        // A damaged row is returned as it is; verification reports it.
        entry: serde_json::from_str(&entry.text).unwrap_or(Value::String(entry.text)),
        hash: entry.hash,
    });
    Ok(Json(AuditList {
        entries: entries.collect(),
    }))
}
