//! Tools for authors and operators: modules from templates ([`scaffold`]) and from their source ([`build`]),
//! evaluations ([`eval`]), capacity plans ([`capacity`]), and a demonstration without an endpoint ([`demo`]).
//!
//! It knows no terminal: what a person sees of it is up to the command line.
//!
//! ```
//! use toolhold_devkit::build::Language;
//!
//! assert!("rust".parse::<Language>().is_ok());
//! ```
#![forbid(unsafe_code)]

pub mod build;
pub mod capacity;
pub mod demo;
pub mod eval;
pub mod scaffold;
