//! Peers over TLS that stop reading, flood or end early, with modules that help them (docs/security.md, promises 1 to 3 and
//! 8): memory of a connection is bounded, a call ends in time and says why, and nothing of its connections outlives it.
//!
//! The host is a process of its own, so that its memory can be told from the peer's. It trusts the peer's certificate by
//! `SSL_CERT_FILE`, as an operator's host trusts a private authority.

mod peer;

use peer::{Conduct, Peer};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use support::endpoint::{Endpoint, Scenario};
use support::host::Host;
use support::sandbox::repository;
use support::server::Server;
use support::until;

/// Deadline of a call.
const DEADLINE: Duration = Duration::from_secs(3);
/// Time after its deadline within which a call is answered, on a machine with other work.
const GRACE: Duration = Duration::from_secs(2);
/// Maximum growth of the host in bytes.
const GROWTH: u64 = 16 << 20;

/// A host whose module `fetch` may reach some peers.
struct Trial {
    server: Server,
    /// Answers every request at once.
    good: Peer,
    _host: Host,
    _endpoint: Endpoint,
}

impl Trial {
    fn against(peers: &[&Peer]) -> Self {
        let good = Peer::start(ANSWERS);
        let host = Host::new();
        host.ship("calculator");
        let component = repository().join("tests/components/fetch/fetch.wasm");
        let component = std::fs::read(component).expect("built");
        host.write("modules/fetch.wasm", component);
        let origins = peers.iter().copied().chain([&good]).map(|peer| {
            let origin = peer.origin();
            format!("{{ origin = \"{origin}\", private = true, methods = [\"GET\", \"POST\"] }}")
        });
        let origins = origins.collect::<Vec<_>>().join(", ");
        let deadline = DEADLINE.as_millis();
        // Without a fallback no model is listed: that connection would be one of those that are counted.
        host.write(
            "toolhold.toml",
            format!(
                "[fallback]\nenabled = false\n[modules]\npinning = \"never\"\n[module.fetch]\nhttp = [{origins}]\n\
                 limits = {{ timeout_ms = {deadline}, fuel = 0, http_requests = 256, http_concurrent = 32, \
                 http_request_bytes = 16777216 }}\n"
            ),
        );
        let endpoint = Endpoint::start(Scenario::new([]));
        let url = endpoint.base_url();
        let roots = peer::certificate();
        let server = Server::start_with(
            &host,
            &["--base-url", &url, "--model", "m"],
            &[("SSL_CERT_FILE", roots.to_str().unwrap())],
        );
        let trial = Self {
            server,
            good,
            _host: host,
            _endpoint: endpoint,
        };
        // Memory of the first calls stays.
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| trial.fetches());
            }
        });
        trial.is_well();
        trial
    }

    /// The answer to a call, and the time until it came.
    fn call(&self, tool: &str, arguments: Value) -> (Value, Duration) {
        let asked = Instant::now();
        let body = json!({"arguments": arguments});
        let answer = self.server.post(&format!("/v1/tools/{tool}"), &body).good();
        (answer, asked.elapsed())
    }

    fn pour(&self, peer: &Peer, how: Pouring) -> (Value, Duration) {
        let how = json!({"bodies": how.bodies, "header": how.header, "size": how.size, "flush": how.flush,
            "writes": how.writes, "milliseconds": how.time.as_millis(), "finish": how.finish});
        self.call("fetch.pour", json!({"url": peer.origin(), "how": how}))
    }

    /// The module reaches another peer.
    fn fetches(&self) {
        let how = Pouring {
            time: Duration::ZERO,
            size: 1,
            ..Pouring::default()
        };
        let (answer, _) = self.pour(&self.good, how);
        assert_eq!(answer["result"][1], json!(["200"]), "{answer}");
    }

    /// Another tool is answered at once, and so is the same module with another peer.
    fn is_well(&self) {
        let (answer, took) = self.call("calculator.evaluate", json!({"expression": "6*7"}));
        assert_eq!(answer["result"]["value"], "42", "{answer}");
        assert!(took < GRACE, "another tool took {took:?}");
        let asked = Instant::now();
        self.fetches();
        assert!(
            asked.elapsed() < GRACE,
            "another peer took {:?}",
            asked.elapsed()
        );
    }

    /// Returns the result of `work`, and the most bytes that the host had meanwhile on top of those before.
    fn grown<T>(&self, work: impl FnOnce() -> T) -> (T, u64) {
        let before = self.server.resident_bytes();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = before;
                while !is_over.load(SeqCst) {
                    most = most.max(self.server.resident_bytes());
                    sleep(Duration::from_millis(10));
                }
                most - before
            });
            let done = work();
            is_over.store(true, SeqCst);
            (done, watch.join().unwrap())
        })
    }
}

