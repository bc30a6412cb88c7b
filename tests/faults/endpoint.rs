//! Faults of the model's endpoint.

use super::{FaultRow, ask, here, test, try_rows};
use serde_json::json;
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::Host;
use support::server::{Answered, Server};
use support::transcript::answers;

/// Two attempts, and times that end soon.
const QUICK: &str = "[endpoints.default]\nattempts = 2\nbackoff_ms = 10\nbreaker_failures = 0\nmax_rest_ms = 200\n\
    first_token_timeout_ms = 3000\nidle_timeout_ms = 1000\n";

pub(super) struct EndpointBench {
    server: Server,
    address: String,
    endpoint: Option<Endpoint>,
    _host: Host,
}

impl EndpointBench {
    fn new() -> Self {
        let host = Host::new();
        host.write("toolhold.toml", QUICK);
        let endpoint = Endpoint::start(Scenario::new([]));
        let url = endpoint.base_url();
        Self {
            server: Server::start(&host, &["--base-url", &url, "--model", "m"]),
            address: endpoint.address(),
            endpoint: Some(endpoint),
            _host: host,
        }
    }

    /// Exchanges the endpoint for one with these replies, and asks.
    fn asks(&mut self, replies: impl IntoIterator<Item = Reply>) -> Answered {
        self.endpoint = None;
        self.endpoint = Some(Endpoint::start_at(&self.address, Scenario::new(replies)));
        self.server.post("/v1/agent", &ask("anybody there?"))
    }

    fn requests(&self) -> usize {
        self.endpoint.as_ref().map_or(0, |it| it.requests().len())
    }

    /// The first reply fails, and the second one is the answer.
    fn recovers(&mut self, fault: Reply) {
        let answer = self.asks([fault, answers("here")]);
        assert_eq!(answer.good()["output"], "here");
        assert_eq!(self.requests(), 2);
    }

    /// The run ends with this status and a message that contains `says`, after this number of requests; the next run works.
    fn ends(&mut self, fault: &dyn Fn() -> Reply, status: u16, says: &str, requests: usize) {
        let answer = self.asks([fault(), fault()]);
        assert_eq!(answer.status, status, "{answer:?}");
        let error = answer.json()["error"]["message"].clone();
        let message = error.as_str().unwrap_or_default();
        assert!(message.contains(says), "{says}: {answer:?}");
        assert_eq!(self.requests(), requests, "{answer:?}");
        let run = self.server.get("/v1/runs").good()["runs"][0].clone();
        assert_ne!(run["reason"], "output", "{run}");
        self.is_well();
    }

    fn is_well(&mut self) {
        let answer = self.asks([answers("well")]);
        assert_eq!(answer.good()["output"], "well");
        assert_eq!(self.server.get("/readyz").status, 200);
    }
}

fn refuses(status: u16) -> Reply {
    Reply::error(status, json!({"error": {"message": "out of order"}}))
}

