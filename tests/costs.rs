//! Costs of the host, as ratios of processor time of one run. The bounds are wide, because the build is not optimised and
//! other tests run beside: they find a cost of another kind, such as one that grows with the square. `cargo xtask bench` finds
//! percent. A call beside bare wasmtime is compared in `host/sandbox/tests/costs.rs`. The record of a run is counted in pages.

use crate::mcp_server::call;
use crate::mcp_server::wire::Stdio;
use futures_util::future::join_all;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;
use support::endpoint::{Endpoint, Expect, Reply, ReplyOrder, Scenario};
use support::host::Host;
use support::records::Records;
use support::sandbox::component;
use support::server::Server;
use support::transcript::{answers, calls};
use toolhold_hostile::processor_time_of;

/// The most that each ratio may be: at least twice what a build that is not optimised had, which was 4 to 6 of the first, 7.3
/// of the second and 7.2 of the third.
const DURABLE: f64 = 15.0;
const TOOLS: f64 = 15.0;
const PIECES: f64 = 15.0;
const RUNS: f64 = 20.0;

/// Processor time that process `id` takes for it.
fn cost(id: u32, of: impl FnOnce()) -> Duration {
    let before = processor_time_of(id).expect("it runs");
    of();
    let after = processor_time_of(id).expect("it runs");
    after.saturating_sub(before)
}

/// Fails where the cost of one thing is more than `most` times that of the other.
fn hold(what: &str, [of, to]: [Duration; 2], most: f64) {
    // What is below a tick of the system's clock reads as nothing.
    let ratio = of.as_secs_f64() / to.as_secs_f64().max(0.01);
    eprintln!("{what}: {ratio:.2}, {of:?} beside {to:?}; at most {most}");
    assert!(ratio <= most, "{what}: {ratio:.2}, {of:?} beside {to:?}");
}

#[test]
fn a_durable_call_beside_one_that_is_not_recorded() {
    let many = |audit: &str| {
        let host = Host::new();
        let configuration =
            format!("[mcp_server]\naudit = \"{audit}\"\n[limits]\ncalls_per_minute = 0\n");
        host.ship("calculator")
            .write("toolhold.toml", configuration);
        let mut client = Stdio::session(&host, &[], json!({}));
        let id = client.child.id();
        let mut make = |calls: std::ops::Range<u32>| {
            for n in calls {
                let sum = json!({"expression": "1+1"});
                let reply = client.ask(call(n, "calculator.evaluate", sum));
                assert_eq!(
                    reply["result"]["structuredContent"]["value"], "2",
                    "{reply}"
                );
            }
        };
        make(0..10);
        cost(id, || make(10..210))
    };
    hold(
        "durable, beside off",
        [many("durable"), many("off")],
        DURABLE,
    );
}

#[test]
fn a_call_of_one_tool_of_251_beside_one_of_two() {
    let of = |tools: usize| {
        let host = Host::new();
        let mut exports = String::new();
        for n in 0..tools {
            let _ = write!(
                exports,
                r#"(func (export "measure{n}") (param "length" u32) (param "width" u32) (param "height" u32)
                  (result u32) (canon lift (core func $i "f")))"#
            );
        }
        let many = component(&format!(
            r#"(component
              (core module $m (func (export "f") (param i32 i32 i32) (result i32) (local.get 0)))
              (core instance $i (instantiate $m)) {exports})"#
        ));
        host.write("modules/many.wasm", many)
            .write("toolhold.toml", "[limits]\ncalls_per_minute = 0\n");
        let endpoint = Endpoint::start(Scenario::default());
        let url = endpoint.base_url();
        let server = Server::start(&host, &["--base-url", &url, "--model", "m"]);
        let body = json!({"arguments": {"length": 7, "width": 1, "height": 1}});
        let make = |calls: usize| {
            for _ in 0..calls {
                let made = server.post("/v1/tools/many.measure0", &body).good();
                assert_eq!(made["result"], 7, "{made}");
            }
        };
        make(3);
        cost(server.id(), || make(20))
    };
    hold("251 tools, beside two", [of(251), of(2)], TOOLS);
}

#[test]
fn an_answer_of_300_pieces_beside_one_of_ten() {
    // With the JSON around it, 1 200 characters.
    let text = "word ".repeat(234);
    let of = |pieces: usize, runs: usize| {
        let reply = Reply {
            piece: Some(1_200 / pieces),
            ..answers(text.as_str()).delayed_ms(0, 5)
        };
        let endpoint = Endpoint::start(Scenario::new([reply]).in_order(ReplyOrder::FirstMatch));
        let (host, url) = (Host::new(), endpoint.base_url());
        let server = Server::start(&host, &["--base-url", &url, "--model", "m"]);
        let task = json!({"messages": [{"role": "user", "content": "Say it."}], "stream": true});
        let make = |runs: usize| {
            for _ in 0..runs {
                let method = Method::POST;
                let events = server.first_events(method, "/v1/agent", Some(&task), usize::MAX);
                let end = events.last().expect("an end").json();
                assert_eq!(end["reason"], "output", "{end}");
            }
        };
        make(1);
        cost(server.id(), || make(runs)) / u32::try_from(runs).unwrap()
    };
    hold("300 pieces, beside ten", [of(300, 2), of(10, 20)], PIECES);
}

