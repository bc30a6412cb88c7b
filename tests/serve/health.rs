//! Health of a server, as probes and its service manager see it.

use super::{answers, ask, host, scripted, serve, until};
use serde_json::{Value, json};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use support::endpoint::{Endpoint, Scenario};
use support::host::{Host, finish};
use support::postgres::Cluster;
use support::server::{Answered, Server};

const PARTS: [&str; 5] = ["serving", "database", "endpoints", "modules", "disk"];

/// The state of a part.
fn state(answered: &Answered, part: &str) -> String {
    let state = answered.json()["checks"][part]["state"].clone();
    state.as_str().expect("a state").to_owned()
}

/// A refusal with its reason, and with the state of each part.
fn refused(answered: &Answered, part: &str, why: &str) {
    assert_eq!(answered.status, 503, "{answered:?}");
    assert!(answered.headers.contains_key("retry-after"), "{answered:?}");
    let told = answered.json();
    assert_eq!(told["ready"], false, "{told}");
    assert_eq!(told["error"]["type"], "overloaded_error", "{told}");
    let message = told["error"]["message"].as_str().unwrap();
    assert!(message.contains(why), "{told}");
    for other in PARTS {
        let is_it = other == part;
        assert_eq!(state(answered, other) == "failed", is_it, "{other}: {told}");
    }
}

fn ready(server: &Server) -> Value {
    until("readiness", || {
        let answered = server.get("/readyz");
        (answered.status == 200).then(|| answered.json())
    })
}

#[test]
fn a_ready_server_tells_the_state_of_each_part_and_since_when() {
    let (host, endpoint) = (host(""), scripted([]));
    let server = serve(&host, &endpoint);
    let first = server.get("/readyz").good();
    assert_eq!(first["ready"], true, "{first}");
    assert!(first.get("error").is_none(), "{first}");
    assert_eq!(
        (&first["active"], &first["modules"]),
        (&json!(0), &json!(2))
    );
    for part in ["serving", "database", "endpoints", "modules"] {
        assert_eq!(first["checks"][part]["state"], "ok", "{part}: {first}");
    }
    // Of the machine that the test runs on.
    let disk = rustix::fs::statvfs(host.path()).unwrap();
    let is_short = disk.f_bavail < disk.f_blocks / 10;
    let expected = if is_short { "degraded" } else { "ok" };
    until("a look at the disk", || {
        (state(&server.get("/readyz"), "disk") == expected).then_some(())
    });
    let again = server.get("/readyz").good();
    for part in ["serving", "database", "endpoints", "modules"] {
        let check = &first["checks"][part];
        let since = check["since"].as_str().unwrap();
        assert!(since.contains('T') && since.ends_with('Z'), "{since}");
        assert_eq!(again["checks"][part], *check, "nothing changed");
        let detail = check["detail"].as_str().unwrap();
        assert!(!detail.is_empty() && detail.len() < 200, "{detail}");
    }
}

/// With a model that the configuration names, nothing else has asked the endpoint by then.
#[test]
fn a_server_whose_endpoint_never_answered_is_not_ready() {
    let host = host("[endpoints.default]\nattempts = 2\nbackoff_ms = 10\nbreaker_failures = 2\n");
    let gone = scripted([]);
    let (address, url) = (gone.address(), gone.base_url());
    drop(gone);
    let server = Server::start(&host, &["--base-url", &url, "--model", "m"]);
    let not_yet = server.get("/readyz");
    refused(&not_yet, "endpoints", "no agent can run");
    // Without a key, neither the agent nor the endpoint is named.
    for secret in [&address, "default"] {
        assert!(!not_yet.text.contains(secret), "{not_yet:?}");
    }
    until("why", || {
        server.said().contains("has not answered yet").then_some(())
    });
    let is_ready = |value: &str| {
        let metrics = server.get("/metrics").text;
        let line = metrics
            .lines()
            .find(|line| line.starts_with("toolhold_ready"));
        line.expect("the gauge").ends_with(value)
    };
    assert!(is_ready(" 0"));

    let endpoint = Endpoint::start_at(&address, Scenario::new([answers("here")]));
    let since = ready(&server)["checks"]["endpoints"]["since"].clone();
    assert_ne!(
        since,
        not_yet.json()["checks"]["endpoints"]["since"],
        "another state"
    );
    assert!(is_ready(" 1"));
    assert_eq!(server.post("/v1/agent", &ask("t")).good()["output"], "here");

    // One that goes away later: runs wait for it, and no restart and no balancer brings it back.
    drop(endpoint);
    assert_ne!(server.post("/v1/agent", &ask("t")).status, 200);
    let degraded = server.get("/readyz");
    assert_eq!(degraded.status, 200, "{degraded:?}");
    assert_eq!(degraded.json()["resting_endpoints"], 1, "{degraded:?}");
    assert_eq!(state(&degraded, "endpoints"), "degraded");
}

