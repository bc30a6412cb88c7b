//! Components from registries, through the binary and a real registry on this machine.

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Finished, Host, finish};
use support::oci::{self, Access, OciRegistry, RegistryFault, digest};
use support::sandbox::{self, component, repository};
use support::server::Server;
use support::transcript::{answers, calls};
use toolhold_hostile::components as hostile;
use toolhold_sandbox::Policy;

/// Nothing here may take longer, whatever a registry does; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A component with a tool `count`, and `note` in it, so that each is its own content.
fn counter(note: &str) -> Vec<u8> {
    let text = hostile::COMPUTE.replacen(
        "(component",
        &format!("(component (@custom \"note\" \"{note}\")"),
        1,
    );
    component(&text)
}

/// The binary with a cache of its own.
fn command(host: &Host, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = host.command(arguments);
    command.env("TOOLHOLD_PATHS__CACHE", host.path().join("cache"));
    command.envs(variables.iter().copied());
    command
}

fn run_with(host: &Host, arguments: &[&str], variables: &[(&str, &str)]) -> Finished {
    // First, because it builds the binary.
    let mut command = command(host, arguments, variables);
    let start = Instant::now();
    let output = command.output();
    let done = finish(output.expect("the binary runs"));
    assert!(start.elapsed() < PATIENCE, "{arguments:?}: {done:?}");
    assert!(!done.stderr.contains('\u{1b}'), "{done:?}");
    assert!(!format!("{done:?}").contains(oci::PASSWORD), "{done:?}");
    done
}

fn pull(host: &Host, reference: &str) -> Finished {
    run_with(host, &["modules", "pull", reference, "--force"], &[])
}

/// Expects a pull to be refused with these words, and to leave nothing behind.
fn refused(host: &Host, reference: &str, variables: &[(&str, &str)], words: &[&str]) {
    let done = run_with(
        host,
        &["modules", "pull", reference, "--as", "refused"],
        variables,
    );
    assert_eq!(done.code, Some(1), "{done:?}");
    for word in words {
        assert!(done.stderr.contains(word), "{word:?}: {done:?}");
    }
    assert!(files(&host.path().join("modules")).is_empty(), "{done:?}");
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    entries
        .map(|e| name(e).to_string_lossy().into_owned())
        .collect()
}

fn credentials(host: &str) -> [(&'static str, String); 3] {
    [
        ("TOOLHOLD_OCI_HOST", host.to_owned()),
        ("TOOLHOLD_OCI_USERNAME", oci::USERNAME.into()),
        ("TOOLHOLD_OCI_PASSWORD", oci::PASSWORD.into()),
    ]
}

fn borrowed<'a>(variables: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    variables.iter().map(|(k, v)| (*k, v.as_str())).collect()
}

#[test]
fn a_component_is_pulled_by_tag_and_called() {
    let (host, registry) = (Host::new(), OciRegistry::start());
    let bytes = counter("a");
    let pushed = registry.push("tools/my-counter", "1.0", &bytes);
    let reference = registry.reference("tools/my-counter:1.0");
    let done = run_with(&host, &["modules", "pull", &reference, "--json"], &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let whole: Value = serde_json::from_str(&done.stdout).expect("one JSON object");
    assert_eq!(
        (
            &whole["module"],
            &whole["digest"],
            &whole["component"],
            &whole["bytes"]
        ),
        (
            &json!("my_counter"),
            &json!(pushed),
            &json!(digest(&bytes)),
            &json!(bytes.len())
        )
    );
    assert_eq!(whole["pinned"], json!(format!("{reference}@{pushed}")));
    assert_eq!(files(&host.path().join("modules")), ["my_counter.wasm"]);
    let log = host.run(&["audit", "search", "--json"]).stdout;
    assert!(
        log.contains("\"module_uploaded\"") && log.contains(&digest(&bytes)["sha256:".len()..]),
        "{log}"
    );
    let called = run_with(&host, &["modules", "call", "my_counter.count"], &[]);
    assert_eq!(
        (called.code, called.stdout.trim()),
        (Some(0), "2"),
        "{called:?}"
    );

    let again = run_with(&host, &["modules", "pull", &reference], &[]);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("--force"), "{again:?}");
    assert_eq!(pull(&host, &reference).code, Some(0));
    let bad_name = run_with(
        &host,
        &["modules", "pull", &reference, "--as", "../up"],
        &[],
    );
    assert!(
        bad_name.stderr.contains("cannot name a module"),
        "{bad_name:?}"
    );
}

