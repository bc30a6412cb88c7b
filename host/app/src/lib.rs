//! Rooms that become crates of their own: storage, telemetry, connections, the MCP client, pulling of
//! components, redaction.
#![forbid(unsafe_code)]

pub mod config;
pub mod connections;
pub mod fetch;
pub mod masking;
pub mod mcp;
pub mod redaction;
pub mod storage;
pub mod telemetry;
