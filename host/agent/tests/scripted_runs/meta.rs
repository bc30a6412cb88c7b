//! docs/protocol.md, 2: the meta message.

use super::support::told::{FinishedRun, request, run};
use super::support::{calls, output};
use serde_json::{Value, json};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::{EventKind, StopReason};

fn message(version: &str, branches: &Value) -> Value {
    json!([{"type": "meta", "meta": {"domain": "shop", "path": "prices", "version": version, "branches": branches}}])
}

fn with(meta: Value, mut solution: Value) -> Value {
    let mut whole = json!({"meta": meta});
    let fields = solution.as_object_mut().unwrap();
    whole.as_object_mut().unwrap().append(fields);
    whole
}

fn moved(version: &str, solution: Value) -> Value {
    with(json!({"version": version}), solution)
}

fn add() -> Value {
    calls(json!([{"_tool": "math.add", "a": 1, "b": 2}]))
}

/// The versions that the run came to.
fn versions(told: &FinishedRun) -> Vec<String> {
    let versions = told.events.iter().filter_map(|event| match &event.kind {
        EventKind::Meta { meta, .. } => Some(meta.version.to_string()),
        _ => None,
    });
    versions.collect()
}

#[tokio::test]
async fn every_solution_moves_the_version_in_all_contracts() {
    for contract in Contract::ALL {
        let told = run(
            request(contract, message("1.2.3", &json!([]))),
            [moved("1.3.0", add()), moved("1.4.0", output("three"))],
        )
        .await;
        assert_eq!(
            told.done(),
            (StopReason::Output, json!("three")),
            "{contract:?}"
        );
        assert_eq!(versions(&told), ["1.3.0", "1.4.0"], "{contract:?}");
        // The model is shown the meta that holds now, and asked for the next.
        for (n, now, next) in [(0, "1.2.3", "1.3.0"), (1, "1.3.0", "1.4.0")] {
            let asked = told.asked(n);
            assert_eq!(asked.matches("## Meta").count(), 1, "{asked}");
            assert!(asked.contains(&format!("\"version\":\"{now}\"")), "{asked}");
            let whole = told.requests[n].to_string();
            assert!(whole.contains(next), "{whole}");
        }
    }
}

#[tokio::test]
async fn the_schema_demands_a_meta_first() {
    let told = run(
        request(Contract::Schema, message("1.2.3", &json!([2]))),
        [moved("1.3.0", output("done"))],
    )
    .await;
    let schema = told.schema(0);
    for shape in schema["anyOf"].as_array().unwrap() {
        let properties = shape["properties"].as_object().unwrap();
        let names: Vec<_> = properties.keys().map(String::as_str).collect();
        assert_eq!(names, ["meta", "calls", "output"]);
        assert_eq!(shape["required"], json!(["meta", "calls", "output"]));
        assert_eq!(
            shape["properties"]["meta"]["properties"]["version"],
            json!({"anyOf": [
                {"enum": ["1.3.0", "1.2.4", "2.0.0", "1.2.3.branch.3"]},
                {"type": "string", "pattern": "^1[.]2([.]3)?[.][A-Za-z][A-Za-z0-9-]{0,31}[.][1-9][0-9]{0,3}$"},
            ]})
        );
    }
}

/// In all contracts: a reply with a wrong meta makes no call, and the model learns what to write
/// instead.
#[tokio::test]
async fn a_wrong_meta_is_rejected_before_any_call_of_the_reply_runs() {
    for contract in Contract::ALL {
        for (wrong, reason) in [
            (add(), "lacks \"meta\""),
            (with(Value::Null, add()), "\"meta\""),
            (moved("1.2.3", add()), "is the current version"),
            (moved("1.1.0", add()), "is before the current version 1.2.3"),
            (moved("3.0.0", add()), "is not the next version after 1.2.3"),
            (moved("1.2.5", add()), "is not the next version"),
            (
                moved("1.2.3.branch.1", add()),
                "the branch 1.2.3.branch.1 exists already",
            ),
            (moved("newest", add()), "is no version"),
            (with(json!({"version": 7}), add()), "is no version"),
            (
                with(json!({"version": "1.3.0", "domain": "bank"}), add()),
                "must stay \"shop\"",
            ),
            (with(json!("1.3.0"), add()), "must be an object"),
        ] {
            let told = run(
                request(contract, message("1.2.3", &json!([1]))),
                [wrong.clone(), moved("1.3.0", output("done"))],
            )
            .await;
            let what = format!("{contract:?} {wrong}");
            assert!(told.calls.is_empty(), "{what}: {:?}", told.calls);
            assert_eq!(told.at("tool_start"), None, "{what}");
            assert_eq!(told.done(), (StopReason::Output, json!("done")), "{what}");
            assert!(told.asked(1).contains(reason), "{what}: {}", told.asked(1));
            assert_eq!(versions(&told), ["1.3.0"], "{what}");
        }
    }
}

