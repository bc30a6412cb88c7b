//! Runs tools that are WebAssembly components, and lets nothing out that was not granted.
//!
//! What this crate promises: a component dropped into a folder becomes tools; every call runs in a
//! fresh instance, under fuel, memory, table, stack, output and wall-clock limits, with no file,
//! variable, socket or secret it was not granted; and whatever it does, the caller gets a typed
//! answer before the deadline. JSON goes in, JSON comes out. It knows nothing of models, runs or
//! servers, and it is the only crate that names wasmtime.
//!
//! ```
//! use serde_json::json;
//! use toolhold_policy::{Invocation, Output};
//! use toolhold_sandbox::{Engine, EngineConfig, Policy, Registry};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let component = wat::parse_str(
//!     r#"(component
//!          (core module $m (func (export "double") (param i32) (result i32)
//!            (i32.mul (local.get 0) (i32.const 2))))
//!          (core instance $i (instantiate $m))
//!          (func (export "double") (param "n" s32) (result s32) (canon lift (core func $i "double"))))"#,
//! )?;
//! let registry = Registry::new(Engine::new(EngineConfig::default())?, None, Policy::default());
//! registry.load_bytes("numbers", component).await?;
//!
//! let arguments = json!({"n": 21});
//! let report = registry.call(&Invocation::new("call-1", "numbers.double", &arguments)).await;
//! assert_eq!(report.result?, Output::Value(json!(42)));
//! # Ok(())
//! # }
//! ```
//!
//! Read it in this order: [`registry`] (the public door: a folder becomes callable tools), [`module`] (bytes
//! become a verified, compiled, linked component and its tool specs; its calls), `host` (what a guest may import)
//! and `call` (one call: a fresh store, the guest, the verdict). They stand on: `policy` (the operator's decision
//! and what it means for one module), [`compile`] (bytes to native code, and the cache with the only `unsafe`),
//! [`engine`] (wasmtime, its clock, its permits), `grant` (a grant made ready for calls), [`egress`] (outbound
//! HTTP), `descriptors` (how many guests may have open), `disk` (scratch files, keys and values, quotas), `blocking` (the
//! threads for work of calls on the file system), `revocation` (tells running calls that their grant is gone), [`value`]
//! (WIT types to JSON and back) and [`docs`] (what was written about a component). [`base`] stands beside them: components that are made from
//! one that ran. A room uses only rooms after it in that list, `bindings` and [`error`].

pub mod base;
mod bindings;
mod blocking;
mod call;
pub mod compile;
mod denial_log;
mod descriptors;
mod disk;
pub mod docs;
pub mod egress;
pub mod engine;
pub mod error;
#[doc(hidden)]
pub mod fuzzing;
mod grant;
mod hold;
mod host;
pub mod module;
mod policy;
pub mod registry;
mod revocation;
pub mod value;

pub use compile::{compiler_process, debug_file};
pub use disk::{Storage, remove_tree, same_directory};
pub use egress::{Resolve, SystemResolver};
pub use engine::{Compiler, CompilerProcess, Engine, EngineConfig, EngineLoad, PoolUse};
pub use error::LoadError;
pub use grant::ReservedPath;
pub use module::counters::Counters;
pub use module::extractor::{DocumentFormat, ExtractedText, Extraction, ExtractionError};
pub use module::shield::{Screening, ScreeningPlace, ScreeningVerdict};
pub use module::{Module, ModuleKind};
pub use policy::{
    ModulePolicy, PinError, PinFolder, Pinning, Policy, ReservedInGrant, ServerNames,
};
pub use registry::folder::is_slot;
pub use registry::snapshot::FailedModule;
pub use registry::{LoadEvent, Registry};