#[test]
fn a_digest_is_asked_for_once_and_a_damaged_cache_is_not_believed() {
    let (host, registry) = (Host::new(), OciRegistry::start());
    let bytes = counter("a");
    let pushed = registry.push("counter", "1.0", &bytes);
    let reference = registry.reference(&format!("counter@{pushed}"));
    assert_eq!(pull(&host, &reference).code, Some(0));
    let asked = registry.requests().len();
    let again = pull(&host, &reference);
    assert!(again.stdout.contains("from the cache"), "{again:?}");
    assert_eq!(registry.requests().len(), asked, "nothing is asked twice");

    let hex = digest(&bytes).replace("sha256:", "");
    let blob = host.path().join("cache/oci/blobs/sha256").join(hex);
    let mut damaged = bytes.clone();
    damaged[20] ^= 1;
    std::fs::write(&blob, &damaged).unwrap();
    let healed = pull(&host, &reference);
    assert_eq!(healed.code, Some(0), "{healed:?}");
    assert!(healed.stderr.contains("damaged"), "{healed:?}");
    assert_eq!(std::fs::read(&blob).unwrap(), bytes);
    assert_eq!(
        std::fs::read(host.path().join("modules/counter.wasm")).unwrap(),
        bytes
    );
}

#[test]
fn a_tag_that_moves_is_followed_and_said() {
    let (host, registry) = (Host::new(), OciRegistry::start());
    let first = registry.push("counter", "latest", &counter("a"));
    let reference = registry.reference("counter");
    assert!(!pull(&host, &reference).stdout.contains("moved"));
    let second = registry.push("counter", "latest", &counter("b"));
    let moved = pull(&host, &reference);
    for word in ["has moved", &first, &second] {
        assert!(moved.stdout.contains(word), "{word}: {moved:?}");
    }
    assert!(!pull(&host, &reference).stdout.contains("moved"));
}

#[test]
fn content_with_another_digest_is_refused() {
    let registry = OciRegistry::start();
    let pushed = registry.push("counter", "1", &counter("a"));
    for (fault, rest, words) in [
        (
            RegistryFault::OtherContent,
            "counter:1".to_owned(),
            &["not what it should be", "the layer"][..],
        ),
        (
            RegistryFault::OtherManifest,
            format!("counter@{pushed}"),
            &["not what it should be", &pushed],
        ),
        (RegistryFault::Truncated, "counter:1".into(), &["try again"]),
    ] {
        let host = Host::new();
        registry.set_fault(fault.clone());
        refused(&host, &registry.reference(&rest), &[], words);
        // What was refused was not kept either.
        let offline = registry.reference(&rest);
        refused(
            &host,
            &offline,
            &[("TOOLHOLD_OCI__OFFLINE", "true")],
            &["offline"],
        );
        registry.set_fault(RegistryFault::None);
        assert_eq!(
            pull(&host, &registry.reference(&rest)).code,
            Some(0),
            "{fault:?}"
        );
    }
}

#[test]
fn oversized_content_is_refused_before_it_is_read() {
    let (host, registry) = (Host::new(), OciRegistry::start());
    let bytes = counter("a");
    registry.push("counter", "1", &bytes);
    let reference = registry.reference("counter:1");
    let blob = registry.put_blob(&bytes);
    registry.put_manifest(
        "huge",
        "1",
        &oci::manifest(oci::CONFIG, oci::WASM, &blob, 10 << 30),
    );
    let words = ["10737418240 bytes", "component_bytes under [limits]"];
    refused(&host, &registry.reference("huge:1"), &[], &words);
    assert_eq!(registry.count("/blobs/"), 0, "nothing was fetched");
    let small = [("TOOLHOLD_LIMITS__COMPONENT_BYTES", "100")];
    refused(&host, &reference, &small, &["more than the 100"]);
    // The limit of the name it would get, before anything of it is known.
    host.write(
        "toolhold.toml",
        "[module.refused.limits]\ncomponent_bytes = 99\n",
    );
    refused(&host, &reference, &[], &["more than the 99"]);
    host.write("toolhold.toml", "");

    registry.set_fault(RegistryFault::Endless);
    refused(&host, &reference, &[], &["where its manifest promises"]);
    registry.set_fault(RegistryFault::EndlessManifest);
    refused(&host, &reference, &[], &["more than 4194304 bytes"]);
    // Sockets hold some more than the client took.
    assert!(registry.poured() < 64 << 20, "{} bytes", registry.poured());
}