/// Arguments of `fetch.pour`.
#[derive(Debug, Clone, Copy)]
struct Pouring {
    bodies: u32,
    header: u32,
    size: u32,
    flush: bool,
    writes: u64,
    time: Duration,
    finish: bool,
}

impl Default for Pouring {
    /// Empty writes to one body, for longer than a call lasts.
    fn default() -> Self {
        Self {
            bodies: 1,
            header: 1,
            size: 0,
            flush: false,
            writes: u64::MAX,
            time: 2 * DEADLINE,
            finish: true,
        }
    }
}

/// Answers one request, and reads its body.
const ANSWERS: Conduct = |connection| {
    connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
    connection.read_to_end();
    Ok(())
};
/// Takes the head of a request and nothing more.
const STALLS: Conduct = |connection| connection.stall();
/// Answers while the request's body still goes out, and reads nothing of that.
const ANSWERS_AND_STALLS: Conduct = |connection| {
    connection.send(b"HTTP/1.1 200 OK\r\n\r\n")?;
    connection.stall()
};

#[test]
fn a_module_speaks_http_1_to_a_peer_that_offers_more() {
    let trial = Trial::against(&[]);
    assert!(trial.good.accepted() > 0);
    assert_eq!(trial.good.notes(), [""; 0]);
}

/// Writes of no byte, with and without a flush, of one byte and of many, for longer than the call lasts.
#[test]
fn writes_to_a_peer_that_stops_reading_are_not_kept() {
    let peers = [STALLS, ANSWERS_AND_STALLS].map(Peer::start);
    let trial = Trial::against(&peers.iter().collect::<Vec<_>>());
    let ways = [
        (0, false),
        (0, true),
        (1, false),
        (7, true),
        (16_384, false),
    ];
    let pours = peers.iter().flat_map(|peer| {
        ways.map(|(size, flush)| {
            let how = Pouring {
                bodies: 8,
                size,
                flush,
                ..Pouring::default()
            };
            (peer, how)
        })
    });
    let pours: Vec<_> = pours.collect();
    let (answers, grown) = trial.grown(|| {
        thread::scope(|scope| {
            let calls = pours
                .iter()
                .map(|(peer, how)| scope.spawn(|| trial.pour(peer, *how)));
            let calls: Vec<_> = calls.collect();
            let ended = calls.into_iter().map(|call| call.join().unwrap());
            ended.collect::<Vec<_>>()
        })
    });
    for ((_, how), (answer, took)) in pours.iter().zip(&answers) {
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(error.contains("deadline of 3000 ms"), "{how:?}: {answer}");
        assert!(*took < DEADLINE + GRACE, "{how:?}: {took:?}");
    }
    assert!(grown < GROWTH, "{} MiB more", grown >> 20);
    trial.is_well();
}

/// Eight calls with 32 requests each, of 60 KB: 15 MB of heads, and 256 connections.
#[test]
fn requests_that_are_let_go_of_leave_nothing() {
    let peer = Peer::start(STALLS);
    let trial = Trial::against(&[&peer]);
    let how = Pouring {
        bodies: 32,
        header: 60_000,
        size: 1,
        writes: 1,
        time: Duration::from_millis(20),
        finish: false,
        ..Pouring::default()
    };
    let before = trial.server.open_sockets();
    let ((), grown) = trial.grown(|| {
        for _ in 0..8 {
            trial.pour(&peer, how);
        }
    });
    assert!(peer.accepted() > 32, "{} connections", peer.accepted());
    until("their connections are closed", || {
        (trial.server.open_sockets() <= before).then_some(())
    });
    assert!(grown < GROWTH, "{} MiB more", grown >> 20);
    trial.is_well();
}

