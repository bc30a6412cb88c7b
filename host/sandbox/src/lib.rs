//! Runs tools that are WebAssembly components, and lets nothing out that was not granted.
//!
//! What this crate promises: a component dropped into a folder becomes tools; every call runs in a
//! fresh instance, under fuel, memory, table, stack, output and wall-clock limits, with no file,
//! variable, socket or secret it was not granted; and whatever it does, the caller gets a typed
//! answer before the deadline. JSON goes in, JSON comes out. It knows nothing of models, runs or
//! servers, and it is the only crate that names wasmtime.
//!
//! Read it in this order: [`registry`] (the public door: a folder becomes callable tools),
//! [`module`] (bytes become a verified, compiled, linked component and its tool specs), [`call`]
//! (one call: fresh store, invoke, classify), then what a call stands on: [`engine`], [`limits`],
//! [`grant`], `state`. [`schema`] and [`value`] translate between WIT and JSON, [`cache`] keeps
//! compiled code and holds the only `unsafe`.

pub mod cache;
pub mod call;
pub mod engine;
pub mod error;
pub mod grant;
pub mod limits;
pub mod manifest;
pub mod module;
pub mod registry;
pub mod schema;
pub mod value;

mod bindings;
mod capture;
mod egress;
mod special;
mod state;
mod text;
mod typed;
mod world;

pub use call::{CallReport, Invocation, Output, Usage};
pub use capture::{Captured, LogLevel, LogLine};
pub use engine::{Engine, EngineConfig};
pub use error::{CallError, ErrorClass, LoadError};
pub use grant::{Access, DirectoryGrant, Grant};
pub use limits::{Limits, LimitsRequest};
pub use manifest::Manifest;
pub use module::{Annotations, Example, Module, ModuleKind, ToolSpec};
pub use registry::{FailedModule, LoadEvent, ModulePolicy, Policy, Registry};
pub use text::is_name;
