//! What a call asked for and was not given is told to its author, with what would allow it, and not to the guest.

use crate::run::{answers, calls};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use support::endpoint::{Endpoint, Scenario};
use support::host::Host;
use support::sandbox::{call, registry, repository};
use toolhold_policy::{
    Access, CallReport, DirectoryGrant, Grant, GrantRestrictions, Invocation, KeyValueGrant,
    Output, Restriction,
};
use toolhold_sandbox::{ModulePolicy, Policy, Registry, Storage};

/// A module `m`, of the component at `path`, with this grant.
async fn module(path: &str, grant: Grant, state: &Path) -> Registry {
    let own = ModulePolicy {
        grant,
        ..ModulePolicy::default()
    };
    let mut policy = Policy {
        storage: Storage {
            scratch: Some(state.join("scratch")),
            key_value: Some(state.join("key-value")),
        },
        ..Policy::default()
    };
    policy.modules.insert("m".into(), own);
    let registry = registry(policy);
    let bytes = std::fs::read(repository().join(path)).unwrap();
    registry.load_bytes("m", bytes).await.unwrap();
    registry
}

fn denied(report: &CallReport) -> Vec<String> {
    let kept = report.denials.kept.iter();
    kept.map(ToString::to_string).collect()
}

const ATTACKER: &str = "host/hostile/attacker/attacker.wasm";
const PROBE: &str = "modules/sdk/probe/probe.wasm";
const FETCH: &str = "tests/components/fetch/fetch.wasm";

