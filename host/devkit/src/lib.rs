//! Tools for authors and operators: modules from templates ([`scaffold`]) and from their source ([`build`]),
//! tests of modules ([`module_test`]), evaluations ([`eval`]), capacity plans ([`capacity`]), and a demonstration
//! without an endpoint ([`demo`]).
//!
//! The crate knows no terminal: the command line shows its results.
//!
//! ```
//! use toolhold_devkit::build::Language;
//!
//! assert!("rust".parse::<Language>().is_ok());
//! ```
#![forbid(unsafe_code)]

/// The text of a file below `templates/`.
macro_rules! template {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/", $path))
    };
}

pub mod build;
pub mod capacity;
pub mod demo;
pub mod eval;
pub mod module_test;
pub mod scaffold;
