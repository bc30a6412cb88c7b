//! docs/protocol.md, 9: instances, with the binary and a shipped module.

use serde_json::{Value, json};
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::Host;

/// The real binary and a shipped module: a call for each of a hundred items, in one request.
#[test]
fn a_batch_of_a_hundred_items_is_worked_off_in_one_request() {
    const ITEMS: usize = 100;
    let text = |n: usize| vec!["word"; n + 1].join(" ");
    let items: Value = (0..ITEMS)
        .map(|n| {
            json!({"type": "input", "input": {"text": text(n)}, "schema": {}, "_instance": format!("item{n}")})
        })
        .collect();
    let call = |n: usize| {
        json!({"_tool": "text.count", "_reasoningForCall": "r", "_instance": format!("item{n}"), "text": "†input.text",
            "_outputPath": "†state.count"})
    };
    let all: Value = (0..ITEMS).map(call).collect();
    let mut reply = Reply::solution(json!({"calls": all, "output": null}));
    reply.piece = Some(512);
    let endpoint = Endpoint::start(Scenario::new([
        reply,
        Reply::solution(json!({"calls": [], "output": "counted"})),
    ]));
    let host = Host::new();
    host.ship("text").write("items.json", items.to_string());
    let url = endpoint.base_url();
    let arguments = [
        "run",
        "Count.",
        "--context",
        "items.json",
        "--tools",
        "text.count",
        "--json",
        "--base-url",
        &url,
    ];
    let done = host.run(&arguments);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let events: Vec<Value> = done
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |kind: &'static str| events.iter().filter(move |event| event["event"] == kind);
    assert_eq!(of("tool_result").count(), ITEMS);
    // Everything was made out of the first reply; the second only ends the run.
    assert_eq!(endpoint.requests().len(), 2);
    assert!(of("tool_start").all(|event| event["step"] == 1));
    let instances: Vec<(String, String)> = of("tool_start")
        .map(|event| {
            (
                event["id"].as_str().unwrap().to_owned(),
                event["instance"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    for result in of("tool_result") {
        let (_, instance) = instances
            .iter()
            .find(|(id, _)| result["id"] == **id)
            .unwrap();
        let n: usize = instance.trim_start_matches("item").parse().unwrap();
        assert_eq!(result["output"]["words"], n + 1, "{result}");
    }
    assert_eq!(host.run(&["runs", "replay", "last"]).code, Some(0));
}
