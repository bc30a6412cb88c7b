//! What joins telemetry to the database and to the registry of modules.

use toolhold_sandbox::Registry;
use toolhold_storage::Store;
use toolhold_telemetry::{CacheLookups, parse_context};
use uuid::Uuid;

/// The lookups of a registry in its cache of compiled modules, so far.
pub fn cache_lookups(registry: &Registry) -> CacheLookups {
    let lookups = registry.cache_lookups();
    CacheLookups {
        hits: lookups.hits,
        misses: lookups.misses,
    }
}

/// The trace of a run from before its process died. A run without a known trace resumes in a new one.
pub async fn recorded_trace(store: &Store, run: Uuid) -> opentelemetry::Context {
    match store.trace(run).await {
        Ok(Some(parent)) => parse_context(&parent, ""),
        _ => opentelemetry::Context::default(),
    }
}
