//! A backup that is made while a server runs, and the server that is restored from it.

use super::grants::host;
use super::{answers, ask, scripted, serve, streamed};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use support::endpoint::Reply;
use support::host::{Finished, Host, finish};
use support::postgres::Cluster;
use support::server::Server;

/// An empty state folder, but for the key of the cache that all tests share: compiling is not what they test.
fn new_state(host: &Host) -> PathBuf {
    host.write("restored/cache.key", [7; 32]);
    host.path().join("restored")
}

/// Runs a command with another state folder.
fn run_in(host: &Host, state: &str, arguments: &[&str]) -> Finished {
    let mut command = host.command(arguments);
    finish(
        command
            .env("TOOLHOLD_PATHS__STATE", state)
            .output()
            .unwrap(),
    )
}

/// Has the probe remember something; what it has kept by then.
fn remember(server: &Server, key: &str) -> Value {
    let arguments = json!({"key": key, "value": "1"});
    let body = json!({"arguments": arguments});
    let mut answered = server.post("/v1/tools/probe.remember", &body).good();
    answered["result"].take()
}

#[test]
fn a_restored_server_has_approvals_grants_keys_and_values_and_holds_the_runs() {
    let host = host("[serve]\nkey_requests_per_minute = 0\n");
    let granted = host.run(&["modules", "grant", "probe", "--key-value"]);
    assert_eq!(granted.code, Some(0), "{granted:?}");
    let created = host.run(&["keys", "create", "ann"]);
    let key = created.stdout.trim();
    let endless = Reply::endless().delayed_ms(0, 50);
    let endpoint = scripted([answers("done"), endless, answers("new")]);
    let mut server = serve(&host, &endpoint);
    server.use_key(key);
    assert_eq!(remember(&server, "a"), json!(["a"]));
    let ended = server.post("/v1/agent", &ask("ends")).good();
    let open = streamed(&server, "is open", 4);

    let file = host.path().join("backup.tar");
    let name = file.to_str().unwrap();
    let made = host.run(&["backup", name]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.stdout.contains("the database"), "{made:?}");
    assert!(made.stdout.contains("toolhold.toml"), "{made:?}");
    // Each file of a state folder is known: it is kept, or it passes.
    assert!(!made.stderr.contains("left out:"), "{made:?}");
    assert!(
        made.stderr.contains("not in it: the modules folder"),
        "{made:?}"
    );
    let mode = file.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(host.run(&["backup", name]).code, Some(1), "it is there");
    // What is made after the backup is not in it.
    assert_eq!(remember(&server, "later"), json!(["a", "later"]));
    server.kill();

    let state = new_state(&host);
    let state = state.to_str().unwrap();
    let restored = run_in(&host, state, &["restore", name]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    let approved = restored.stdout.lines().last().unwrap();
    assert!(approved.contains("probe"), "{restored:?}");
    assert!(
        restored.stderr.contains("serve --hold-runs"),
        "{restored:?}"
    );
    let again = run_in(&host, state, &["restore", name]);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("empty state folder"), "{again:?}");

    let url = endpoint.base_url();
    let arguments = ["--base-url", &url, "--model", "m", "--hold-runs"];
    let variables = [("TOOLHOLD_PATHS__STATE", state)];
    let mut server = Server::start_with(&host, &arguments, &variables);
    assert!(server.said().contains(&open), "{}", server.said());
    assert_eq!(server.get("/v1/runs").status, 401, "keys are needed");
    server.use_key(key);
    assert_eq!(remember(&server, "b"), json!(["a", "b"]));
    let shown = |run: &str| server.get(&format!("/v1/runs/{run}")).good();
    let ended = shown(ended["id"].as_str().unwrap());
    assert_eq!(ended["answer"]["output"], "done");
    assert_eq!(shown(&open)["state"], "parked");
    assert_eq!(server.post("/v1/agent", &ask("t")).good()["output"], "new");
    assert_eq!(endpoint.requests().len(), 3, "{}", server.said());
    let verified = run_in(&host, state, &["audit", "verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

/// The database by a dump, and the files by `backup`.
#[test]
fn a_dump_of_postgresql_and_the_files_come_back_together() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let host = host("");
    host.run(&["modules", "grant", "probe", "--key-value"]);
    let endpoint = scripted([Reply::endless().delayed_ms(0, 50), answers("new")]);
    let url = endpoint.base_url();
    let arguments = ["--base-url", &url, "--model", "m", "--hold-runs"];
    let database = cluster.url();
    let variables = [("TOOLHOLD_DATABASE_URL", database.as_str())];
    let mut server = Server::start_with(&host, &arguments, &variables);
    assert_eq!(remember(&server, "a"), json!(["a"]));
    let open = streamed(&server, "is open", 4);
    let file = host.path().join("files.tar");
    let name = file.to_str().unwrap();
    let copy = cluster.restored("copied");
    let mut backup = host.command(&["backup", name]);
    let made = finish(backup.envs(variables).output().unwrap());
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.stderr.contains("pg_dump"), "{made:?}");
    server.kill();

    let state = new_state(&host);
    let variables = [
        ("TOOLHOLD_DATABASE_URL", copy.as_str()),
        ("TOOLHOLD_PATHS__STATE", state.to_str().unwrap()),
    ];
    let mut restore = host.command(&["restore", name]);
    let restored = finish(restore.envs(variables).output().unwrap());
    assert_eq!(restored.code, Some(0), "{restored:?}");
    let server = Server::start_with(&host, &arguments, &variables);
    assert!(server.said().contains(&open), "{}", server.said());
    assert_eq!(remember(&server, "b"), json!(["a", "b"]));
    let shown = server.get(&format!("/v1/runs/{open}")).good();
    assert_eq!(shown["state"], "parked", "{}", server.said());
    assert_eq!(server.post("/v1/agent", &ask("t")).good()["output"], "new");
    assert_eq!(endpoint.requests().len(), 2);
}

/// Approvals hold for the place of the modules: a backup that is restored beside others says so.
#[test]
fn a_backup_that_is_restored_elsewhere_says_that_the_modules_wait() {
    let from = host("");
    from.run(&["modules", "grant", "probe", "--key-value"]);
    let file = from.path().join("backup.tar");
    let made = from.run(&["backup", file.to_str().unwrap()]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let to = Host::new();
    let restored = to.run(&["restore", file.to_str().unwrap()]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    let approved = restored.stdout.lines().last().unwrap();
    assert!(approved.ends_with("none"), "{restored:?}");
    let modules = from.path().join("modules");
    assert!(
        restored.stderr.contains(modules.to_str().unwrap()),
        "{restored:?}"
    );
    // A file of another origin, and one that is no file.
    for name in ["modules", "toolhold.toml"] {
        let path = from.path().join(name);
        let refused = Host::new().run(&["restore", path.to_str().unwrap()]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
    }
}
