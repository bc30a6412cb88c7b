//! The rules of the agent protocol, one file a section of PROTOCOL.md.

mod modules;
mod sub_agents;
