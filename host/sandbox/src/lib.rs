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
//! [`grant`], [`egress`], [`secret`], `state`. [`shape`], [`schema`] and [`value`] translate between WIT and JSON, [`docs`]
//! finds what was written about a component, [`approval`] keeps what a person agreed to, [`compile`]
//! and [`cache`] make and keep compiled code; the latter holds the only `unsafe`.

pub mod approval;
pub mod cache;
pub mod call;
pub mod compile;
pub mod docs;
pub mod egress;
pub mod engine;
pub mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod grant;
pub mod limits;
pub mod listener;
pub mod manifest;
pub mod module;
pub mod registry;
pub mod schema;
pub mod secret;
pub mod shape;
pub mod value;

pub mod admission;
mod bindings;
mod bounds;
mod capture;
mod code;
mod counters;
mod current;
mod decided;
mod files;
mod folder;
mod imports;
mod io_error;
mod key_value;
mod meter;
mod peers;
mod policy;
mod quota;
mod rate;
mod shelf;
mod shield;
mod special;
mod state;
mod text;
mod typed;
mod verdict;
mod world;

pub use approval::{Approval, Approvals, ApproveError, ApprovedBy, Change, Standing, Trust};
pub use bounds::{Bounds, Narrowed, Permit, PermitError, Within};
pub use call::{CallReport, Caller, Invocation, Output, Usage};
pub use capture::{Captured, LogLevel, LogLine};
pub use compile::{Compiler, CompilerProcess, compiler_process};
pub use counters::Counters;
pub use docs::DocsSource;
pub use egress::{GrantError, HttpGrant, HttpLimit, HttpLimits, Origin, Resolve, SystemResolver};
pub use engine::{Engine, EngineConfig};
pub use error::{CallError, ErrorClass, LoadError};
pub use folder::is_slot;
pub use grant::{
    Access, Capability, Clocks, DirectoryGrant, Grant, Keep, KeyValueGrant, Randomness,
    ScratchGrant, Share, Storage,
};
pub use limits::{Limit, Limits, LimitsRequest};
pub use listener::{Listener, Progress};
pub use manifest::Manifest;
pub use module::{Annotations, Example, Module, ModuleKind, ToolSpec};
pub use policy::{ModulePolicy, Policy};
pub use registry::{LoadEvent, Registry};
pub use secret::{Place, Redactor, SecretGrant, SecretSlot};
pub use shelf::FailedModule;
pub use shield::{Place as ShieldPlace, Screening, Verdict};
pub use text::{is_name, tool_name, visible, visible_json};
