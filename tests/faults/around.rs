//! Faults of what stands beside a server: collectors, MCP servers, keyrings, shields, peers of tools.

use super::{FaultRow, ask, here, test, try_rows};
use std::net::TcpListener;
use support::collector::Collector;
use support::endpoint::{Endpoint, ReplyOrder, Scenario};
use support::host::Host;
use support::server::Server;
use support::transcript::answers;
use support::until;

/// A server that sends traces to an address at which nothing listens at first.
pub(super) struct AroundBench {
    server: Server,
    collector: String,
    _endpoint: Endpoint,
    _host: Host,
}

impl AroundBench {
    fn new() -> Self {
        let host = Host::new();
        let scenario = Scenario::new([answers("traced")]).in_order(ReplyOrder::Repeat);
        let endpoint = Endpoint::start(scenario);
        let free = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let collector = free.unwrap().to_string();
        let url = endpoint.base_url();
        let server = Server::start_with(
            &host,
            &["--base-url", &url, "--model", "m"],
            &[
                (
                    "OTEL_EXPORTER_OTLP_ENDPOINT",
                    &format!("http://{collector}"),
                ),
                ("OTEL_BSP_SCHEDULE_DELAY", "100"),
            ],
        );
        Self {
            server,
            collector,
            _endpoint: endpoint,
            _host: host,
        }
    }

    fn runs(&self) {
        let answer = self.server.post("/v1/agent", &ask("t"));
        assert_eq!(answer.good()["output"], "traced");
    }

    fn the_collector_comes(&mut self) {
        self.runs();
        let collector = Collector::start_at(&self.collector);
        until("a trace", || {
            self.runs();
            (!collector.spans().is_empty()).then_some(())
        });
    }

    fn the_collector_stays_away(&mut self) {
        for _ in 0..20 {
            self.runs();
        }
        assert_eq!(self.server.get("/readyz").status, 200);
        assert_eq!(self.server.terminate(), Some(0), "{}", self.server.said());
    }
}

pub(super) const ROWS: &[FaultRow<AroundBench>] = &[
    FaultRow {
        what: "The collector of traces is away.",
        passes: here(
            "Traces of later runs reach it.",
            AroundBench::the_collector_comes,
        ),
        stays: here(
            "Runs do not wait for it, and the server still stops in time.",
            AroundBench::the_collector_stays_away,
        ),
    },
    FaultRow {
        what: "An MCP server does not start, or does not answer.",
        passes: test(
            "Checked again, its tools are there; one whose description changed waits for a person.",
            "mcp/mod.rs",
            "a_description_that_changes_behind_the_users_back_disables_the_tools",
        ),
        stays: test(
            "The run lacks its tools and nothing else.",
            "mcp/mod.rs",
            "a_server_that_is_no_use_costs_the_run_its_tools_and_nothing_else",
        ),
    },
    FaultRow {
        what: "A keyring is locked, or a secret missing.",
        passes: test(
            "What a locked keyring has is not taken for gone.",
            "keyring/mod.rs",
            "what_a_locked_keyring_hides_is_not_taken_for_gone",
        ),
        stays: test(
            "The module that needs it is absent. All others work.",
            "pinning.rs",
            "a_secret_that_is_missing_is_its_modules_fault_alone",
        ),
    },
    FaultRow {
        what: "A shield fails.",
        passes: test(
            "Where the operator says so, the text passes, and the run reports it.",
            "shields.rs",
            "a_failing_shield_may_let_pass_and_the_run_reports_it",
        ),
        stays: test(
            "It blocks, and the run reports it.",
            "shields.rs",
            "a_hostile_shield_is_a_reported_failure",
        ),
    },
    FaultRow {
        what: "The peer of a tool's HTTP request stalls or fails.",
        passes: test(
            "Later calls do not use its connection.",
            "https/mod.rs",
            "a_connection_that_stalls_is_not_used_by_later_calls",
        ),
        stays: test(
            "The tool is told which failure it was.",
            "egress/mod.rs",
            "transport_failures_have_their_own_codes",
        ),
    },
];

#[test]
fn faults_of_what_stands_beside_a_server() {
    try_rows(&mut AroundBench::new(), ROWS);
}