#[test]
fn a_registry_that_keeps_us_waiting_is_left_in_time() {
    let (host, registry) = (Host::new(), OciRegistry::start());
    registry.push("counter", "1", &counter("a"));
    let reference = registry.reference("counter:1");
    for fault in [RegistryFault::Drip, RegistryFault::Silent] {
        registry.set_fault(fault);
        refused(
            &host,
            &reference,
            &[("TOOLHOLD_OCI__TIMEOUT_MS", "1500")],
            &["longer than 1500 ms", "oci.timeout_ms"],
        );
    }
    registry.set_fault(RegistryFault::Busy {
        times: 9,
        retry_after: "3600".into(),
    });
    refused(&host, &reference, &[], &["left alone for 3600 s"]);
    registry.set_fault(RegistryFault::Busy {
        times: 9,
        retry_after: "0".into(),
    });
    refused(&host, &reference, &[], &["left alone for 0 s"]);
    registry.set_fault(RegistryFault::Busy {
        times: 2,
        retry_after: "0".into(),
    });
    assert_eq!(pull(&host, &reference).code, Some(0));
}

#[test]
fn an_index_leads_to_its_component_and_other_content_is_refused() {
    let (host, registry) = (Host::new(), OciRegistry::start());
    let bytes = counter("a");
    let inner = registry.push("counter", "inner", &bytes);
    let entry = |platform: Value| json!({"mediaType": oci::MANIFEST, "digest": inner, "size": 9, "platform": platform});
    let index = |platforms: &[Value]| json!({"schemaVersion": 2, "manifests": platforms.iter().cloned().map(entry).collect::<Vec<_>>()});
    let linux = json!({"os": "linux", "architecture": "amd64"});
    let wasm = json!({"os": "wasip2", "architecture": "wasm"});
    let outer = registry.put_manifest("counter", "many", &index(&[linux.clone(), wasm]));
    registry.put_manifest("counter", "native", &index(&[linux]));
    let blob = registry.put_blob(b"#!/bin/sh\nrm -rf ~\n");
    let image = "application/vnd.oci.image.config.v1+json";
    let tar = "application/vnd.oci.image.layer.v1.tar+gzip";
    registry.put_manifest("counter", "image", &oci::manifest(image, tar, &blob, 19));
    registry.put_manifest(
        "counter",
        "tar",
        &oci::manifest(oci::CONFIG, tar, &blob, 19),
    );
    registry.put_manifest(
        "counter",
        "script",
        &oci::manifest(oci::CONFIG, oci::WASM, &blob, 19),
    );
    for (tag, word) in [
        ("native", "none of its 1 platforms"),
        ("image", "container image"),
        ("tar", "tar+gzip"),
        ("script", "do not begin as WebAssembly does"),
        ("absent", "does not have the manifest absent"),
    ] {
        refused(
            &host,
            &registry.reference(&format!("counter:{tag}")),
            &[],
            &[word],
        );
    }
    let done = pull(&host, &registry.reference("counter:many"));
    assert!(
        done.stdout.contains(&outer),
        "the index is what is pinned: {done:?}"
    );
    let offline = [
        "modules",
        "pull",
        &registry.reference(&format!("counter@{outer}")),
        "--offline",
        "--force",
    ];
    assert_eq!(run_with(&host, &offline, &[]).code, Some(0));
}

#[test]
fn a_password_or_a_token_gives_access() {
    let registry = OciRegistry::start();
    registry.push("counter", "1", &counter("a"));
    let reference = registry.reference("counter:1");
    let own = credentials(&registry.host());
    let own = borrowed(&own);
    let token = |for_everybody| Access::Token {
        realm: None,
        for_everybody,
    };
    for (access, needs_password) in [
        (Access::Password, true),
        (token(false), true),
        (token(true), false),
    ] {
        let host = Host::new();
        registry.set_access(access.clone());
        let anonymous = run_with(&host, &["modules", "pull", &reference], &[]);
        if needs_password {
            assert_eq!(anonymous.code, Some(1), "{access:?}: {anonymous:?}");
            let advice = format!("TOOLHOLD_OCI_HOST={}", registry.host());
            assert!(anonymous.stderr.contains(&advice), "{anonymous:?}");
            let mut wrong = own.clone();
            wrong[2].1 = "guessed";
            refused(&host, &reference, &wrong, &["were not enough"]);
            let done = run_with(&host, &["modules", "pull", &reference], &own);
            assert_eq!(done.code, Some(0), "{access:?}: {done:?}");
        } else {
            assert_eq!(anonymous.code, Some(0), "{anonymous:?}");
        }
    }
    let scope = registry.count("scope=repository%3Acounter%3Apull");
    assert!(
        scope > 0 && scope == registry.count("/token?"),
        "no more than pulling is asked for"
    );
}

