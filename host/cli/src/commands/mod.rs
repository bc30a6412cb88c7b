//! One command a file.

pub mod approvals;
pub mod audit;
pub mod build;
pub mod chat;
pub mod demo;
pub mod doctor;
pub mod endpoint;
pub mod eval;
pub mod generate;
pub mod keys;
pub mod mcp;
pub mod module_flags;
pub mod modules;
pub mod plan;
pub mod plan_capacity;
pub mod policy;
pub mod probe;
pub mod pull;
pub mod record;
pub mod run;
pub mod runs;
pub mod selftest;
pub mod serve;
pub mod serving;
pub mod show_config;
pub mod stats;
