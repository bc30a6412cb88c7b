//! What happens to a server's runs when the PostgreSQL that they are kept in fails.

use super::{ask, host, scripted, streamed, until};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::endpoint::{Endpoint, Reply};
use support::host::{Host, finish};
use support::postgres::Cluster;
use support::server::{Server, ServerSentEvent, recorded_numbers};
use support::transcript::answers;

fn serve(host: &Host, endpoint: &Endpoint, cluster: &Cluster) -> Server {
    let url = endpoint.base_url();
    let arguments = ["--base-url", &url, "--model", "m"];
    Server::start_with(
        host,
        &arguments,
        &[("TOOLHOLD_DATABASE_URL", &cluster.url())],
    )
}

fn replays(host: &Host, cluster: &Cluster, run: &str) {
    let mut replay = host.command(&["runs", "replay", run]);
    let replay = replay.env("TOOLHOLD_DATABASE_URL", cluster.url());
    let replayed = finish(replay.output().unwrap());
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

fn count(events: &[ServerSentEvent], kind: &str) -> usize {
    events.iter().filter(|sent| sent.event == kind).count()
}

/// A database that crashes and comes back within the time that it is tried: runs wait for it, and lose nothing
/// of what it had said yes to.
#[test]
fn runs_outlast_a_database_that_comes_back() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let host = host("");
    let long = "words ".repeat(200);
    let endpoint = scripted([
        answers("kept"),
        answers(long.as_str()).delayed_ms(0, 15),
        answers("new"),
    ]);
    let server = serve(&host, &endpoint, &cluster);
    let kept = server.post("/v1/agent", &ask("first")).good()["id"].clone();
    let running = streamed(&server, "second", 20);
    cluster.stop();
    let told = until("the news", || {
        let ready = server.get("/readyz");
        (ready.status == 503).then_some(ready)
    });
    assert!(told.text.contains("cannot be reached"), "{told:?}");
    assert_eq!(server.get("/healthz").status, 200);
    let asked = Instant::now();
    let refused = server.post("/v1/agent", &ask("third"));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(server.get("/v1/runs").status, 503);
    assert!(asked.elapsed() < Duration::from_secs(5), "at once");
    // Some of what the model writes meanwhile has to wait.
    std::thread::sleep(Duration::from_secs(1));

    cluster.go_on();
    until("readiness", || {
        (server.get("/readyz").status == 200).then_some(())
    });
    let events = server.get(&format!("/v1/runs/{running}/events")).events();
    let done = events.last().unwrap().json();
    assert_eq!(done["output"], long.as_str(), "{done} {}", server.said());
    assert_eq!(count(&events, "resumed"), 0, "it waited");
    replays(&host, &cluster, &running);
    let shown = server.get(&format!("/v1/runs/{}", kept.as_str().unwrap()));
    assert_eq!(shown.good()["answer"]["output"], "kept");
    assert_eq!(
        server.post("/v1/agent", &ask("third")).good()["output"],
        "new"
    );
}

/// A server that does not wait long for its database, and a run on it whose reply takes a few seconds.
fn impatient(cluster: &Cluster) -> (Host, Endpoint, Server, String) {
    let host = host("[storage]\npatience_ms = 500\n");
    let long = "words ".repeat(100);
    let endpoint = scripted([answers(long.as_str()).delayed_ms(0, 50), answers("later")]);
    let server = serve(&host, &endpoint, cluster);
    let run = streamed(&server, "t", 20);
    (host, endpoint, server, run)
}

/// Takes the database away until the run stops for want of it, and brings it back.
fn stays_away(cluster: &Cluster, server: &Server) {
    cluster.stop();
    until("its end", || {
        server.said().contains("can be resumed").then_some(())
    });
    cluster.go_on();
}

/// Waits for the end of a run that went on once.
fn goes_on(server: &Server, run: &str) {
    let events = server.get(&format!("/v1/runs/{run}/events")).events();
    let done = events.last().unwrap().json();
    assert_eq!(done["output"], "later", "{done} {}", server.said());
    assert_eq!(count(&events, "resumed"), 1);
}

/// One that stays away for longer: runs stop, and go on by themselves when it is back.
#[test]
fn runs_that_stopped_for_want_of_a_database_go_on_when_it_is_back() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let (host, _endpoint, server, run) = impatient(&cluster);
    stays_away(&cluster, &server);
    until("readiness", || {
        (server.get("/readyz").status == 200).then_some(())
    });
    goes_on(&server, &run);
    replays(&host, &cluster, &run);
}

