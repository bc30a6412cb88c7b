//! The rules of docs/protocol.md, as the binary and shipped modules keep them. What needs neither is tested
//! in `host/agent/tests/scripted_runs`.

mod instances;
mod modules;
mod plans;
mod processes;
mod sub_agents;