/// JSON with status 200 that is no completion.
fn other_json() -> Reply {
    Reply {
        content_type: Some("application/json".into()),
        ..Reply::raw(r#"{"status": "starting"}"#)
    }
}

fn breaks_at_once() -> Reply {
    answers("here").truncated_after(0)
}

fn breaks_in_the_middle() -> Reply {
    answers("a reply that breaks off").truncated_after(400)
}

/// Its pieces come within the time for the first one, and not within that between two.
fn stalls() -> Reply {
    answers("a reply that stalls").delayed_ms(0, 1_400)
}

pub(super) const ROWS: &[FaultRow<EndpointBench>] = &[
    FaultRow {
        what: "No process listens at its address.",
        passes: test(
            "The request is sent again, and the run goes on.",
            "serve/faults.rs",
            "an_endpoint_that_comes_back_is_asked_again",
        ),
        stays: test(
            "The run ends within 3 s, and says so: `503` and `Retry-After`. Then runs end at once.",
            "serve/faults.rs",
            "an_endpoint_that_accepts_no_connection_is_told_soon_and_then_at_once",
        ),
    },
    FaultRow {
        what: "It is away when the server starts.",
        passes: test(
            "The agent is offered as soon as its endpoint answers.",
            "serve/faults.rs",
            "a_server_waits_for_the_endpoint_that_it_starts_without",
        ),
        stays: test(
            "`/readyz` and new runs are `503`. Tools are listed and called.",
            "serve/faults.rs",
            "a_server_waits_for_the_endpoint_that_it_starts_without",
        ),
    },
    FaultRow {
        what: "It answers `503`.",
        passes: here("The request is sent again.", |bench| {
            bench.recovers(refuses(503));
        }),
        stays: here("The run ends with its words: `502`.", |bench| {
            bench.ends(&|| refuses(503), 502, "out of order", 2);
        }),
    },
    FaultRow {
        what: "It answers `500`.",
        passes: here("The request is sent again.", |bench| {
            bench.recovers(refuses(500));
        }),
        stays: test(
            "The run ends with its words: `502`.",
            "serve/rests.rs",
            "a_run_that_ends_with_an_error_of_the_endpoint_is_no_success",
        ),
    },
    FaultRow {
        what: "It asks for a rest (`429` with `Retry-After`).",
        passes: test(
            "No run asks it meanwhile. One request probes it at the latest after `max_rest_ms`.",
            "serve/rests.rs",
            "a_long_rest_ends_with_a_request_that_probes",
        ),
        stays: test(
            "Runs end with its `429` and, during the rest, with `503`, both with `Retry-After`. `toolhold endpoints` shows the rest, and can end it.",
            "serve/rests.rs",
            "a_rest_is_told_and_can_be_cleared",
        ),
    },
    FaultRow {
        what: "It keeps failing.",
        passes: test(
            "After 10 s one request tries it.",
            "routes.rs",
            "an_endpoint_that_keeps_failing_is_left_alone_and_tried_again",
        ),
        stays: test(
            "It is left alone by all runs. The log has a line for each change.",
            "serve/log.rs",
            "a_failing_endpoint_is_told_in_json_and_so_is_all_else_of_stderr",
        ),
    },
    FaultRow {
        what: "A balancer answers with a page and `200`.",
        passes: test(
            "The request is sent again, and the reply counted as unusable.",
            "serve/rests.rs",
            "a_page_of_a_balancer_is_asked_again_and_counted",
        ),
        stays: here("The run ends, and says what came: `502`.", |bench| {
            bench.ends(&Reply::html, 502, "text/html", 2);
        }),
    },
    FaultRow {
        what: "It answers `200` with JSON that is no completion.",
        passes: here("The request is sent again.", |bench| {
            bench.recovers(other_json());
        }),
        stays: here("The run ends, and says so: `502`.", |bench| {
            bench.ends(&other_json, 502, "", 2);
        }),
    },
    FaultRow {
        what: "The connection breaks before the reply.",
        passes: here("The request is sent again.", |bench| {
            bench.recovers(breaks_at_once());
        }),
        stays: here("The run ends, and says so: `502`.", |bench| {
            bench.ends(&breaks_at_once, 502, "", 2);
        }),
    },
    FaultRow {
        what: "The connection breaks in the middle of a reply.",
        passes: here("The model is asked again.", |bench| {
            bench.recovers(breaks_in_the_middle());
        }),
        stays: here(
            "The run ends after a few such replies, and says so: `502`.",
            |bench| {
                let answer = bench.asks((0..20).map(|_| breaks_in_the_middle()));
                assert_eq!(answer.status, 502, "{answer:?}");
                assert!(answer.text.contains("in the middle"), "{answer:?}");
                assert!(bench.requests() < 10, "{}", bench.requests());
                bench.is_well();
            },
        ),
    },
    FaultRow {
        what: "It takes the request and is silent.",
        passes: here(
            "After `first_token_timeout_ms` the request is sent again.",
            |bench| bench.recovers(Reply::never()),
        ),
        stays: here("The run ends, and names the key: `502`.", |bench| {
            bench.ends(&Reply::never, 502, "first_token_timeout_ms", 2);
        }),
    },
    FaultRow {
        what: "It stalls in the middle of a reply.",
        passes: here(
            "After `idle_timeout_ms` the model is asked again.",
            |bench| bench.recovers(stalls()),
        ),
        stays: here("The run ends, and names the key: `502`.", |bench| {
            let answer = bench.asks((0..20).map(|_| stalls()));
            assert_eq!(answer.status, 502, "{answer:?}");
            assert!(answer.text.contains("idle_timeout_ms"), "{answer:?}");
            bench.is_well();
        }),
    },
    FaultRow {
        what: "It refuses the key (`401`).",
        passes: here(
            "The run ends at once with `401`; the next run works.",
            |bench| {
                bench.ends(&|| refuses(401), 401, "out of order", 1);
            },
        ),
        stays: test(
            "Each run ends at once with its reason.",
            "run.rs",
            "every_failure_of_the_endpoint_has_its_reason_and_exit_code",
        ),
    },
    FaultRow {
        what: "A reply has no end.",
        passes: test(
            "A client that leaves or cancels ends it.",
            "serve/faults.rs",
            "runs_of_other_processes_are_watched_and_cancelled",
        ),
        stays: test(
            "It is cut at its bound, and the endpoint is free again.",
            "model.rs",
            "an_endless_answer_is_cut_and_the_server_freed",
        ),
    },
    FaultRow {
        what: "One member of a pool dies.",
        passes: test(
            "The run goes on at another member.",
            "routes.rs",
            "a_run_goes_on_when_its_replica_dies",
        ),
        stays: test(
            "The run ends, and says once how each member failed.",
            "routes.rs",
            "how_an_endpoint_failed_is_said_once",
        ),
    },
];

#[test]
fn faults_of_the_endpoint() {
    try_rows(&mut EndpointBench::new(), ROWS);
}