/// No balancer takes all replicas out because an operator changed a limit, or an address.
#[test]
fn a_reload_of_an_endpoint_leaves_a_server_ready() {
    let host = host("");
    let (endpoint, gone) = (scripted([]), scripted([]));
    let (url, other) = (endpoint.base_url(), gone.base_url());
    let config = |url: &str, places: u32| {
        format!(
            "[endpoints.default]\nbase_url = \"{url}\"\nmodel = \"m\"\nconcurrent_requests = {places}\n"
        )
    };
    host.write("own.toml", config(&url, 2));
    let server = Server::start(&host, &["--config", "own.toml"]);
    assert_eq!(state(&server.get("/readyz"), "endpoints"), "ok");
    // What has not answered by now does not answer later.
    drop((endpoint, gone));
    let before = server.said().len();
    host.write("own.toml", config(&url, 3));
    until("the reload", || {
        server.said()[before..].contains("reloaded:").then_some(())
    });
    let limited = server.get("/readyz");
    assert_eq!(limited.status, 200, "{limited:?}");
    assert_eq!(state(&limited, "endpoints"), "ok");

    host.write("own.toml", config(&other, 3));
    until("the other address", || {
        let moved = server.get("/readyz");
        assert_eq!(moved.status, 200, "{moved:?}");
        (state(&moved, "endpoints") == "degraded").then_some(())
    });
}

/// The database alone, without the approvals beside it, is not what was backed up.
#[test]
fn a_server_none_of_whose_modules_was_ever_approved_is_not_ready() {
    let (host, endpoint) = (host(""), scripted([]));
    host.write("own.toml", "[modules]\npinning = \"always\"\n");
    let url = endpoint.base_url();
    let arguments = ["--config", "own.toml", "--base-url", &url, "--model", "m"];
    let approve = |state: &Path, module: &str| {
        let mut command = host.command(&[
            "--config", "own.toml", "modules", "approve", module, "--yes",
        ]);
        let done = command.env("TOOLHOLD_PATHS__STATE", state).output();
        let done = finish(done.unwrap());
        assert_eq!(done.code, Some(0), "{done:?}");
    };
    let state_of = |name: &str| {
        host.write(&format!("{name}/cache.key"), [7; 32]);
        host.path().join(name)
    };
    let before = state_of("before");
    approve(&before, "calculator");
    approve(&before, "text");
    let start = |state: &Path| {
        let variables = [("TOOLHOLD_PATHS__STATE", state.to_str().unwrap())];
        Server::start_with(&host, &arguments, &variables)
    };
    let mut server = start(&before);
    assert_eq!(ready(&server)["checks"]["modules"]["state"], "ok");
    assert_eq!(server.terminate(), Some(0));

    let restored = state_of("restored");
    for entry in std::fs::read_dir(&before).unwrap().flatten() {
        let name = entry.file_name();
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("toolhold.db"))
        {
            std::fs::copy(entry.path(), restored.join(name)).unwrap();
        }
    }
    let server = start(&restored);
    let not_yet = server.get("/readyz");
    refused(&not_yet, "modules", "2 wait for approval");
    assert!(!not_yet.text.contains("calculator"), "{not_yet:?}");
    approve(&restored, "calculator");
    let approved = ready(&server);
    assert_eq!(approved["modules"], 1, "{approved}");
    assert_eq!(approved["checks"]["modules"]["state"], "degraded");

    // What is taken back on purpose takes the server out of no balancer.
    let mut revoke = host.command(&["--config", "own.toml", "modules", "revoke", "calculator"]);
    let revoked = revoke.env("TOOLHOLD_PATHS__STATE", &restored).output();
    let revoked = finish(revoked.unwrap());
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    let without = until("its end", || {
        let told = server.get("/readyz");
        (told.json()["modules"] == 0).then_some(told)
    });
    assert_eq!(without.status, 200, "{without:?}");
    assert_eq!(state(&without, "modules"), "degraded");
}

