//! The rules of PROTOCOL.md, a file a section.

mod approval;
mod messages;
mod modules;
mod processes;
mod record;
mod run_loop;
mod scheduling;
mod schema;
mod scripted;
mod sub_agents;
mod support;
mod tools;
mod variables;