/// The first looks at what stopped fail, and a later one does not.
#[test]
fn runs_that_cannot_be_found_at_once_go_on_all_the_same() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let (_host, _endpoint, server, run) = impatient(&cluster);
    // Nothing can be listed without it.
    cluster.execute("ALTER TABLE approvals RENAME TO aside");
    stays_away(&cluster, &server);
    until("a look", || {
        server.said().contains("cannot be found yet").then_some(())
    });
    cluster.execute("ALTER TABLE aside RENAME TO approvals");
    goes_on(&server, &run);
}

/// A run that a living server has by name only, because what took it broke off.
#[test]
fn a_run_that_goes_on_nowhere_is_ended_when_it_is_to_stop() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let hosts = [(); 2].map(|()| host("[serve]\nkey_requests_per_minute = 0\n"));
    let endpoint = scripted([(); 3].map(|()| Reply::endless().delayed_ms(0, 50)));
    let server = serve(&hosts[0], &endpoint, &cluster);
    let mut gone = serve(&hosts[1], &endpoint, &cluster);
    let goes_on = streamed(&server, "first", 4);
    let left = streamed(&gone, "second", 4);
    gone.kill();
    cluster.execute(&format!(
        "UPDATE runs SET cancel_ms = 1, holder = (SELECT holder FROM runs WHERE id = '{goes_on}') \
         WHERE id = '{left}'"
    ));
    let ended = until("its end", || {
        let shown: Value = server.get(&format!("/v1/runs/{left}")).good();
        (shown["state"] == "done").then_some(shown)
    });
    assert_eq!(ended["reason"], "cancelled", "{ended} {}", server.said());
    let other = server.get(&format!("/v1/runs/{goes_on}")).good();
    assert_eq!(other["state"], "running");
}

/// A turn that never came to be, because its server crashed, is asked for again while another goes on.
#[test]
fn no_turn_that_is_asked_for_again_begins_beside_another() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let host = host("");
    let endpoint = scripted([Reply::endless().delayed_ms(0, 50), answers("too early")]);
    let server = serve(&host, &endpoint, &cluster);
    let session = server.post("/v1/sessions", &json!({})).good();
    let session = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    let turns = format!("{session}/turns");
    let mut task = ask("t");
    task["stream"] = true.into();
    let key = [("idempotency-key", "one")];
    server.first_events_with(Method::POST, &turns, Some(&task), &key, 2);
    cluster.execute(
        "UPDATE idempotency SET run = '00000000-0000-0000-0000-000000000001', holder = NULL",
    );
    let refused = server.ask(Method::POST, &turns, Some(&task), &key);
    assert_eq!(refused.status, 409, "{refused:?}");
    let shown: Value = server.get(&session).good();
    assert_eq!(shown["turns"].as_array().unwrap().len(), 1, "{shown}");
    assert_eq!(endpoint.requests().len(), 1);
}

/// A server that others took for dead, because its connection to the database was gone, writes nothing more to
/// the runs that they have taken over.
#[test]
fn a_server_that_was_taken_for_dead_lets_go_of_its_runs() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let hosts = [(); 2].map(|()| host("[serve]\nkey_requests_per_minute = 0\n"));
    let endpoint = scripted([
        Reply::endless().delayed_ms(0, 50),
        answers("later"),
        answers("new"),
    ]);
    let first = serve(&hosts[0], &endpoint, &cluster);
    let run = streamed(&first, "t", 20);
    first.signal("STOP");
    cluster.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE usename = 'toolhold' AND pid <> pg_backend_pid()",
    );
    let second = serve(&hosts[1], &endpoint, &cluster);
    let path = format!("/v1/runs/{run}");
    until("its end elsewhere", || {
        let shown: Value = second.get(&path).good();
        (shown["state"] == "done").then_some(())
    });
    first.signal("CONT");
    until("the news", || {
        first.said().contains("another process").then_some(())
    });
    // It finds its own connections gone, one after the other.
    let events = until("all of it", || {
        let events = first.get(&format!("{path}/events")).events();
        events
            .last()
            .is_some_and(|it| it.event == "done")
            .then_some(events)
    });
    assert_eq!(events.last().unwrap().json()["output"], "later");
    assert_eq!((count(&events, "resumed"), count(&events, "done")), (1, 1));
    let numbers = recorded_numbers(&events);
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    replays(&hosts[0], &cluster, &run);
    until("readiness", || {
        (first.get("/readyz").status == 200).then_some(())
    });
    assert_eq!(first.post("/v1/agent", &ask("t")).good()["output"], "new");
    assert_eq!(
        first.post(&format!("{path}/resume"), &json!({})).status,
        409
    );
}