/// The model's second answer is to who tells it this.
const SECOND: &str = "18446744073709551616";
const AT_ONCE: usize = 100;
const CONFIGURATION: &str = "
[run]
reasons = false
[modules]
concurrent_calls = 256
waiting_calls = 4096
[limits]
concurrent_calls = 256
calls_per_minute = 0
[serve]
concurrent_runs = 256
key_concurrent_runs = 256
waiting_runs = 4096
key_requests_per_minute = 0
";

/// Requests that are sent a hundred at a time.
async fn all_at_once(client: &Client, url: &str, body: &Value) {
    let one = async || {
        let request = client.post(url).header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{status}: {text}");
    };
    join_all((0..AT_ONCE).map(|_| one())).await;
}

#[test]
fn a_hundred_runs_at_once_beside_the_model_alone() {
    let sum = json!({"expression": "2^64"});
    let scenario = Scenario::new([
        answers("It is large.").expecting(Expect::text(SECOND)),
        calls([
            ("calculator.evaluate", sum.clone()),
            ("calculator.evaluate", sum),
        ]),
    ]);
    let endpoint = Endpoint::start(scenario.in_order(ReplyOrder::FirstMatch));
    let (host, url) = (Host::new(), endpoint.base_url());
    host.ship("calculator")
        .write("toolhold.toml", CONFIGURATION);
    let server = Server::start(&host, &["--base-url", &url, "--model", "m"]);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let client = Client::builder().no_proxy().build().unwrap();

    let model = format!("{url}/chat/completions");
    let alone = cost(std::process::id(), || {
        for messages in [
            json!([{"role": "user", "content": "Add twice."}]),
            json!([{"role": "user", "content": SECOND}]),
        ] {
            let body = json!({"model": "m", "stream": true, "messages": messages});
            runtime.block_on(all_at_once(&client, &model, &body));
        }
    });
    let runs = format!("{}/v1/agent", server.address());
    let task = json!({"messages": [{"role": "user", "content": "Add twice."}]});
    let run = server.post("/v1/agent", &task).good();
    assert_eq!(
        (&run["reason"], &run["output"]),
        (&json!("output"), &json!("It is large."))
    );
    let with_host = cost(server.id(), || {
        runtime.block_on(all_at_once(&client, &runs, &task));
    });
    hold(
        "a hundred runs, beside the model alone",
        [with_host, alone],
        RUNS,
    );
}

/// The most that the record of a run of two answers and two calls may take of the database, with its rows of the audit log and
/// its entries of all indexes.
const MOST_BYTES: f64 = 12.0 * 1024.0;

/// A count of pages and no time, so the bound is the promise itself.
#[test]
fn a_run_of_two_answers_and_two_calls_takes_12_kib_of_the_database() {
    const RUNS: u32 = 60;
    let sum = |number: u32| json!({"expression": format!("2^64 + {number}")});
    let scenario = Scenario::new([
        answers("It is large.").expecting(Expect::text(SECOND)),
        calls([
            ("calculator.evaluate", sum(0)),
            ("calculator.evaluate", sum(1)),
        ]),
    ]);
    let endpoint = Endpoint::start(scenario.in_order(ReplyOrder::FirstMatch));
    let (host, url) = (Host::new(), endpoint.base_url());
    // With the reasons for calls, as they are by default.
    host.ship("calculator").write(
        "toolhold.toml",
        "[limits]\ncalls_per_minute = 0\n[serve]\nkey_requests_per_minute = 0\n",
    );
    let server = Server::start(&host, &["--base-url", &url, "--model", "m"]);
    let make = |runs: u32| {
        for number in 0..runs {
            let said = format!("Add twice, for the question number {number}.");
            let task = json!({"messages": [{"role": "user", "content": said}]});
            let run = server.post("/v1/agent", &task).good();
            assert_eq!(run["reason"], "output", "{run}");
        }
    };
    let records = Records::of(&host);
    // Tables and texts of all runs are there after the first ones.
    make(10);
    let before = records.bytes();
    make(RUNS);
    let after = records.bytes();
    let newest = records.newest();
    let made = newest
        .iter()
        .filter(|event| event["event"] == "tool_result");
    assert_eq!(made.count(), 2, "{newest:?}");
    let each = f64::from(u32::try_from(after - before).unwrap()) / f64::from(RUNS);
    eprintln!("a run of two answers and two calls: {each:.0} bytes; at most {MOST_BYTES}");
    assert!(each <= MOST_BYTES, "{each} bytes");
}
