//! `run.result_cache` through the binary: what a person, an auditor and a client are shown of earlier results.

use serde_json::{Value, json};
use support::endpoint::{Endpoint, Scenario};
use support::host::Host;
use support::server::Server;
use support::transcript::{answers, calls};

/// The same sum twice, and then the answer.
fn scenario() -> Scenario {
    let sum = |arguments: &str| {
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        calls([("calculator.evaluate", arguments)])
    };
    Scenario::new([
        sum(r#"{"expression": "6*7"}"#),
        sum(r#"{"expression": "6*7"}"#),
        answers("42"),
    ])
}

#[test]
fn an_earlier_result_is_shown_as_one_at_the_terminal_and_in_the_audit_log() {
    for (config, cached) in [
        ("", 0),
        ("[run]\nresult_cache = \"run\"\n", 1),
        (
            "[run]\nresult_cache = \"run\"\nresult_cache_tools = [\"files\"]\n",
            0,
        ),
    ] {
        let endpoint = Endpoint::start(scenario());
        let host = Host::new();
        host.ship("calculator").write("toolhold.toml", config);
        let url = endpoint.base_url();
        let done = host.run(&["run", "6*7?", "--base-url", &url, "--model", "m"]);
        assert_eq!(done.stdout.trim(), "42", "{done:?}");
        assert_eq!(done.stderr.matches("cached, ").count(), cached, "{done:?}");
        let audit = host.run(&["audit", "search", "--json"]);
        let rows = audit.stdout.lines().map(serde_json::from_str::<Value>);
        let rows: Vec<Value> = rows.map(Result::unwrap).collect();
        let calls: Vec<&Value> = rows.iter().filter(|row| row["action"] == "call").collect();
        assert_eq!(calls.len(), 2, "{audit:?}");
        let known: Vec<&&Value> = calls
            .iter()
            .filter(|row| row["cached"].is_object())
            .collect();
        assert_eq!(known.len(), cached, "{audit:?}");
        for row in known {
            assert_eq!(row["cached"]["call"], calls[0]["call"], "{row}");
            assert_eq!(row["result_digest"], calls[0]["result_digest"], "{row}");
        }
        // It is a part of the record: played again, the run comes to the same.
        let replayed = host.run(&["runs", "replay", "last"]);
        assert_eq!(replayed.code, Some(0), "{replayed:?}");
    }
    let host = Host::new();
    host.write("toolhold.toml", "[run]\nresult_cache = \"always\"\n");
    let refused = host.run(&["modules", "list"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("off") && refused.stderr.contains("client"),
        "{refused:?}"
    );
}

/// A key is given what it was told itself, and nothing that another was.
#[test]
fn a_client_of_the_server_is_given_its_own_earlier_results() {
    let one = || calls([("calculator.evaluate", json!({"expression": "6*7"}))]);
    let endpoint = Endpoint::start(Scenario::new([
        one(),
        answers("42"),
        one(),
        answers("42"),
        one(),
        answers("42"),
    ]));
    let host = Host::new();
    host.ship("calculator").write(
        "toolhold.toml",
        format!(
            "[endpoints.default]\nbase_url = \"{}\"\nmodel = \"m\"\n[run]\nresult_cache = \"client\"\n",
            endpoint.base_url()
        ),
    );
    let [ann, bob] = ["ann", "bob"].map(|name| {
        let made = host.run(&["keys", "create", name]);
        assert_eq!(made.code, Some(0), "{made:?}");
        made.stdout.trim().to_owned()
    });
    let mut server = Server::start(&host, &[]);
    let mut ask = |key: &str| {
        server.use_key(key);
        let task = json!({"messages": [{"role": "user", "content": "6*7?"}]});
        let answer = server.post("/v1/agent", &task).good();
        let call = answer["steps"][0]["calls"][0].clone();
        assert_eq!(call["status"], "done", "{answer}");
        assert_eq!(call["result"], json!({"value": "42"}), "{answer}");
        (answer["id"].clone(), call)
    };
    let (first, made) = ask(&ann);
    assert_eq!(made.get("cached"), None);
    let (_, given) = ask(&ann);
    assert_eq!(given["cached"]["run"], first, "{given}");
    assert_eq!(given["cached"]["call"], made["id"], "{given}");
    let (_, others) = ask(&bob);
    assert_eq!(others.get("cached"), None, "{others}");
}
