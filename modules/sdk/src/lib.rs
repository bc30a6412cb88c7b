//! Writes a Toolhold tool module in Rust.
//!
//! A tool is a function from a documented arguments type to a documented result type; this crate
//! derives both JSON Schemas from the types, so that what the model is told cannot drift from what
//! the code accepts, and exports the `toolhold:module` world.
//!
//! ```ignore
//! use toolhold_guest::{Annotations, Error, Tool};
//!
//! toolhold_guest::export!(tools);
//!
//! fn tools() -> Vec<Tool> {
//!     vec![
//!         Tool::new("double", "Doubles an integer.", double)
//!             .annotations(Annotations::READ_ONLY | Annotations::IDEMPOTENT),
//!     ]
//! }
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Double {
//!     /// The integer to double.
//!     number: i32,
//! }
//!
//! fn double(arguments: Double) -> Result<i64, Error> {
//!     Ok(i64::from(arguments.number) * 2)
//! }
//! ```
//!
//! [`Tool`] is the place to read first; [`Error`] says whose move it is when a call fails;
//! [`current_call`] is for the few tools that need to know more of their call than its arguments;
//! `http` (a feature of this crate) sends requests to what the module was granted;
//! [`check`] holds a module's own examples against its code in a native `cargo test`. [`shield`] is for
//! modules that screen what others say, and has an export of its own, [`export_shield!`]; [`extractor`] is for those that
//! take text out of documents, with [`export_extractor!`].

pub mod check;
pub mod current_call;
pub mod extractor;
#[cfg(feature = "http")]
pub mod http;
mod schema;
pub mod shield;
mod tool;

pub use bindings::toolhold::module::{
    key_value, knowledge, log, other_tools, progress, secrets, types::Annotations,
    types::ErrorClass,
};
pub use serde_json::{Value, json};
pub use tool::{Error, Tool};

/// What `wit-bindgen` makes of the world. Modules touch it through [`export!`] alone.
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "tool-module",
        pub_export_macro: true,
        export_macro_name: "export_world",
        default_bindings_module: "toolhold_guest::bindings",
    });
}

/// What [`export!`] expands to: the two exports of the world over a list of tools.
#[doc(hidden)]
pub mod exports {
    pub use crate::bindings::exports::toolhold::module::tools::Guest;
    pub use crate::bindings::toolhold::module::types::{Invocation, Output, Tool, ToolError};
    pub use crate::tool::{call, list};
}

/// Exports the tools that `fn() -> Vec<Tool>` returns. Once in a module.
#[macro_export]
macro_rules! export {
    ($tools:path) => {
        struct ToolholdModule;

        impl $crate::exports::Guest for ToolholdModule {
            fn list_tools() -> Vec<$crate::exports::Tool> {
                $crate::exports::list($tools())
            }

            fn call(
                invocation: $crate::exports::Invocation,
            ) -> Result<$crate::exports::Output, $crate::exports::ToolError> {
                $crate::exports::call($tools(), &invocation)
            }
        }

        $crate::bindings::export_world!(ToolholdModule with_types_in $crate::bindings);
    };
}

// Behind a feature, and last: the components of modules without jobs stay as they are.
#[cfg(feature = "jobs")]
pub mod jobs;