/// Messages that a service manager was sent.
#[derive(Clone)]
struct HeardMessages(Arc<Mutex<Vec<String>>>);

impl HeardMessages {
    /// Listens at this path until the test ends.
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        let heard = Self(Arc::default());
        let told = heard.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(length) = socket.recv(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                told.0.lock().unwrap().push(text);
            }
        });
        heard
    }

    /// Number of messages that begin so.
    fn count(&self, begin: &str) -> usize {
        let heard = self.0.lock().unwrap();
        heard.iter().filter(|text| text.starts_with(begin)).count()
    }

    fn hears(&self, begin: &str, times: usize) {
        until(begin, || (self.count(begin) >= times).then_some(()));
    }
}

/// The socket of a service manager, in the folder of the host.
fn manager(host: &Host) -> (HeardMessages, String) {
    let path = host.path().join("notify");
    let manager = HeardMessages::at(&path);
    (manager, path.to_str().unwrap().to_owned())
}

#[test]
fn a_service_manager_is_told_of_the_start_of_reloads_and_of_the_stop() {
    const BEAT: Duration = Duration::from_millis(200);
    let (host, endpoint) = (host(""), scripted([]));
    let (manager, socket) = manager(&host);
    let url = endpoint.base_url();
    let arguments = ["--base-url", &url, "--model", "m"];
    let variables = [
        ("NOTIFY_SOCKET", socket.as_str()),
        ("WATCHDOG_USEC", "400000"),
    ];
    let mut server = Server::start_with(&host, &arguments, &variables);
    manager.hears("READY=1", 1);
    manager.hears("WATCHDOG=1", 3);
    manager.hears(
        "STATUS=ready: 1 of 1 agents can run; 2 of 2 modules may run",
        1,
    );
    server.signal("HUP");
    manager.hears("RELOADING=1\nMONOTONIC_USEC=", 1);
    manager.hears("READY=1", 2);

    // A frozen process gives no sign of life.
    server.signal("STOP");
    thread::sleep(BEAT);
    let beats = manager.count("WATCHDOG=1");
    thread::sleep(BEAT * 5);
    assert_eq!(manager.count("WATCHDOG=1"), beats);
    server.signal("CONT");
    manager.hears("WATCHDOG=1", beats + 1);
    assert_eq!(manager.count("STOPPING=1"), 0);
    assert_eq!(server.terminate(), Some(0));
    manager.hears("STOPPING=1", 1);
}

#[test]
fn a_watchdog_of_another_process_is_not_answered() {
    let (host, endpoint) = (host(""), scripted([]));
    let (manager, socket) = manager(&host);
    let url = endpoint.base_url();
    let arguments = ["--base-url", &url, "--model", "m"];
    let variables = [
        ("NOTIFY_SOCKET", socket.as_str()),
        ("WATCHDOG_USEC", "1000"),
        ("WATCHDOG_PID", "1"),
    ];
    let _server = Server::start_with(&host, &arguments, &variables);
    manager.hears("STATUS=ready", 1);
    assert_eq!(manager.count("WATCHDOG"), 0);
}

