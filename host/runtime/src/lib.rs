//! The composition root: agents, models, shields, tools and saved Requests put together from a configuration,
//! and what a program of one's own embeds.
//!
//! `toolhold-agent` runs the loop, `toolhold-sandbox` runs tools, and neither knows the other.
//! [`SandboxTools`] is the bridge between them, made from a registry of modules, saved [`Requests`], and
//! the [`Sources`] that tools may name modules from. It needs no configuration file. Nothing here knows a
//! terminal or HTTP, and nothing reads files, flags or variables for the configuration: it comes as values.
//!
//! Read it in this order: [`config`] (the types of the configuration), [`host`] (registry, database and
//! telemetry made from it), [`components`] and [`requests`] (what a `_module` may name), [`tools`] (the
//! bridge), [`models`], [`dialect`] and [`shields`] (what a run asks, and what screens it), [`agents`] (all of
//! it, ready to run), [`recorded`] (calls that belong to no run), [`file_pins`] (pins of configuration files),
//! [`startup`] and [`server_listing`] (what a process waits for when it begins), [`watch`] and [`renewal`] (what changes
//! while it serves), [`backup`] (what a host keeps, in one file), [`knowledge`]
//! (documents and the model that finds passages of them), [`extract`] (documents that are no text), [`document_addresses`] (documents at addresses of the web), [`retrieval`] (what a
//! run is shown of them), [`stats`] (what runs took), [`disks`] (the room that is left for all of it).
//!
//! # Embedding
//!
//! `examples/embed.rs` is a whole program. This is the part of it that is special to modules:
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//! use toolhold_runtime::{Requests, SandboxTools, Sources};
//! use toolhold_agent::Driver;
//! use toolhold_sandbox::{Engine, EngineConfig, Policy, Registry};
//!
//! # async fn driver(
//! #     model: Arc<dyn toolhold_model::Model>,
//! # ) -> Result<Driver, Box<dyn std::error::Error>> {
//! // The default policy trusts every module and grants nothing.
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

pub mod agents;
pub mod backup;
pub mod cancellation;
mod candidate_scores;
pub mod causes;
pub mod components;
pub mod config;
mod described_tools;
pub mod dialect;
pub mod disks;
pub mod document_addresses;
pub mod endpoints;
pub mod extract;
pub mod file_pins;
pub mod host;
pub mod install;
pub mod knowledge;
pub mod models;
pub mod module_knowledge;
pub mod module_report;
mod narrowing;
pub mod probed;
pub mod recorded;
pub mod registry_modules;
mod remote_requests;
pub mod renewal;
pub mod request_runs;
pub mod requests;
pub mod resume_notes;
pub mod retrieval;
pub mod server_listing;
pub mod shields;
pub mod startup;
pub mod stats;
pub mod stored_decider;
pub mod telemetry;
pub mod tools;
pub mod watch;

pub use components::Sources;
pub use remote_requests::RemoteRequests;
pub use requests::Requests;
pub use tools::SandboxTools;