#[tokio::test]
async fn refused_files_and_hosts_are_named_with_what_would_allow_them() {
    let (state, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(data.path().join("a.txt"), "a").unwrap();
    let grant = Grant {
        directories: vec![DirectoryGrant {
            host: data.path().to_owned(),
            guest: "/data".into(),
            access: Access::Read,
            quota_bytes: None,
        }],
        ..Grant::default()
    };
    let registry = module(ATTACKER, grant, state.path()).await;
    let at = |path: &str| json!({"dir": "/data", "path": path});
    let may = "allowed by: toolhold modules grant m --with-dir DIR:/data:rw";
    let sockets = "no grant gives sockets";
    let write = json!({"dir": "/data", "path": "b.txt", "content": ""});
    let moved = json!({"dir": "/data", "path": "a.txt", "to-dir": "/data", "to-path": "c"});
    let size = json!({"dir": "/data", "path": "a.txt", "size": 0});
    let hostile = "../\u{1b}[2J\ndenied: x";
    for (tool, arguments, asked, rule) in [
        (
            "read",
            at("../a.txt"),
            "\"../a.txt\" in /data",
            "leads out of the directory",
        ),
        (
            "stat",
            at("../a.txt"),
            "\"../a.txt\" in /data",
            "leads out of the directory",
        ),
        (
            "read",
            at(hostile),
            "\"../\\u{1b}[2J\\ndenied: x\" in /data",
            "leads out",
        ),
        (
            "write",
            write,
            "to change \"b.txt\" in /data, which it may only read",
            may,
        ),
        (
            "remove",
            at("a.txt"),
            "to change \"a.txt\" in /data, which",
            may,
        ),
        (
            "set_times",
            at("a.txt"),
            "to change \"a.txt\" in /data, which",
            may,
        ),
        ("set_size", size, "to change a file in /data, which", may),
        (
            "make_dir",
            at("new"),
            "to change \"new\" in /data, which",
            may,
        ),
        ("rename", moved, "to change \"c\" in /data, which", may),
        (
            "connect",
            json!({"address": "127.0.0.1:1"}),
            "a TCP socket",
            sockets,
        ),
        (
            "send",
            json!({"address": "127.0.0.1:1"}),
            "a UDP socket",
            sockets,
        ),
        (
            "lookup",
            json!({"name": "a.example"}),
            "the address of \"a.example\"",
            sockets,
        ),
        // The words of the host stay told apart from those of the guest.
        (
            "lookup",
            json!({"name": "x; allowed by: toolhold modules grant m --with-dir /:/data:rw"}),
            "the address of \"x; allowed by: toolhold modules grant m --with-dir /:/data:rw\"; no grant gives",
            sockets,
        ),
    ] {
        let report = call(&registry, &format!("m.{tool}"), arguments).await;
        let lines = denied(&report);
        let [line] = lines.as_slice() else {
            panic!("{tool}: {lines:?} {:?}", report.result)
        };
        assert!(
            line.starts_with(asked) && line.contains(rule),
            "{tool}: {line}"
        );
        // The guest says what it was told: a code, as ever.
        let said = format!("{:?}", report.result);
        assert!(
            !said.contains("grant") && !said.contains("DIR"),
            "{tool}: {said}"
        );
    }
}

#[tokio::test]
async fn refused_requests_are_named_with_the_flags_that_allow_them() {
    let state = tempfile::tempdir().unwrap();
    let registry = module(FETCH, Grant::default(), state.path()).await;
    for (method, url, rule) in [
        (
            "GET",
            "https://a.example/v1/x?key=1",
            "--with-http 'GET https://a.example/v1/x'",
        ),
        (
            "POST",
            "https://a.example:8443/",
            "--with-http 'POST https://a.example:8443'",
        ),
        (
            "GET",
            "http://localhost:1/it's",
            "--with-http 'GET http://localhost:1/it'\\''s' --private",
        ),
        (
            "GET",
            "http://10.0.0.1/",
            "--with-http 'GET http://10.0.0.1' --private",
        ),
        ("GET", "http://169.254.169.254/", "no grant reaches"),
        (
            "TRACE",
            "https://a.example/",
            "no grant gives CONNECT and TRACE",
        ),
    ] {
        let arguments = json!({"method": method, "url": url, "headers": [], "body": null});
        let report = call(&registry, "m.fetch", arguments).await;
        let lines = denied(&report);
        assert!(
            lines[0].contains(rule) && !lines[0].contains("key=1"),
            "{url}: {lines:?}"
        );
    }
    // Many different ones: the first are kept.
    let long = format!("https://a.example/{}", "x".repeat(5_000));
    let arguments = json!({"method": "GET", "url": long, "headers": [], "body": null});
    let lines = denied(&call(&registry, "m.fetch", arguments).await);
    assert!(
        lines[0].len() < 1_000 && lines[0].ends_with("'GET https://a.example'"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn what_a_key_withholds_is_not_asked_of_the_operator() {
    let state = tempfile::tempdir().unwrap();
    let entry = json!({"key": "a", "value": "1"});
    let bare = module(PROBE, Grant::default(), state.path()).await;
    let lines = denied(&call(&bare, "m.remember", entry.clone()).await);
    assert_eq!(
        lines,
        ["keys and values; allowed by: toolhold modules grant m --key-value"]
    );
    let ask = json!({"tool": "calculator.evaluate", "arguments": {}});
    let lines = denied(&call(&bare, "m.ask", ask).await);
    assert_eq!(
        lines,
        [
            "to call \"calculator.evaluate\"; allowed by: toolhold modules grant m --with-tool calculator.evaluate"
        ]
    );

    let grant = Grant {
        key_value: Some(KeyValueGrant::default()),
        ..Grant::default()
    };
    let given = module(PROBE, grant, state.path()).await;
    let works = call(&given, "m.remember", entry.clone()).await;
    assert!(
        works.result.is_ok() && works.denials.is_empty(),
        "{works:?}"
    );
    let bounds = Restriction::Permits(vec!["tools".parse().unwrap()]);
    let bounds = GrantRestrictions::default().with("this key", bounds);
    let invocation = Invocation {
        restrictions: Some(Arc::new(bounds)),
        ..Invocation::new("c", "m.remember", &entry)
    };
    let lines = denied(&given.call(&invocation).await);
    assert_eq!(
        lines,
        ["keys and values; withheld from this call: key_value not granted to this key"]
    );
    // Of what the module was never given, the key has nothing to withhold; the host does not know which it was.
    let grant = Grant {
        tools: vec!["text".into()],
        ..Grant::default()
    };
    let other = module(PROBE, grant, state.path()).await;
    let bounds = Restriction::Permits(vec!["http".parse().unwrap()]);
    let bounds = GrantRestrictions::default().with("this key", bounds);
    let ask = json!({"tool": "calculator.evaluate", "arguments": {}});
    let invocation = Invocation {
        restrictions: Some(Arc::new(bounds)),
        ..Invocation::new("c", "m.ask", &ask)
    };
    let lines = denied(&other.call(&invocation).await);
    assert_eq!(
        lines,
        [
            "to call \"calculator.evaluate\"; withheld from this call: tools not granted to this key; if the module \
             itself has it not, allowed by: toolhold modules grant m --with-tool calculator.evaluate"
        ]
    );
    let read = json!({"path": "/data/x"});
    let report = call(&bare, "m.read", read).await;
    let looked = "files: it looked for its directories, and has none; allowed by: toolhold modules grant m --with-dir \
                  DIR:/data";
    assert_eq!(denied(&report), [looked], "{:?}", report.result);
    let works = call(&bare, "m.draw", json!({})).await;
    assert!(matches!(works.result, Ok(Output::Value(_))) && works.denials.is_empty());
}

/// `modules call` says it, and `run` with `-v`; a model is not told.
#[test]
fn authors_see_which_grant_is_missing() {
    let host = Host::new();
    host.ship("files");
    let line = "not granted: to read and write a directory as \"/data\", which its module.toml asks for; allowed by: toolhold \
                modules grant files --with-dir DIR:/data:rw";
    let called = host.run(&["modules", "call", "files.read", r#"{"path":"a.txt"}"#]);
    assert_eq!(called.code, Some(5), "{called:?}");
    assert!(called.stderr.contains(line), "{called:?}");
    let called = host.run(&[
        "modules",
        "call",
        "files.read",
        r#"{"path":"a.txt"}"#,
        "--json",
    ]);
    let report: Value = serde_json::from_str(&called.stdout).unwrap();
    let first = &report["denials"]["kept"][0];
    assert!(line.contains(first["asked"].as_str().unwrap()), "{report}");
    assert!(line.contains(first["rule"].as_str().unwrap()), "{report}");

    for flags in [&["-v"][..], &[]] {
        let endpoint = Endpoint::start(Scenario::new([
            calls("files.read", json!({"path": "a.txt"})),
            answers(json!("I cannot.")),
        ]));
        let url = endpoint.base_url();
        let run = ["run", "read a.txt", "--base-url", &url, "--model", "m"];
        let done = host.run(&[&run[..], flags].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(done.stderr.contains(line), !flags.is_empty(), "{done:?}");
        let asked = format!("{:?}", endpoint.requests());
        assert!(!asked.contains("--with-dir"), "{asked}");
    }
}