/// A peer that reads again, such as after a restart, is reached by the next call.
#[test]
fn a_connection_that_stalls_is_not_used_by_later_calls() {
    let peer = Peer::start(|connection| {
        if connection.number == 1 {
            return connection.stall();
        }
        ANSWERS(connection)
    });
    let trial = Trial::against(&[&peer]);
    let how = Pouring {
        size: 16_384,
        ..Pouring::default()
    };
    let (answer, _) = trial.pour(&peer, how);
    assert!(answer["error"].is_string(), "{answer}");
    let how = Pouring {
        time: Duration::ZERO,
        ..Pouring::default()
    };
    let (answer, took) = trial.pour(&peer, how);
    assert_eq!(answer["result"][1], json!(["200"]), "{took:?} {answer}");
}

/// A peer could take an unfinished body for whole if it had the last chunk, `0`.
#[test]
fn the_body_of_a_call_that_ends_is_cut_and_not_ended() {
    let peer = Peer::start(|connection| {
        let is_whole = connection.read_to_end() == b"0\r\n\r\n";
        connection.note(if is_whole { "whole" } else { "cut" });
        Ok(())
    });
    let trial = Trial::against(&[&peer]);
    let how = Pouring {
        bodies: 32,
        size: 1,
        writes: 1,
        ..Pouring::default()
    };
    for _ in 0..2 {
        trial.pour(&peer, how);
    }
    until("all connections are over", || {
        (peer.notes().len() >= 64).then_some(())
    });
    assert_eq!(peer.notes(), ["cut"; 64]);
}

/// Bytes that a peer sends again and again.
const FLOODS: &[(&str, Conduct)] = &[
    ("heads that continue", |c| {
        c.flood(b"HTTP/1.1 100 Continue\r\n\r\n")
    }),
    ("early hints", |c| {
        c.flood(b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n")
    }),
    ("fields", |c| {
        c.send(b"HTTP/1.1 200 OK\r\n")?;
        c.flood(b"a: b\r\n")
    }),
    ("one field", |c| {
        c.send(b"HTTP/1.1 200 OK\r\na: ")?;
        c.flood(b"b")
    }),
    ("chunks of one byte", |c| {
        c.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
        c.flood(b"1\r\nx\r\n")
    }),
    ("an extension of a chunk", |c| {
        c.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;")?;
        c.flood(b"x")
    }),
    ("trailers", |c| {
        c.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n")?;
        c.flood(b"a: b\r\n")
    }),
    ("bytes behind the end", |c| {
        c.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
        c.flood(b"x")
    }),
    ("frames of HTTP/2", |c| {
        c.flood(&[0, 0, 0, 4, 0, 0, 0, 0, 0])
    }),
];

/// Three at the same time, so that the peers leave a processor to the host.
#[test]
fn floods_are_bounded_and_end_with_their_call() {
    for floods in FLOODS.chunks(3) {
        let peers: Vec<_> = floods
            .iter()
            .map(|(_, flood)| Peer::start(*flood))
            .collect();
        let trial = Trial::against(&peers.iter().collect::<Vec<_>>());
        // Not files: the database opens one for each of a few readers, when there is something to read.
        let before = trial.server.open_sockets();
        let hold = |peer: &Peer| {
            let arguments = json!({"url": peer.origin(), "count": 1, "milliseconds": 1_000});
            trial.call("fetch.hold", arguments)
        };
        let (answers, grown) = trial.grown(|| {
            thread::scope(|scope| {
                let calls = peers.iter().map(|peer| scope.spawn(|| hold(peer)));
                let calls: Vec<_> = calls.collect();
                let ended = calls.into_iter().map(|call| call.join().unwrap());
                ended.collect::<Vec<_>>()
            })
        });
        for ((name, _), (answer, took)) in floods.iter().zip(&answers) {
            assert!(*took < DEADLINE + GRACE, "{name}: {took:?}");
            assert!(
                answer["error"].is_string() || answer["result"].is_array(),
                "{name}: {answer}"
            );
        }
        assert!(grown < GROWTH, "{} MiB more", grown >> 20);
        until("the connections are closed", || {
            (trial.server.open_sockets() <= before).then_some(())
        });
        trial.is_well();
    }
}
