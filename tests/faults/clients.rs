//! Faults of clients, and crowds of them.

use super::{FaultRow, ask, here, test, try_rows};
use std::collections::VecDeque;
use std::io::Read as _;
use std::net::TcpStream;
use std::process::Command;
use std::sync::Barrier;
use std::thread;
use support::endpoint::{Endpoint, ReplyOrder, Scenario};
use support::host::Host;
use support::scale;
use support::server::Server;
use support::transcript::answers;

/// Few places, and room in the queue for a crowd.
const CROWDED: &str = "[serve]\nconcurrent_runs = 8\nkey_concurrent_runs = 8\nwaiting_runs = 1200\n\
    key_requests_per_minute = 0\nqueue_timeout_ms = 120000\n";

pub(super) struct ClientsBench {
    server: Server,
    endpoint: Endpoint,
    _host: Host,
}

impl ClientsBench {
    fn new() -> Self {
        let host = Host::new();
        host.write("toolhold.toml", CROWDED);
        let scenario = Scenario::new([answers("served")]).in_order(ReplyOrder::Repeat);
        let endpoint = Endpoint::start(scenario);
        let url = endpoint.base_url();
        Self {
            server: Server::start(&host, &["--base-url", &url, "--model", "m"]),
            endpoint,
            _host: host,
        }
    }

    /// Runs that begin at the same time wait for their places: each is answered, and asked of the model once.
    fn a_crowd_of_runs(&mut self) {
        let runs = scale(60, 500);
        let before = self.endpoint.requests().len();
        let server = &self.server;
        let address = server.address().to_owned();
        let begin = Barrier::new(runs);
        let answered = thread::scope(|scope| {
            let clients: Vec<_> = (0..runs)
                .map(|_| {
                    scope.spawn(|| {
                        begin.wait();
                        curl(&address)
                    })
                })
                .collect();
            let outputs = clients.into_iter().map(|client| client.join().unwrap());
            outputs.filter(|text| text.contains("served")).count()
        });
        assert_eq!(answered, runs, "{}", server.said());
        assert_eq!(self.endpoint.requests().len() - before, runs);
    }

    /// Connections that send nothing leave room for other clients.
    fn idle_connections(&mut self) {
        let idle = scale(400, 5_000);
        // This process has an end of each.
        let raised = Command::new("prlimit")
            .args(["--nofile=8192:", "--pid", &std::process::id().to_string()])
            .status();
        assert!(raised.expect("prlimit").success());
        let before = self.server.open_files();
        let address = self.server.address().trim_start_matches("http://");
        let mut silent: VecDeque<TcpStream> = VecDeque::new();
        for _ in 0..idle {
            silent.push_back(TcpStream::connect(address).expect("a connection"));
        }
        let answer = self.server.post("/v1/agent", &ask("anybody there?"));
        assert_eq!(answer.good()["output"], "served");
        drop(silent);
        support::until("the descriptors", || {
            (self.server.open_files() <= before + 8).then_some(())
        });
    }
}

/// Asks on a connection of its own, and returns all of the answer.
fn curl(address: &str) -> String {
    use std::io::Write as _;
    let body = ask("anybody there?").to_string();
    let mut stream = TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    write!(
        stream,
        "POST /v1/agent HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

pub(super) const ROWS: &[FaultRow<ClientsBench>] = &[
    FaultRow {
        what: "More runs begin at once than have places.",
        passes: here(
            "They wait in turn, and each is answered.",
            ClientsBench::a_crowd_of_runs,
        ),
        stays: test(
            "After `serve.queue_timeout_ms`, or with a full queue, a run is refused: `503` or `429`, with `Retry-After`.",
            "serve/mod.rs",
            "runs_wait_for_a_place_and_no_longer_than_they_may",
        ),
    },
    FaultRow {
        what: "Thousands of connections are silent.",
        passes: here(
            "All others are served, and the descriptors are free again.",
            ClientsBench::idle_connections,
        ),
        stays: test(
            "Where all places are taken, new clients get `503` and `Retry-After`.",
            "serve/no_place.rs",
            "requests_without_a_place_are_refused_with_503",
        ),
    },
    FaultRow {
        what: "Clients send half a request.",
        passes: test(
            "No other client waits.",
            "serve/faults.rs",
            "half_requests_block_no_other_client",
        ),
        stays: test(
            "Their connections are closed for others, and the log says so.",
            "serve/faults.rs",
            "half_open_connections_keep_nobody_out",
        ),
    },
    FaultRow {
        what: "A client reads nothing.",
        passes: test(
            "It gets everything once it reads.",
            "serve/faults.rs",
            "a_client_that_does_not_read_delays_no_other_client",
        ),
        stays: test(
            "What it has not read takes no more than `serve.unsent_bytes`, and no other key waits.",
            "serve/unread.rs",
            "what_nobody_reads_is_bounded_and_no_other_key_waits",
        ),
    },
    FaultRow {
        what: "A client goes away.",
        passes: test(
            "It gets the rest of the events when it comes back.",
            "serve/mod.rs",
            "events_come_as_they_happen_and_a_lost_connection_loses_none",
        ),
        stays: test(
            "A document that was not sent whole leaves nothing.",
            "serve/knowledge.rs",
            "a_client_that_goes_away_leaves_no_half_document",
        ),
    },
    FaultRow {
        what: "A client times out and asks again.",
        passes: test(
            "Its second request gets the run of the first.",
            "serve/retries.rs",
            "a_client_that_times_out_twice_makes_one_append",
        ),
        stays: test(
            "The run ends as `serve.on_disconnect` says.",
            "serve/retries.rs",
            "a_run_ends_with_its_client_as_the_operator_says",
        ),
    },
    FaultRow {
        what: "A client asks for the same a second time.",
        passes: test(
            "With an `Idempotency-Key` there is one run, and one answer.",
            "serve/mod.rs",
            "a_repeated_request_under_a_key_runs_once",
        ),
        stays: test(
            "A turn that is asked for again does not begin beside the first.",
            "serve/database.rs",
            "no_turn_that_is_asked_for_again_begins_beside_another",
        ),
    },
    FaultRow {
        what: "A key becomes known to others.",
        passes: test(
            "Its secret is replaced, and its owner stays.",
            "serve/keys.rs",
            "a_secret_is_replaced_and_the_owner_stays",
        ),
        stays: test(
            "Guesses of keys are throttled.",
            "serve/mod.rs",
            "guessing_keys_is_throttled",
        ),
    },
    FaultRow {
        what: "One key asks too much.",
        passes: test(
            "It is refused with `429` until its minute is over.",
            "serve/mod.rs",
            "a_key_asks_no_more_than_its_share",
        ),
        stays: test(
            "Lists that it does not read wait for room.",
            "serve/unread_crowd.rs",
            "lists_that_wait_for_room_are_not_there_already",
        ),
    },
    FaultRow {
        what: "Requests are no requests.",
        passes: test(
            "Each fault is told in one form.",
            "serve/mod.rs",
            "faults_are_told_in_one_form",
        ),
        stays: test(
            "No request makes the server fail.",
            "serve/clients.rs",
            "no_request_makes_the_server_fail",
        ),
    },
];

#[test]
fn faults_of_clients() {
    try_rows(&mut ClientsBench::new(), ROWS);
}
