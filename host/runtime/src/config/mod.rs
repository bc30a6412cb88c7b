//! The configuration as types: what `serde` reads (the tables), and the settings that they make.
//!
//! [`Configuration`] holds all settings that runs depend on. [`Configuration::new`] makes it from [`Tables`]
//! and [`ConfigContext`]. This module reads no file and no environment variable, so a program that embeds the
//! runtime decides where settings come from. The command line merges them from the default file,
//! configuration files, variables and flags.
//!
//! [`DEFAULTS`] is the documentation of every key.

mod agents;
mod configuration;
mod endpoint;
mod fallback;
mod fetched;
mod jobs;
mod knowledge;
mod launched;
mod machine_memory;
mod mcp;
mod model_order;
mod model_work;
mod modules;
mod pool;
mod price;
mod requests;
mod reserved;
mod router;
mod routes;
mod shields;
mod surroundings;
mod telemetry;
mod tool_retry;

pub use agents::{
    AGENT_KEYS, AgentConfiguration, AgentTable, DEFAULT_AGENT, InvalidAgent, OVERRIDES, SHARES,
};
pub use configuration::{Configuration, DATABASE_FILE, Tables};
pub use endpoint::{ENDPOINT_KEYS, EndpointTable};
pub use fallback::{FallbackCandidate, FallbackOrder};
pub use knowledge::{KnowledgeTable, RETRIEVAL_KEYS};
pub use pool::POOL_KEYS;
pub use reserved::{decisive, secret};
pub use router::CLASS_KEYS;
pub use routes::{ROUTER, RouteTarget, Routes};
pub use shields::{ShieldSettings, ShieldWhat};
pub use surroundings::{ConfigContext, ConfigFault, ShippedModules, UsualModules};
pub use telemetry::LogFormat;

/// The default file: every key with its default and its meaning.
pub const DEFAULTS: &str = include_str!("default.toml");
