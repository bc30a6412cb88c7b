//! What joins telemetry to the database and to the registry of modules.

use toolhold_sandbox::Registry;
use toolhold_storage::Store;
use toolhold_telemetry::{CacheLookups, SandboxLoad, Telemetry, parse_context};
use uuid::Uuid;

/// Exports what the calls of a registry take, and its lookups in the cache of compiled modules.
pub fn watch_sandbox(telemetry: &Telemetry, registry: &Registry) {
    let cached = registry.clone();
    telemetry.watch_cache(move || {
        let lookups = cached.cache_lookups();
        CacheLookups {
            hits: lookups.hits,
            misses: lookups.misses,
        }
    });
    let loaded = registry.clone();
    telemetry.watch_sandbox(move || {
        let load = loaded.engine_load();
        let pool = load.pool.iter();
        SandboxLoad {
            running: load.running as u64,
            waiting: load.waiting as u64,
            kept_bytes: load.kept_bytes,
            kept_ceiling: load.kept_ceiling,
            pool: pool.map(|it| (it.resource, it.used, it.total)).collect(),
        }
    });
}

/// The trace of a run from before its process died. A run without a known trace resumes in a new one.
pub async fn recorded_trace(store: &Store, run: Uuid) -> opentelemetry::Context {
    match store.trace(run).await {
        Ok(Some(parent)) => parse_context(&parent, ""),
        _ => opentelemetry::Context::default(),
    }
}