/// Whatever the order in which a server lets its model write.
#[tokio::test]
async fn a_meta_after_the_calls_holds_them_up_and_is_judged_all_the_same() {
    let after = |version: &str| {
        let mut solution = add();
        solution["meta"] = json!({"version": version});
        solution
    };
    for contract in Contract::ALL {
        let told = run(
            request(contract, message("1.2.3", &json!([]))),
            [
                after("1.2.3"),
                after("1.3.0"),
                moved("1.4.0", output("done")),
            ],
        )
        .await;
        assert_eq!(told.calls.len(), 1, "{contract:?}");
        let rejected = told
            .events
            .iter()
            .position(|event| matches!(&event.kind, EventKind::UnusableReply(_)));
        assert!(rejected.is_some(), "{contract:?}");
        assert!(rejected < told.at("tool_start"), "{contract:?}");
        assert_eq!(versions(&told), ["1.3.0", "1.4.0"]);
    }
}

#[tokio::test]
async fn a_branch_is_opened_and_left() {
    let told = run(
        request(
            Contract::Schema,
            message("1.2.3", &json!(["1.2.3.branch.1"])),
        ),
        [
            moved("1.2.3.branch.2", add()),
            // Taken by the reply before.
            moved("1.2.3.branch.2", add()),
            moved("1.2.3.branch.1", add()),
            moved("1.2.3.branch.5", add()),
            moved("1.3.0", output("done")),
        ],
    )
    .await;
    assert_eq!(
        versions(&told),
        ["1.2.3.branch.2", "1.2.3.branch.5", "1.3.0"]
    );
    assert_eq!(told.calls.len(), 2);
    let last = told
        .events
        .iter()
        .rev()
        .find_map(|event| match &event.kind {
            EventKind::Meta { meta, .. } => Some(json!(meta)),
            _ => None,
        });
    assert_eq!(
        last.unwrap(),
        json!({"domain": "shop", "path": "prices", "version": "1.3.0",
            "branches": ["1.2.3.branch.1", "1.2.3.branch.2", "1.2.3.branch.5"]})
    );
}

/// As the fixture says it, in all contracts: a patch, a named branch of the version and of its line, and
/// back.
#[tokio::test]
async fn a_patch_and_named_branches_move_the_version() {
    let fixture = include_str!("../../../../tests/fixtures/protocol/versions.json");
    let fixture: Value = serde_json::from_str(fixture).unwrap();
    for contract in Contract::ALL {
        for scenario in fixture.as_array().unwrap() {
            let mut versions_written: Vec<&str> = Vec::new();
            let mut replies: Vec<Value> = Vec::new();
            for version in scenario["versions"].as_array().unwrap() {
                versions_written.push(version.as_str().unwrap());
                replies.push(moved(version.as_str().unwrap(), add()));
            }
            *replies.last_mut().unwrap() = moved(versions_written.last().unwrap(), output("done"));
            let mut run_request = request(contract, json!([scenario["message"]]));
            run_request.settings.max_steps = 10;
            let told = run(run_request, replies).await;
            let name = &scenario["name"];
            assert_eq!(versions(&told), versions_written, "{contract:?} {name}");
            let last = told
                .events
                .iter()
                .rev()
                .find_map(|event| match &event.kind {
                    EventKind::Meta { meta, .. } => Some(json!(meta.branches)),
                    _ => None,
                });
            assert_eq!(last.unwrap(), scenario["branches"], "{contract:?} {name}");
        }
    }
}

#[tokio::test]
async fn a_model_that_never_moves_the_version_ends_the_run_without_a_call() {
    let told = run(
        request(Contract::Schema, message("1.2.3", &json!([]))),
        [add(), add(), add()],
    )
    .await;
    assert_eq!(told.done().0, StopReason::Unusable);
    assert!(told.calls.is_empty());
}

#[tokio::test]
async fn without_a_meta_message_none_is_asked_for() {
    let told = run(request(Contract::Schema, json!([])), [output("done")]).await;
    assert!(!told.requests[0].to_string().contains("\"meta\""));
}
