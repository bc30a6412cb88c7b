//! What a response that goes on from another shares with it: scratch files, and the items before.

use super::grants::host;
use super::{answers, calls, host as plain, scripted, serve};
use reqwest::Method;
use serde_json::{Value, json};
use support::endpoint::Reply;
use support::server::Server;

const PATH: &str = "/v1/responses";

fn asked(after: Option<&Value>) -> Value {
    json!({"model": "default", "input": "go on", "previous_response_id": after.map(|it| it["id"].clone())})
}

/// One call of the probe, and an answer.
fn using(tool: &str, arguments: Value) -> [Reply; 2] {
    [calls([(tool, arguments)]), answers("done")]
}

fn write(file: &str, bytes: usize) -> [Reply; 2] {
    using(
        "probe.write",
        json!({"path": format!("/scratch/{file}"), "bytes": bytes}),
    )
}

fn read(file: &str) -> [Reply; 2] {
    using("probe.read", json!({"path": format!("/scratch/{file}")}))
}

/// A response, and what came of its only call: the result, or null where it failed.
fn response(server: &Server, after: Option<&Value>) -> (Value, Value) {
    let response = server.post(PATH, &asked(after)).good();
    let run = response["toolhold"]["run"].as_str().unwrap();
    let run = server.get(&format!("/v1/runs/{run}")).good();
    let call = run["answer"]["steps"][0]["calls"][0].clone();
    (response, call["result"].clone())
}

/// Each begins with what the one before left, and changes nothing for those beside it.
#[test]
fn scratch_files_go_on_from_response_to_response() {
    let host = host(
        "[modules]\npinning = \"never\"\n[module.probe]\nscratch = { keep = \"session\" }\nkey_value = {}\n",
    );
    let script = [
        write("x", 1_000),
        // A chain of three; the second calls nothing.
        [answers("nothing"), answers("unused")],
        read("x"),
        // Two branches from the first.
        write("x", 7),
        read("x"),
        write("y", 3),
        // The chain that each belongs to.
        read("x"),
        read("y"),
        // A response of its own.
        read("x"),
    ];
    let replies = script
        .into_iter()
        .enumerate()
        .flat_map(|(index, [first, second])| {
            if index == 1 {
                vec![first]
            } else {
                vec![first, second]
            }
        });
    let endpoint = scripted(replies);
    let server = serve(&host, &endpoint);
    let (first, written) = response(&server, None);
    assert_eq!(written, 1_000);
    let (second, _) = response(&server, Some(&first));
    let (third, seen) = response(&server, Some(&second));
    assert_eq!(seen, 1_000, "the file of the first");

    let (branch, _) = response(&server, Some(&first));
    let (other, seen) = response(&server, Some(&first));
    assert_eq!(seen, 1_000, "not what the other branch made of it");
    let (further, _) = response(&server, Some(&third));
    assert_eq!(response(&server, Some(&branch)).1, 7);
    assert_eq!(response(&server, Some(&further)).1, 3);
    assert_eq!(response(&server, None).1, Value::Null, "of no other client");

    // Deleting a response deletes its own files and no others.
    let folders = || {
        let scratch = host.path().join(".state");
        sessions_below(&scratch)
    };
    let before = folders();
    let path = format!("{PATH}/{}", other["id"].as_str().unwrap());
    server.ask(Method::DELETE, &path, None, &[]).good();
    assert_eq!(folders(), before - 1);
}

/// Folders of sessions' scratch files.
fn sessions_below(folder: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let counts = entries.map(|entry| {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("session-") {
            1
        } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            sessions_below(&entry.path())
        } else {
            0
        }
    });
    counts.sum()
}

/// A client that may not see a response has none of its files.
#[test]
fn scratch_files_are_their_owners_alone() {
    let host =
        host("[modules]\npinning = \"never\"\n[module.probe]\nscratch = { keep = \"session\" }\n");
    let key = |name: &str| host.run(&["keys", "create", name]).stdout;
    let (ann, bob) = (key("ann"), key("bob"));
    let endpoint = scripted(write("x", 10));
    let mut server = serve(&host, &endpoint);
    server.use_key(&ann);
    let (first, _) = response(&server, None);
    server.use_key(&bob);
    assert_eq!(server.post(PATH, &asked(Some(&first))).status, 404);
    assert_eq!(endpoint.requests().len(), 2);
}

fn items(server: &Server, response: &Value, query: &str) -> Value {
    let id = response["id"].as_str().unwrap();
    server
        .get(&format!("{PATH}/{id}/input_items?{query}"))
        .good()
}

#[test]
fn input_items_of_a_response_are_listed() {
    let host = plain("");
    let endpoint = scripted([answers("Hello Ann"), answers("Ann"), answers("run")]);
    let server = serve(&host, &endpoint);
    let input = json!([
        {"role": "system", "content": "Speak plainly."},
        {"role": "user", "id": "msg_mine", "content": [{"type": "input_text", "text": "I am Ann"}]},
    ]);
    let first = json!({"model": "default", "input": input});
    let first = server.post(PATH, &first).good();
    let listed = items(&server, &first, "order=asc");
    let data = listed["data"].as_array().unwrap();
    assert_eq!(data.len(), 2);
    assert_eq!(
        data[1],
        json!({"type": "message", "id": "msg_mine", "status": "completed", "role": "user",
            "content": [{"type": "input_text", "text": "I am Ann"}]})
    );
    assert_eq!(
        (&listed["object"], &listed["has_more"], &listed["last_id"]),
        (&json!("list"), &json!(false), &json!("msg_mine"))
    );
    assert_eq!(listed["first_id"], data[0]["id"]);

    // The next was made from all of that, and what was answered.
    let (second, _) = response(&server, Some(&first));
    let all = items(&server, &second, "order=asc");
    let texts: Vec<&Value> = all["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["content"][0]["text"])
        .collect();
    assert_eq!(texts, ["Speak plainly.", "I am Ann", "Hello Ann", "go on"]);
    assert_eq!(all["data"][2], first["output"][0]);
    let page = items(&server, &second, "limit=3");
    assert_eq!(
        (&page["data"][0], &page["has_more"]),
        (&all["data"][3], &json!(true))
    );
    let after = page["last_id"].as_str().unwrap();
    let rest = items(&server, &second, &format!("limit=3&after={after}"));
    assert_eq!(rest["data"], json!([all["data"][0]]));

    // A run that was begun otherwise says what it was told.
    let run = json!({"messages": [{"role": "user", "content": "hi"}]});
    let run = server.post("/v1/agent", &run).good();
    let id = format!("resp_{}", run["id"].as_str().unwrap().replace('-', ""));
    let listed = items(&server, &json!({"id": id}), "");
    assert_eq!(listed["data"][0]["content"][0]["text"], "hi");

    let path = format!("{PATH}/{}/input_items", second["id"].as_str().unwrap());
    for (query, reason) in [
        ("limit=0", "limit: 1 to 100"),
        ("limit=101", "limit: 1 to 100"),
        ("order=up", "order"),
        ("after=x", "no item of this response"),
    ] {
        let refused = server.get(&format!("{path}?{query}"));
        assert_eq!(refused.status, 400, "{query}: {refused:?}");
        assert!(refused.text.contains(reason), "{query}: {refused:?}");
    }
    let unknown = server.get(&format!("{PATH}/resp_1/input_items"));
    assert_eq!(unknown.status, 404, "{unknown:?}");
}
