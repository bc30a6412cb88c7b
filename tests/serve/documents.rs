//! Documents that come with a task: passages of them are found before the model is asked, the answer cites them, and
//! citations are checked.

use super::{host, scripted, serve};
use reqwest::Method;
use serde_json::{Value, json};
use support::transcript::{answers, told};

const FEES: &str = "# Fees\n\n## Cards\n\nA replacement of a lost card costs 20 euro.\n";
const HOURS: &str = "Open on Saturdays from nine to twelve.";

fn with_documents(text: &str, documents: &Value) -> Value {
    json!({"messages": [{"role": "user", "content": text}], "documents": documents})
}

#[test]
fn passages_of_the_documents_are_shown_and_cited() {
    let host = host("");
    let endpoint = scripted([answers(
        "\"A replacement of a lost card costs 20 euro\" [k1]. \"It is 30\" [k1]. Elsewhere [k7].",
    )]);
    let server = serve(&host, &endpoint);
    let task = with_documents(
        "What does a lost card cost?",
        &json!([
            {"content": FEES, "mime_type": "text/markdown", "name": "fees.md"},
            {"content": HOURS, "mime_type": "text/plain"},
        ]),
    );
    let answer = server.post("/v1/agent", &task).good();
    let first = &answer["steps"][0];
    assert_eq!(first["step"], 0, "{answer}");
    let passage = &first["retrieved"][0];
    assert_eq!(
        (&passage["id"], &passage["source"], &passage["heading"]),
        (&json!("k1"), &json!("fees.md"), &json!("Fees")),
        "{answer}"
    );
    assert_eq!(
        answer["citations"],
        json!([
            {"id": "k1", "source": "fees.md", "quote": "A replacement of a lost card costs 20 euro", "holds": true},
            {"id": "k1", "source": "fees.md", "quote": "It is 30", "holds": false},
            {"id": "k7", "holds": false},
        ])
    );
    let told = told(&endpoint, 0);
    assert!(
        told.contains("costs 20 euro") && told.contains("# Knowledge"),
        "{told}"
    );
    // They are the run's, and no collection of the client's.
    let listed = server.get("/v1/knowledge/collections").good();
    assert_eq!(listed["collections"], json!([]), "{listed}");
    let found = server
        .post("/v1/knowledge/search", &json!({"text": "card"}))
        .good();
    assert_eq!(found["passages"], json!([]), "{found}");
}

/// "Sum this up" names nothing that could be found: the documents are shown from their beginnings.
#[test]
fn documents_are_shown_where_nothing_of_the_question_is_in_them() {
    let host = host("");
    let endpoint = scripted([answers("It says when it is open [k1].")]);
    let server = serve(&host, &endpoint);
    let task = with_documents("Sum this up, please.", &json!([{"content": HOURS}]));
    let answer = server.post("/v1/agent", &task).good();
    assert_eq!(answer["citations"][0]["holds"], true, "{answer}");
    assert!(told(&endpoint, 0).contains(HOURS));
}

#[test]
fn a_session_finds_what_came_with_its_earlier_turns_until_it_is_deleted() {
    let host = host("");
    let endpoint = scripted([
        answers("20 euro [k1]."),
        answers("On Saturdays [k101]."),
        answers("nothing"),
    ]);
    let server = serve(&host, &endpoint);
    let session = |server: &support::server::Server| {
        let made = server.post("/v1/sessions", &json!({})).good();
        format!("/v1/sessions/{}", made["id"].as_str().unwrap())
    };
    let (one, other) = (session(&server), session(&server));
    let documents =
        json!([{"content": FEES, "name": "fees.md"}, {"content": HOURS, "name": "hours.txt"}]);
    let turns = format!("{one}/turns");
    let first = with_documents("What does a lost card cost?", &documents);
    server.post(&turns, &first).good();
    let second = json!({"messages": [{"role": "user", "content": "When is it open?"}]});
    let answer = server.post(&turns, &second).good();
    assert_eq!(answer["citations"][0]["source"], "hours.txt", "{answer}");
    // Another session has its own.
    let turns = format!("{other}/turns");
    let answer = server.post(&turns, &second).good();
    assert!(answer["steps"][0]["retrieved"].is_null(), "{answer}");
    let gone = server.ask(Method::DELETE, &one, None, &[]);
    assert_eq!(gone.status, 204, "{gone:?}");
}

#[test]
fn a_document_that_cannot_be_read_is_named() {
    let host = host("");
    let endpoint = scripted([]);
    let server = serve(&host, &endpoint);
    for (document, status, reason) in [
        (json!({}), 400, "documents[1]: expected content"),
        (json!({"data": "%%%"}), 400, "documents[1]: data"),
        (json!({"data": "AAEC"}), 415, "documents[1]"),
        (
            json!({"content": "", "name": "empty.txt"}),
            422,
            "documents[1]",
        ),
        (json!({"text": "a"}), 400, "unknown field"),
    ] {
        let task = with_documents("?", &json!([{"content": HOURS}, document]));
        let refused = server.post("/v1/agent", &task);
        assert_eq!(refused.status, status, "{document}: {refused:?}");
        assert!(refused.text.contains(reason), "{document}: {refused:?}");
    }
    let many = vec![json!({"content": HOURS}); 33];
    let refused = server.post("/v1/agent", &with_documents("?", &json!(many)));
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(endpoint.requests().len(), 0);
}

#[test]
fn an_agent_looks_into_the_collections_that_it_names() {
    let host = host(
        "[agents.clerk.knowledge]\ncollections = [\"manual\", \"missing\"]\ncitations = \"require\"\n",
    );
    let endpoint = scripted([
        answers("20 euro"),
        answers("20 euro [k1]"),
        answers("no idea"),
    ]);
    let server = serve(&host, &endpoint);
    let made = server.post("/v1/knowledge/collections", &json!({"name": "manual"}));
    assert_eq!(made.status, 201, "{made:?}");
    let document = json!({"source": "fees.md", "content": FEES});
    let added = server.post("/v1/knowledge/collections/manual/documents", &document);
    assert_eq!(added.status, 201, "{added:?}");
    let mut task =
        json!({"messages": [{"role": "user", "content": "What does a lost card cost?"}]});
    task["agent"] = "clerk".into();
    let answer = server.post("/v1/agent", &task).good();
    assert_eq!(answer["citations"][0]["holds"], true, "{answer}");
    let notices = answer["notices"].to_string();
    assert!(
        notices.contains("no collection \\\"missing\\\""),
        "{notices}"
    );
    assert!(told(&endpoint, 1).contains("names no passage"));
    // The default agent looks for nothing.
    task["agent"] = "default".into();
    let answer = server.post("/v1/agent", &task).good();
    assert!(answer["steps"][0]["retrieved"].is_null(), "{answer}");
}
