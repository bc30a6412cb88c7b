//! Agents whose tools are WebAssembly components: the binary `toolhold`, and what a program of one's own
//! needs of it.
//!
//! `toolhold-agent` runs the loop, `toolhold-sandbox` runs tools, and neither knows the other.
//! [`SandboxTools`] is the bridge between them, made from a registry of modules, saved [`Requests`], and
//! the [`Sources`] that tools may name modules from. It needs no configuration file. This is all that is
//! public; the rest is the binary: `cli` is its way in, `host` builds what a command needs from the
//! configuration.
//!
//! # Embedding
//!
//! `examples/embed.rs` is a whole program. This is the part of it that is special to modules:
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//! use toolhold::{Requests, SandboxTools, Sources};
//! use toolhold_agent::Driver;
//! use toolhold_sandbox::{Engine, EngineConfig, Policy, Registry};
//!
//! # async fn driver(
//! #     model: Arc<dyn toolhold_agent::model::Model>,
//! # ) -> Result<Driver, Box<dyn std::error::Error>> {
//! // The policy is yours: by default every module is trusted, and none is given anything.
//! let registry = Registry::new(Engine::new(EngineConfig::default())?, None, Policy::default());
//! registry.load_folder(Path::new("modules"), None, &|_| ()).await?;
//! let tools = SandboxTools::new(registry)
//!     .with_requests(Requests::new("requests"))
//!     .with_sources(Sources::default().with_root("modules"))
//!     .allowing(["calculator", "text.count"]);
//! let driver = Driver::new(model, Arc::new(tools));
//! # Ok(driver)
//! # }
//! ```
#![forbid(unsafe_code)]

mod build;
mod cancellation;
mod capacity;
mod cli;
mod components;
mod config;
mod connections;
mod demo;
mod dialect;
mod eval;
mod fetch;
mod host;
mod install;
mod masking;
mod mcp;
mod mcp_server;
mod models;
mod module_report;
mod names;
mod recorded;
mod redaction;
mod registry_modules;
mod renewal;
mod requests;
mod scaffold;
mod serve;
mod shields;
mod stats;
mod storage;
mod stored_approver;
mod telemetry;
mod tools;
mod watch;

#[doc(hidden)]
pub use cli::main;
pub use components::Sources;
pub use requests::Requests;
pub use tools::SandboxTools;
