//! Calls of a tool of an MCP server of others, which never answers. Runs and plans call such tools, and so do modules in a
//! run; MCP clients and `modules call` have none.

use super::plans::{self, outlast_the_time_of_plans, stop_plans};
use super::runs::{
    cut_direct_calls, kill_servers_of_direct_calls, kill_servers_of_runs,
    outlast_the_time_of_the_tool, revoke_keys, stop_runs, take_back_during_calls,
};
use super::{CONFIG, CutTool, host_with, spin};
use crate::mcp::configuration;
use support::host::Host;

const HANG: CutTool = CutTool {
    name: "s.hang",
    make_host: host,
    // Of the server, whose table is the last one. It has this time to start, too.
    short: "timeout_ms = 4_000\n",
    late: "did not answer within 4000 ms",
    granting: "",
    take_back: revoke,
    is_nested_in_plans: false,
};

/// A host whose module may call the server's tool, and who approved the server.
fn host(config: &str) -> Host {
    let base = CONFIG.replace("[\"bad\"]", "[\"s\"]");
    let server = configuration(&[], "tools = [\"hang\"]\noffer = true");
    let host = host_with(spin(), &format!("{base}{server}{config}"));
    let approved = host.run(&["mcp", "approve", "s", "--yes"]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    host
}

/// Revokes the server's pin.
fn revoke(host: &Host) {
    let revoked = host.run(&["mcp", "revoke", "s"]);
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
}

#[test]
fn calls_of_a_foreign_server_end_with_their_run() {
    stop_runs(HANG);
}

#[test]
fn direct_calls_of_a_foreign_server_end_with_their_run() {
    cut_direct_calls(HANG);
}

#[test]
fn calls_of_a_foreign_server_end_though_toolholds_server_is_killed() {
    kill_servers_of_runs(HANG);
}

#[test]
fn direct_calls_of_a_foreign_server_end_though_toolholds_server_is_killed() {
    kill_servers_of_direct_calls(HANG);
}

#[test]
fn calls_of_a_foreign_server_end_when_its_pin_is_revoked() {
    take_back_during_calls(HANG);
}

#[test]
fn calls_of_a_foreign_server_end_when_its_time_is_over() {
    outlast_the_time_of_the_tool(HANG);
}

#[test]
fn calls_of_a_foreign_server_end_when_the_key_is_revoked() {
    revoke_keys(HANG);
}

#[test]
fn plans_that_run_out_of_time_end_calls_of_a_foreign_server() {
    outlast_the_time_of_plans(HANG);
}

#[test]
fn plans_that_a_person_stops_end_calls_of_a_foreign_server() {
    stop_plans(HANG, &plans::STOPS[..2]);
}

#[test]
fn plans_that_are_killed_or_whose_pin_is_revoked_end_calls_of_a_foreign_server() {
    stop_plans(HANG, &plans::STOPS[2..]);
}
