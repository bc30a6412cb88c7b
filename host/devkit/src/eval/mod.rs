//! Evaluation: gives the same tasks several times to one or more configurations, and counts the results.
//!
//! `set` is the file of tasks and `expect` its expectations; `bench` makes one attempt in a folder and a
//! state of its own; `schedule` orders the attempts; `seen` summarises one; `report` counts, with the
//! formulas of `statistics`.

pub mod arm;
pub mod bench;
pub mod capture;
pub mod expect;
mod numbers;
pub mod report;
pub mod schedule;
pub mod seen;
pub mod set;
pub mod statistics;
pub mod store;

/// The tasks over the shipped modules.
pub const SHIPPED: &str = include_str!("tasks.toml");
