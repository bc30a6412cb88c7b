//! Runs of a server that is gone, where others that live share its database.

use super::{ask, host, scripted, streamed, until, written};
use crate::mission::jobs;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::endpoint::{Endpoint, Reply};
use support::host::{Host, finish};
use support::postgres::Cluster;
use support::records::Records;
use support::server::{Server, ServerSentEvent, recorded_numbers};
use support::transcript::{answers, calls};

/// Servers that share a database: the state folder, or the cluster.
struct SharedDatabase {
    host: Host,
    cluster: Option<Cluster>,
}

impl SharedDatabase {
    fn serve(&self, endpoint: &Endpoint) -> Server {
        self.serve_with(endpoint, &[])
    }

    fn serve_with(&self, endpoint: &Endpoint, arguments: &[&str]) -> Server {
        let url = endpoint.base_url();
        let arguments = [&["--base-url", &url, "--model", "m"], arguments].concat();
        Server::start_with(&self.host, &arguments, &borrowed(&self.variables()))
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let url = self.cluster.iter().map(Cluster::url);
        url.map(|url| ("TOOLHOLD_DATABASE_URL", url)).collect()
    }

    fn replays(&self, run: &str) {
        let mut replay = self.host.command(&["runs", "replay", run]);
        let replayed = finish(replay.envs(self.variables()).output().unwrap());
        assert_eq!(replayed.code, Some(0), "{replayed:?}");
    }
}

fn borrowed<'a>(variables: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    variables.iter().map(|(k, v)| (*k, v.as_str())).collect()
}

/// PostgreSQL, where there is one.
fn on_postgres(config: &str) -> Option<SharedDatabase> {
    let cluster = Cluster::start()?;
    Some(SharedDatabase {
        host: host(config),
        cluster: Some(cluster),
    })
}

fn on_sqlite(config: &str) -> SharedDatabase {
    SharedDatabase {
        host: host(config),
        cluster: None,
    }
}

/// SQLite, and PostgreSQL where there is one.
fn databases(config: &str) -> Vec<SharedDatabase> {
    let mut all = vec![on_sqlite(config)];
    all.extend(on_postgres(config));
    all
}

fn count(events: &[ServerSentEvent], kind: &str) -> usize {
    events.iter().filter(|sent| sent.event == kind).count()
}

/// Killed with runs in hand, while two others serve: each run goes on in one of them, once.
#[test]
fn runs_of_a_killed_server_go_on_in_one_that_lives() {
    const RUNS: usize = 4;
    for shared in databases("[serve]\nkey_requests_per_minute = 0\n") {
        let endless = (0..RUNS).map(|_| Reply::endless().delayed_ms(0, 50));
        let later = (0..RUNS).map(|_| answers("later"));
        let endpoint = scripted(endless.chain(later));
        let mut first = shared.serve(&endpoint);
        let others = [(); 2].map(|()| shared.serve(&endpoint));
        let runs: Vec<String> = (0..RUNS)
            .map(|number| streamed(&first, &format!("task {number}"), 4))
            .collect();
        first.kill();
        for run in &runs {
            let events = others[0].get(&format!("/v1/runs/{run}/events")).events();
            let done = events.last().unwrap().json();
            assert_eq!(done["output"], "later", "{done} {}", others[0].said());
            let numbers = recorded_numbers(&events);
            assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
            assert_eq!(
                (count(&events, "resumed"), count(&events, "done")),
                (1, 1),
                "{run}"
            );
            shared.replays(run);
        }
        assert_eq!(
            endpoint.requests().len(),
            2 * RUNS,
            "each was asked for once more"
        );
        let said: String = others.iter().map(Server::said).collect();
        assert!(
            said.contains(&runs[0]) && said.contains("a run whose server is gone"),
            "{said}"
        );
    }
}

