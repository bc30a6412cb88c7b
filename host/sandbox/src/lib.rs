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
pub mod module;
pub mod registry;
pub mod schema;
pub mod shape;
pub mod value;

pub mod admission;
mod approvals;
mod bindings;
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
mod log_sink;
mod meter;
mod peers;
mod policy;
mod quota;
mod rate;
mod shelf;
mod shield;
mod special;
mod state;
mod typed;
mod verdict;
mod world;

pub use approvals::ApprovalFolder;
pub use compile::{Compiler, CompilerProcess, compiler_process};
pub use counters::Counters;
pub use egress::{Resolve, SystemResolver};
pub use engine::{Engine, EngineConfig};
pub use error::LoadError;
pub use folder::is_slot;
pub use grant::{Storage, same_directory};
pub use module::{Module, ModuleKind};
pub use policy::{ApproveError, ModulePolicy, Policy, Trust};
pub use registry::{LoadEvent, Registry};
pub use shelf::FailedModule;
pub use shield::{Place as ShieldPlace, Screening, Verdict};

// Moved to `toolhold-policy`; the old paths stay until their users name the new crate.
pub use ApprovalFolder as Approvals;
pub use toolhold_policy::{
    Access, Annotations, Approval, ApprovalStore, ApprovedBy, CallError, CallReport, Caller,
    Capability, Captured, Change, Clocks, DirectoryGrant, DocsSource, ErrorClass, Example, Grant,
    GrantError, GrantRestrictions as Bounds, HttpGrant, HttpLimit, HttpLimits, Invocation, Keep,
    KeyValueGrant, Limit, Limits, LimitsRequest, Listener, LogLevel, LogLine, Manifest,
    NarrowedGrant as Narrowed, Origin, Output, Permit, PermitError, Progress, Randomness, Redactor,
    Restriction as Within, ScratchGrant, SecretGrant, SecretPlace as Place, SecretSlot, Share,
    Standing, ToolSpec, Usage, is_name, limits, manifest, secret, text, tool_name, visible,
    visible_json,
};
