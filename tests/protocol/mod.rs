//! The agent protocol, one file a section of PROTOCOL.md: each rule is a test or a case of one.

mod advisors;
mod instances;
mod meta;
mod plans;
mod script;