/// The work of the call is kept elsewhere: the next server asks about it, and does not make the call again.
#[test]
fn a_job_of_a_killed_server_is_waited_for_by_the_next_one() {
    // Longer than it takes to kill the server, so that the next one asks first.
    let Some(host) = jobs::host_that_asks_after(2_000, "") else {
        return;
    };
    let shared = SharedDatabase {
        host,
        cluster: None,
    };
    let call = calls([("job_rust.count_primes", json!({"below": 1_000_000}))]);
    let endpoint = scripted([call, answers("There are 78,498.")]);
    let mut first = shared.serve(&endpoint);
    let run = streamed(&first, "How many primes are below one million?", 1);
    until("its job", || {
        let lines = Records::of(&shared.host).lines(&run);
        let mut lines = lines.iter();
        let is_begun = lines.any(|line| line.contains(r#""event":"job""#));
        is_begun.then_some(())
    });
    first.kill();
    let next = shared.serve(&endpoint);
    let events = next.get(&format!("/v1/runs/{run}/events")).events();
    let done = events.last().unwrap().json();
    assert_eq!(done["output"], "There are 78,498.", "{}", next.said());
    for kind in ["tool_start", "tool_result", "resumed", "done"] {
        assert_eq!(count(&events, kind), 1, "{kind}");
    }
    let result = events.iter().find(|sent| sent.event == "tool_result");
    let result = result.unwrap().json();
    assert_eq!(result["output"], json!({"primes": 78_498}), "{result}");
    assert_eq!(endpoint.requests().len(), 2);
    shared.replays(&run);
}

/// A stopping server releases the runs that do not end in time; a running server resumes them.
#[test]
fn runs_of_a_stopped_server_go_on_in_one_that_lives() {
    for shared in databases("[serve]\ndrain_ms = 0\n") {
        let endpoint = scripted([Reply::endless().delayed_ms(0, 50), answers("later")]);
        let first = shared.serve(&endpoint);
        let other = shared.serve(&endpoint);
        let run = streamed(&first, "t", 4);
        first.signal("TERM");
        let events = other.get(&format!("/v1/runs/{run}/events")).events();
        let done = events.last().unwrap().json();
        assert_eq!(done["output"], "later", "{done} {}", other.said());
        assert_eq!(count(&events, "resumed"), 1);
        shared.replays(&run);
    }
}

/// After a restore, the original server may have ended these runs. So a run goes on when a person asks for it, whether its
/// server was killed or gave it back.
#[test]
fn a_server_that_holds_runs_goes_on_with_those_alone_that_are_asked_for() {
    /// Longer than a takeover without `--hold-runs` takes: 5 s of grace, and two looks.
    const TAKEOVER: Duration = Duration::from_secs(9);
    for shared in databases("[serve]\ndrain_ms = 0\n") {
        let endless = (0..3).map(|_| Reply::endless().delayed_ms(0, 50));
        let later = ["new", "resumed", "after"].map(answers);
        let endpoint = scripted(endless.chain(later));
        let mut first = shared.serve(&endpoint);
        let mut given_back = shared.serve_with(&endpoint, &["--hold-runs"]);
        assert!(given_back.said().contains("no run was left"));
        let runs = [
            streamed(&first, "resumed by its id", 4),
            streamed(&first, "cancelled", 4),
            streamed(&given_back, "given back", 4),
        ];
        first.kill();
        given_back.terminate();

        let mut held = shared.serve_with(&endpoint, &["--hold-runs"]);
        let said = held.said();
        for run in &runs {
            assert!(said.contains(run.as_str()), "{said}");
        }
        assert_eq!(held.post("/v1/agent", &ask("t")).good()["output"], "new");
        std::thread::sleep(TAKEOVER);
        assert_eq!(endpoint.requests().len(), 4, "{}", held.said());
        let state = |server: &Server, run: &str| -> Value {
            server.get(&format!("/v1/runs/{run}")).good()["state"].clone()
        };
        for run in &runs {
            assert_eq!(state(&held, run), "parked", "{}", held.said());
        }

        let resumed = held.post(&format!("/v1/runs/{}/resume", runs[0]), &json!({}));
        assert_eq!(resumed.status, 202, "{resumed:?}");
        let events = held.get(&format!("/v1/runs/{}/events", runs[0])).events();
        assert_eq!(events.last().unwrap().json()["output"], "resumed");
        let mut cancel = shared.host.command(&["runs", "cancel", &runs[1]]);
        let cancelled = finish(cancel.envs(shared.variables()).output().unwrap());
        assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
        assert_eq!(state(&held, &runs[1]), "done");
        assert_eq!(state(&held, &runs[2]), "parked");
        held.terminate();

        // A start without the option releases what is left.
        let server = shared.serve(&endpoint);
        let events = server.get(&format!("/v1/runs/{}/events", runs[2])).events();
        assert_eq!(events.last().unwrap().json()["output"], "after");
        assert_eq!(endpoint.requests().len(), 6, "{}", server.said());
    }
}

/// Maximum seconds from the begin of a freeze to the `resumed` event of another server with the same PostgreSQL.
const MAX_TAKEOVER: Duration = Duration::from_secs(15);

/// Maximum seconds of a takeover on a machine that stood still meanwhile: a server whose looks have a gap watches a lease
/// anew.
const MAX_TAKEOVER_AFTER_STALL: Duration = Duration::from_secs(30);

/// Delay of a thread that only sleeps, from which on the machine counts as one that stood still.
const STALL: Duration = Duration::from_secs(1);

/// Measures the longest delay of a sleeping thread until `is_over`.
fn longest_stall(is_over: &AtomicBool) -> Duration {
    const TICK: Duration = Duration::from_millis(50);
    let mut longest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        std::thread::sleep(TICK);
        longest = longest.max(begun.elapsed().saturating_sub(TICK));
    }
    longest
}

/// Stopped in the middle of its runs, each of which has made a call, and let go on once another server has them.
#[test]
fn runs_of_a_frozen_server_are_taken_over_and_it_writes_no_more() {
    const RUNS: usize = 3;
    let Some(shared) = on_postgres("[serve]\nkey_requests_per_minute = 0\n") else {
        return;
    };
    let call = || calls([("calculator.evaluate", json!({"expression": "2+2"}))]);
    let begun = (0..RUNS).flat_map(|_| [call(), Reply::endless().delayed_ms(0, 50)]);
    let later = (0..RUNS).map(|_| answers("later"));
    let endpoint = scripted(begun.chain(later).chain([answers("new")]));
    let frozen = shared.serve(&endpoint);
    let other = shared.serve(&endpoint);
    let runs: Vec<String> = (0..RUNS)
        .map(|number| {
            let run = streamed(&frozen, &format!("task {number}"), 4);
            let asked = 2 * (number + 1);
            until("the second request", || {
                (endpoint.requests().len() == asked).then_some(())
            });
            run
        })
        .collect();
    let stopped = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    frozen.signal("STOP");
    let is_over = Arc::new(AtomicBool::new(false));
    let stalls = std::thread::spawn({
        let is_over = is_over.clone();
        move || longest_stall(&is_over)
    });
    for run in &runs {
        until("its end", || {
            let shown: Value = other.get(&format!("/v1/runs/{run}")).good();
            (shown["state"] == "done").then_some(())
        });
    }
    is_over.store(true, Ordering::Relaxed);
    let most = if stalls.join().unwrap() < STALL {
        MAX_TAKEOVER
    } else {
        MAX_TAKEOVER_AFTER_STALL
    };
    let events = |server: &Server| -> Vec<Vec<ServerSentEvent>> {
        let path = |run| format!("/v1/runs/{run}/events");
        let events = runs.iter().map(|run| server.get(&path(run)).events());
        events.collect()
    };
    let ids = |events: &[Vec<ServerSentEvent>]| -> Vec<Vec<(String, Value)>> {
        let event = |sent: &ServerSentEvent| (sent.id.clone(), sent.json());
        let of_run = |events: &Vec<ServerSentEvent>| events.iter().map(event).collect();
        events.iter().map(of_run).collect()
    };
    let before = events(&other);
    for events in &before {
        assert_eq!(events.last().unwrap().json()["output"], "later");
        for kind in ["tool_start", "tool_result", "resumed", "done"] {
            assert_eq!(count(events, kind), 1, "{kind}");
        }
        let resumed = events.iter().find(|sent| sent.event == "resumed").unwrap();
        let resumed = Duration::from_millis(resumed.json()["at_ms"].as_u64().unwrap());
        let taken = resumed.saturating_sub(stopped);
        assert!(taken <= most, "{taken:?} of {most:?} {}", other.said());
        let numbers = recorded_numbers(events);
        assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    }

    frozen.signal("CONT");
    // It has stopped its copies once it says so for each run.
    until("the news", || {
        let said = frozen.said();
        let is_told = |run: &String| {
            let mut lines = said.lines().filter(|line| line.contains(run.as_str()));
            lines.any(|line| {
                line.contains("in another process") || line.contains("another process goes on")
            })
        };
        runs.iter().all(is_told).then_some(())
    });
    assert_eq!(
        frozen.post("/v1/agent", &ask("new")).good()["output"],
        "new"
    );
    for server in [&frozen, &other] {
        assert_eq!(ids(&events(server)), ids(&before));
    }
    for run in &runs {
        shared.replays(run);
    }
    let requests = endpoint.requests().len();
    assert_eq!(requests, 3 * RUNS + 1, "each run was asked for once more");
    assert!(
        other.said().contains("renews its lease no more"),
        "{}",
        other.said()
    );
}

/// Approved at once after another server has acknowledged the cancellation: the server that has the run does not know of it
/// by then.
#[test]
fn a_call_that_is_approved_after_a_cancellation_is_not_made() {
    const RUNS: usize = 6;
    let config = "[decisions]\nalways = [\"calculator\"]\n[serve]\nkey_requests_per_minute = 0\n";
    for shared in databases(config) {
        let call = || calls([("calculator.evaluate", json!({"expression": "2+2"}))]);
        let endpoint = scripted((0..RUNS).map(|_| call()));
        let first = shared.serve(&endpoint);
        let other = shared.serve(&endpoint);
        for number in 0..RUNS {
            let run = streamed(&first, &format!("task {number}"), 1);
            let path = format!("/v1/runs/{run}");
            let waiting = until("the call", || {
                let calls = other.get("/v1/approvals").good()["calls"].take();
                let mut calls = calls.as_array()?.iter();
                calls.find(|call| call["run"] == run.as_str()).cloned()
            });
            let cancelled = other.post(&format!("{path}/cancel"), &json!({}));
            assert_eq!(cancelled.status, 202, "{cancelled:?}");
            let id = waiting["call"].as_str().unwrap();
            let approved = json!({"digest": waiting["digest"], "verdict": "approve"});
            other.post(&format!("/v1/approvals/{run}/{id}"), &approved);
            let events = first.get(&format!("{path}/events")).events();
            let done = events.last().unwrap().json();
            assert_eq!(done["reason"], "cancelled", "{done} {}", first.said());
            // A begin that was refused is recorded with the end of the run, as that of a call that was not made.
            let results = events.iter().map(ServerSentEvent::json);
            let results = results.filter(|event| event["event"] == "tool_result");
            let kinds: Vec<Value> = results.map(|end| end["error"]["kind"].clone()).collect();
            assert!(
                kinds.iter().all(|kind| kind == "not_made"),
                "{run}: {kinds:?}"
            );
            assert_eq!(count(&events, "tool_start"), kinds.len(), "{run}");
            shared.replays(&run);
        }
    }
}

/// A server that was frozen still has a copy of the run when it wakes, and a client cancels the run there.
#[test]
fn a_run_that_was_taken_over_is_cancelled_through_the_server_that_wakes() {
    let Some(shared) = on_postgres("[serve]\nkey_requests_per_minute = 0\n") else {
        return;
    };
    let endpoint = scripted([(); 2].map(|()| Reply::endless().delayed_ms(0, 50)));
    let frozen = shared.serve(&endpoint);
    let other = shared.serve(&endpoint);
    let run = streamed(&frozen, "t", 4);
    frozen.signal("STOP");
    until("the takeover", || {
        (endpoint.requests().len() == 2).then_some(())
    });
    frozen.signal("CONT");
    let path = format!("/v1/runs/{run}");
    until("the cancellation", || {
        let answered = frozen.post(&format!("{path}/cancel"), &json!({}));
        (answered.status == 202).then_some(())
    });
    let ended = until("its end", || {
        let shown: Value = other.get(&path).good();
        (shown["state"] == "done").then_some(shown)
    });
    assert_eq!(ended["reason"], "cancelled", "{ended} {}", other.said());
}

/// A client that watches a run of another server sees its reply while it is written, each character once.
#[test]
fn a_reply_is_shown_at_another_server_while_it_is_written() {
    let text = "é🦀 and so on ".repeat(20);
    for shared in databases("[serve]\nkey_requests_per_minute = 0\n") {
        let endpoint = scripted([answers(text.as_str()).delayed_ms(0, 60)]);
        let (first, other) = (shared.serve(&endpoint), shared.serve(&endpoint));
        let run = streamed(&first, "t", 5);
        let events = other.get(&format!("/v1/runs/{run}/events")).events();
        let is_piece = |sent: &&ServerSentEvent| !sent.is_recorded();
        assert!(
            events.iter().filter(is_piece).count() > 1,
            "it came in pieces: {events:?} {}",
            other.said()
        );
        let reply = events.iter().find(|sent| sent.event == "reply").unwrap();
        let reply = &reply.json()["completion"]["content"];
        assert_eq!(written(&events), reply.as_str().unwrap());
        assert_eq!(events.last().unwrap().json()["output"], text.as_str());
        // Nothing of it is left, and what is recorded has it.
        let again = other.get(&format!("/v1/runs/{run}/events")).events();
        assert_eq!(written(&again), written(&events));
        shared.replays(&run);
    }
}

/// A server on SQLite that does nothing for a while is not gone: the system's lock shows that it lives. Nor are runs of
/// people at their terminals.
#[test]
fn a_living_server_keeps_its_runs() {
    let shared = on_sqlite("");
    let endpoint = scripted([Reply::endless().delayed_ms(0, 10_000), answers("other")]);
    let first = shared.serve(&endpoint);
    let other = shared.serve(&endpoint);
    let run = streamed(&first, "t", 2);
    // Until it has written what there is so far: SQLite lets one write at a time.
    std::thread::sleep(Duration::from_secs(1));
    first.signal("STOP");
    std::thread::sleep(Duration::from_secs(9));
    let shown: Value = other.get(&format!("/v1/runs/{run}")).good();
    assert_eq!(shown["state"], "running", "{}", other.said());
    assert_eq!(other.post("/v1/agent", &ask("t")).good()["output"], "other");
    first.signal("CONT");
    until("its end", || {
        first.post(&format!("/v1/runs/{run}/cancel"), &json!({}));
        let shown: Value = first.get(&format!("/v1/runs/{run}")).good();
        (shown["state"] == "done").then_some(())
    });
    assert_eq!(endpoint.requests().len(), 2);
    let events = first.get(&format!("/v1/runs/{run}/events")).events();
    assert_eq!(count(&events, "resumed"), 0);
}