#[test]
fn a_password_reaches_no_other_host() {
    let (registry, other) = (OciRegistry::start(), OciRegistry::start());
    let bytes = counter("a");
    registry.push("counter", "1", &bytes);
    other.push("counter", "1", &bytes);
    let own = credentials(&registry.host());
    let own = borrowed(&own);
    let reference = registry.reference("counter:1");

    // A registry that it was not given for asks for it.
    other.set_access(Access::Password);
    refused(
        &Host::new(),
        &other.reference("counter:1"),
        &own,
        &["wants to know who asks"],
    );

    // Its own registry wants it sent elsewhere.
    let elsewhere = format!("http://{}/token", other.host());
    registry.set_access(Access::Token {
        realm: Some(elsewhere),
        for_everybody: false,
    });
    let advice = format!("TOOLHOLD_OCI_TOKEN_HOST={}", other.host());
    refused(&Host::new(), &reference, &own, &[&advice]);

    // Its own registry keeps blobs on another host: fetched from there without credentials.
    registry.set_access(Access::Password);
    registry.set_fault(RegistryFault::Redirect(format!("http://{}", other.host())));
    refused(&Host::new(), &reference, &own, &[&other.host(), "401"]);
    other.set_access(Access::Open);
    let host = Host::new();
    assert_eq!(
        run_with(&host, &["modules", "pull", &reference], &own).code,
        Some(0)
    );
    assert_eq!(
        std::fs::read(host.path().join("modules/counter.wasm")).unwrap(),
        bytes
    );

    let seen: Vec<_> = other.requests();
    assert!(seen.len() >= 3, "{seen:?}");
    assert!(
        seen.iter().all(|request| request.authorization.is_none()),
        "{seen:?}"
    );

    // With the operator's word for it, the token host is sent the password.
    registry.set_fault(RegistryFault::None);
    registry.set_access(Access::Token {
        realm: Some(format!("http://{}/token", other.host())),
        for_everybody: false,
    });
    let named = other.host();
    let named = [
        own.as_slice(),
        &[("TOOLHOLD_OCI_TOKEN_HOST", named.as_str())],
    ]
    .concat();
    let done = run_with(&Host::new(), &["modules", "pull", &reference], &named);
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn redirects_end_and_lead_nowhere_else() {
    let (host, registry) = (Host::new(), OciRegistry::start());
    registry.push("counter", "1", &counter("a"));
    let reference = registry.reference("counter:1");
    registry.set_fault(RegistryFault::Redirect(format!(
        "http://{}",
        registry.host()
    )));
    refused(&host, &reference, &[], &["more often than is followed"]);
    assert!(registry.count("/blobs/") <= 6);
    for target in ["http://storage.example", "ftp://127.0.0.1", "file:///etc"] {
        registry.set_fault(RegistryFault::Redirect(target.into()));
        refused(&host, &reference, &[], &["sent us to"]);
    }
}

#[test]
fn offline_uses_cached_components_without_requests() {
    let (host, registry) = (Host::new(), OciRegistry::start());
    let pushed = registry.push("counter", "1", &counter("a"));
    let reference = registry.reference("counter:1");
    let offline = ["modules", "pull", &reference, "--offline", "--force"];
    let empty = run_with(&host, &offline, &[]);
    assert_eq!(empty.code, Some(1), "{empty:?}");
    assert!(empty.stderr.contains("not in the cache"), "{empty:?}");
    assert_eq!(registry.requests().len(), 0);

    assert_eq!(pull(&host, &reference).code, Some(0));
    let asked = registry.requests().len();
    registry.push("counter", "1", &counter("b"));
    let done = run_with(&host, &offline, &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stdout.contains("offline") && done.stdout.contains(&pushed),
        "{done:?}"
    );
    assert_eq!(registry.requests().len(), asked);
    drop(registry);
    let online = run_with(&host, &["modules", "pull", &reference, "--force"], &[]);
    assert_eq!(
        online.code,
        Some(1),
        "a tag is never guessed online: {online:?}"
    );
    assert!(online.stderr.contains("cannot be reached"), "{online:?}");
}

#[test]
fn concurrent_pulls_of_one_component_fetch_it_once() {
    let (host, registry) = (Host::new(), OciRegistry::start());
    let bytes = counter("a");
    registry.push("counter", "1", &bytes);
    let reference = registry.reference("counter:1");
    let names: Vec<String> = (0..6).map(|i| format!("counter{i}")).collect();
    let running: Vec<_> = names
        .iter()
        .map(|name| {
            let mut command = command(&host, &["modules", "pull", &reference, "--as", name], &[]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().expect("the binary runs")
        })
        .collect();
    for child in running {
        let done = finish(child.wait_with_output().unwrap());
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    assert_eq!(registry.count("/blobs/"), 1);
    for name in &names {
        let file = host.path().join(format!("modules/{name}.wasm"));
        assert_eq!(std::fs::read(file).unwrap(), bytes);
    }
}

#[test]
fn configured_sources_load_and_a_bad_one_hides_nothing() {
    let (host, registry) = (Host::new(), OciRegistry::start());
    let pushed = registry.push("counter", "1", &counter("a"));
    let gone = OciRegistry::start();
    let (good, dead) = (registry.reference("counter:1"), gone.reference("dead:1"));
    drop(gone);
    host.write("modules/local.wasm", counter("local"));
    host.write(
        "toolhold.toml",
        format!(
            "[module.counter]\nsource = \"{good}\"\n[module.dead]\nsource = \"{dead}\"\n[module.odd]\nsource = \"oci://Nothing\"\n"
        ),
    );
    let listed = run_with(&host, &["modules", "list", "--json"], &[]);
    let whole: Value = serde_json::from_str(&listed.stdout).expect("one JSON object");
    let origins: Vec<_> = whole["modules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["name"].as_str().unwrap())
        .collect();
    assert_eq!(origins, ["counter", "local"], "{whole}");
    assert_eq!(
        whole["modules"][0]["origin"],
        json!(format!("{good}@{pushed}"))
    );
    let failed = |name: &str| {
        let all = whole["failed"].as_array().unwrap();
        let one = all.iter().find(|f| f["name"] == name);
        one.unwrap_or_else(|| panic!("{whole}"))["error"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(failed("dead").contains("cannot be reached"), "{whole}");
    assert!(failed("odd").contains("it names no repository"), "{whole}");

    let called = run_with(&host, &["modules", "call", "counter.count"], &[]);
    assert_eq!(
        (called.code, called.stdout.trim()),
        (Some(0), "2"),
        "{called:?}"
    );
    let asked = registry.requests().len();
    let local = run_with(&host, &["modules", "call", "local.count"], &[]);
    assert_eq!(local.code, Some(0), "{local:?}");
    assert_eq!(
        registry.requests().len(),
        asked,
        "what is not needed is not fetched"
    );
    let offline = run_with(
        &host,
        &["--offline", "modules", "call", "counter.count"],
        &[],
    );
    assert_eq!(
        (offline.code, offline.stdout.trim()),
        (Some(0), "2"),
        "{offline:?}"
    );
    assert!(
        offline.stderr.contains(&pushed),
        "it says what it used: {offline:?}"
    );
    assert_eq!(registry.requests().len(), asked);
}

/// What the configuration names no more is gone without a restart, and a file that its name kept out comes in.
#[test]
fn a_source_comes_and_goes_while_a_server_runs() {
    let (host, registry) = (Host::new(), OciRegistry::start());
    registry.push("counter", "1", &counter("a"));
    let source = registry.reference("counter:1");
    let config = format!("[module.counter]\nsource = \"{source}\"\n");
    let dead = format!("{config}[module.dead]\nsource = \"oci://Nothing\"\n");
    host.write("modules/local.wasm", counter("local"))
        .write("toolhold.toml", &dead);
    let server = Server::start(&host, &["--model", "m"]);
    let origin = |name: &str| {
        let shown = server.get(&format!("/v1/modules/{name}"));
        (shown.status == 200).then(|| shown.json()["origin"].as_str().unwrap().to_owned())
    };
    let calls = |name: &str| {
        let called = server.post(
            &format!("/v1/tools/{name}.count"),
            &json!({"arguments": {}}),
        );
        called.status == 200
    };
    let fails = |name: &str| {
        let listed = server.get("/v1/modules").good();
        let failed = listed["failed"].as_array().unwrap();
        failed.iter().any(|it| it["name"] == name)
    };
    assert!(origin("counter").unwrap().starts_with(&source));
    assert!(calls("counter") && fails("dead"));

    // Its name is taken: it waits.
    host.write("modules/counter.wasm", counter("dropped"));
    until("the file to be seen", || fails("counter"));
    assert!(origin("counter").unwrap().starts_with(&source));
    // A file without anything in it would be taken for one that was emptied.
    host.write("toolhold.toml", "[run]\nmax_steps = 12\n");
    until("the file in its place", || {
        origin("counter").is_some_and(|origin| origin.ends_with("counter.wasm"))
    });
    assert!(!fails("counter") && !fails("dead"));
    std::fs::remove_file(host.path().join("modules/counter.wasm")).unwrap();
    until("its end", || origin("counter").is_none());
    assert!(!calls("counter") && calls("local"));

    // And a source that is named while a file has its name is what was chosen, as it is after a start.
    host.write("modules/counter.wasm", counter("a"));
    until("the file again", || origin("counter").is_some());
    host.write("toolhold.toml", &config);
    until("the source in its place", || {
        origin("counter").is_some_and(|origin| origin.starts_with(&source))
    });
    assert!(calls("counter") && fails("counter"));
}

/// A configuration with a module that is fetched from the registry.
fn with_fetched_counter() -> (Host, OciRegistry) {
    let (host, registry) = (Host::new(), OciRegistry::start());
    registry.push("counter", "1", &counter("a"));
    let source = registry.reference("counter:1");
    host.write(
        "toolhold.toml",
        format!("[module.counter]\nsource = \"{source}\"\n"),
    );
    (host, registry)
}

/// A server that starts without anything in its cache, as in a new container: a run of the one before it waits for the
/// module that it was started with, and readiness does.
#[test]
fn a_run_that_goes_on_waits_for_its_modules() {
    let (host, registry) = with_fetched_counter();
    let endpoint = Endpoint::start(Scenario::new([
        Reply::endless(),
        calls([("counter.count", json!({}))]),
        answers("counted"),
    ]));
    let start = |cache: &str| {
        let cache = host.path().join(cache);
        let arguments = ["--base-url", &endpoint.base_url(), "--model", "m"];
        let variables = [
            ("TOOLHOLD_PATHS__CACHE", cache.to_str().unwrap()),
            ("TOOLHOLD_MODULES__START_TIMEOUT_MS", "1"),
            // The test asks until the run has ended.
            ("TOOLHOLD_SERVE__KEY_REQUESTS_PER_MINUTE", "0"),
        ];
        Server::start_with(&host, &arguments, &variables)
    };
    let mut first = start("one");
    until("the module", || first.get("/readyz").status == 200);
    let task = json!({"messages": [{"role": "user", "content": "count"}], "stream": true});
    let begun = first.first_events(reqwest::Method::POST, "/v1/agent", Some(&task), 3);
    let run = begun[0].json()["run"].as_str().unwrap().to_owned();
    until("its Request", || endpoint.requests().len() == 1);
    first.kill();

    registry.set_fault(RegistryFault::Busy {
        times: 1,
        retry_after: "8".into(),
    });
    let second = start("two");
    let waits = second.get("/readyz");
    assert_eq!(waits.status, 503, "{waits:?}");
    assert!(waits.text.contains("modules are being loaded"), "{waits:?}");
    until("the run that waits", || {
        let said = second.said();
        said.contains("modules of the run are still being loaded (counter)")
    });
    assert_eq!(
        endpoint.requests().len(),
        1,
        "it went on without its module"
    );
    let ended = support::until("the end", || {
        let shown = second.get(&format!("/v1/runs/{run}")).good();
        (shown["state"] == "done").then_some(shown)
    });
    let calls = &ended["answer"]["steps"];
    assert!(calls.to_string().contains("\"status\":\"done\""), "{ended}");
    assert_eq!(ended["answer"]["output"], "counted");
    assert_eq!(second.get("/readyz").status, 200);
}

/// The first process of a container gets no signal that it does not listen for.
#[test]
fn a_server_that_loads_its_modules_can_be_stopped() {
    let http = ["serve", "--listen", "127.0.0.1:0", "--model", "m"];
    let mcp = ["mcp", "--http", "127.0.0.1:0"];
    for arguments in [&http[..], &mcp[..]] {
        let (host, registry) = with_fetched_counter();
        registry.set_fault(RegistryFault::Busy {
            times: 1,
            retry_after: "8".into(),
        });
        let mut server = command(&host, arguments, &[])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("the fetch", || !registry.requests().is_empty());
        support::host::signal(server.id(), "TERM");
        let ended = server.wait().unwrap();
        assert_eq!(ended.code(), Some(0), "{arguments:?}: {ended:?}");
    }
}

/// A shield and the source that it is, added together; and of what is wrong nothing is left.
#[test]
fn a_shield_comes_with_its_source_while_a_server_runs() {
    let (host, registry) = (Host::new(), OciRegistry::start());
    let guard = repository().join("tests/components/guard/guard.wasm");
    registry.push("guard", "1", &std::fs::read(guard).unwrap());
    let source = registry.reference("guard:1");
    host.write("modules/local.wasm", counter("local"))
        .write("toolhold.toml", "");
    let server = Server::start(&host, &["--model", "m"]);
    let table = |name: &str| {
        format!(
            "[module.{name}]\nsource = \"{source}\"\n[shields.{name}]\nkind = \"wasm\"\nmodule = \"{name}\"\n"
        )
    };
    let absent = "[shields.z]\nkind = \"wasm\"\nmodule = \"absent\"\n";
    host.write("toolhold.toml", format!("{}{absent}", table("wrong")));
    until("the error", || server.said().contains("stay as they were"));
    assert_eq!(server.get("/v1/modules/wrong").status, 404);
    host.write("toolhold.toml", table("words"));
    until("the shield", || server.said().contains("reloaded:"));
    assert_eq!(server.get("/v1/modules/words").status, 200);
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "{what} never came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Only what the operator asked for is the operator's to take away.
#[tokio::test]
async fn a_tools_component_stays_when_its_source_is_gone() {
    let registry = sandbox::registry(Policy::default());
    let fetched = async |name: &str, origin: &str| {
        let bytes = Ok(counter(name));
        registry.load_fetched(name, origin, bytes, &|_| ()).await;
    };
    fetched("one", "oci://a/one").await;
    fetched("two", "oci://a/two").await;
    let beside = registry.load_beside("three@1.2", "oci://a/three", counter("three"), &|_| ());
    beside.await.unwrap();
    registry.load_bytes("four", counter("four")).await.unwrap();
    registry.retain_fetched(&["two"], &|_| ()).await;
    let left = || -> Vec<String> {
        registry
            .modules()
            .iter()
            .map(|it| it.slot.clone())
            .collect()
    };
    assert_eq!(left(), ["four", "three@1.2", "two"]);
    registry.retain_fetched(&[], &|_| ()).await;
    assert_eq!(left(), ["four", "three@1.2"]);
}

/// Both ways by which a component comes without a file read its name in the same way.
#[tokio::test]
async fn an_invalid_name_is_refused_everywhere() {
    let registry = sandbox::registry(Policy::default());
    let folder = tempfile::tempdir().unwrap();
    for slot in ["counter@soon", "counter@", "Counter", "counter@1@2", ""] {
        let beside = registry.load_beside(slot, "oci://a/b", counter("a"), &|_| ());
        let examined = registry.examine(folder.path(), slot, counter("a"), &|_| ());
        for refused in [beside.await.unwrap_err(), examined.await.unwrap_err()] {
            let refused = refused.to_string();
            assert!(
                refused.contains("cannot name a module"),
                "{slot}: {refused}"
            );
        }
    }
    assert!(registry.modules().is_empty());
}

#[test]
fn half_of_the_credentials_is_an_error_that_names_the_rest() {
    let (host, registry) = (Host::new(), OciRegistry::start());
    registry.push("counter", "1", &counter("a"));
    let own = credentials(&registry.host());
    let own = borrowed(&own);
    let reference = registry.reference("counter:1");
    refused(&host, &reference, &own[1..], &["TOOLHOLD_OCI_HOST"]);
    refused(&host, &reference, &own[..2], &["set TOOLHOLD_OCI_PASSWORD"]);
    let shown = run_with(&host, &["config", "--json"], &own);
    assert_eq!(shown.code, Some(0), "{shown:?}");
}