/// Waits until a server whose database was awaited serves, and makes a run.
fn serves(server: &mut Server) {
    until("its service", || {
        server.said().contains("serving:").then_some(())
    });
    server.connect_anew();
    assert_eq!(ready(server)["checks"]["database"]["state"], "ok");
    assert_eq!(server.post("/v1/agent", &ask("t")).good()["output"], "here");
}

#[test]
fn a_server_that_starts_without_its_database_waits_for_it() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let (host, endpoint) = (host(""), scripted([answers("here")]));
    let (manager, socket) = manager(&host);
    let (url, database) = (endpoint.base_url(), cluster.url());
    let arguments = ["--base-url", &url, "--model", "m"];
    let variables = [
        ("TOOLHOLD_DATABASE_URL", database.as_str()),
        ("NOTIFY_SOCKET", socket.as_str()),
        ("WATCHDOG_USEC", "400000"),
    ];
    cluster.stop();
    let mut server = Server::start_waiting(&host, &arguments, &variables);
    assert_eq!(server.get("/healthz").text, "ok");
    let not_yet = server.get("/readyz");
    assert_eq!(not_yet.status, 503, "{not_yet:?}");
    assert_eq!(state(&not_yet, "database"), "failed");
    for refused in [
        &not_yet,
        &server.get("/v1/models"),
        &server.post("/v1/agent", &ask("t")),
    ] {
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
        let message = refused.json()["error"]["message"].clone();
        let message = message.as_str().unwrap();
        assert!(message.contains("waits for its database"), "{message}");
        assert!(!refused.text.contains("127.0.0.1"), "{refused:?}");
    }
    // The start of the unit does not time out.
    manager.hears("READY=1", 1);
    manager.hears("STATUS=waits for its database", 1);
    // It is not ended for what it waits for.
    let beats = manager.count("WATCHDOG=1");
    manager.hears("WATCHDOG=1", beats + 3);
    let said = server.said();
    assert!(
        said.contains("the database postgres at 127.0.0.1"),
        "{said}"
    );

    cluster.go_on();
    serves(&mut server);
    assert_eq!(server.terminate(), Some(0));
}

/// A database that takes connections and answers nothing looks from outside as during a long migration.
#[test]
fn a_server_whose_database_is_slow_to_open_answers_meanwhile() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let (host, endpoint) = (host(""), scripted([answers("here")]));
    let (manager, socket) = manager(&host);
    let (url, database) = (endpoint.base_url(), cluster.url());
    let arguments = ["--base-url", &url, "--model", "m"];
    let variables = [
        ("TOOLHOLD_DATABASE_URL", database.as_str()),
        ("NOTIFY_SOCKET", socket.as_str()),
    ];
    cluster.freeze();
    let mut server = Server::start_waiting(&host, &arguments, &variables);
    assert_eq!(server.get("/healthz").text, "ok");
    let not_yet = server.get("/readyz");
    assert_eq!(not_yet.status, 503, "{not_yet:?}");
    assert_eq!(state(&not_yet, "database"), "failed");
    manager.hears("READY=1", 1);
    manager.hears("STATUS=opens its database", 1);

    cluster.thaw();
    serves(&mut server);
}

#[test]
fn a_server_that_waits_for_its_database_can_be_stopped() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let (host, endpoint) = (host(""), scripted([]));
    let (url, database) = (endpoint.base_url(), cluster.url());
    let arguments = ["--base-url", &url, "--model", "m"];
    let variables = [("TOOLHOLD_DATABASE_URL", database.as_str())];
    cluster.stop();
    let mut server = Server::start_waiting(&host, &arguments, &variables);
    assert_eq!(server.terminate(), Some(0));
}

/// No wait makes a database that is not there on a server that answers.
#[test]
fn an_unknown_database_ends_the_start_at_once() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let host = host("");
    let unknown = cluster.url().replace("/postgres", "/nothing");
    let mut command = host.command(&["serve", "--listen", "127.0.0.1:0", "--model", "m"]);
    let ended = command.env("TOOLHOLD_DATABASE_URL", &unknown).output();
    let ended = finish(ended.unwrap());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("cannot be opened"), "{ended:?}");
}
