//! The rules of the agent protocol, one file a section of PROTOCOL.md.

mod messages;
mod schema;
mod scripted;
mod tools;
mod variables;
