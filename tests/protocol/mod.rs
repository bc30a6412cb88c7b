//! The rules of PROTOCOL.md, a file a section.

mod advisors;
mod approval;
mod client_calls;
mod costs;
mod fallback;
mod instances;
mod leaks;
mod messages;
mod meta;
mod modules;
mod plans;
mod processes;
mod record;
mod run_loop;
mod scheduling;
mod schema;
mod shields;
mod sub_agents;
mod support;
mod tools;
mod variables;
mod window;
