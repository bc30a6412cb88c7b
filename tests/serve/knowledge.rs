//! Knowledge over HTTP: documents of keys, which are apart unless they are shared.

use super::{host, scripted, serve};
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use support::host::Host;
use support::server::{Answered, Server};
use support::until;

const ALL: &str = "/v1/knowledge/collections";

fn key(host: &Host, name: &str) -> String {
    host.run(&["keys", "create", name]).stdout
}

fn put(server: &Server, path: &str, body: &Value) -> Answered {
    server.ask(Method::PUT, path, Some(body), &[])
}

fn delete(server: &Server, path: &str) -> Answered {
    server.ask(Method::DELETE, path, None, &[])
}

fn create(server: &Server, name: &str) {
    let created = server.post(ALL, &json!({"name": name}));
    assert_eq!(created.status, 201, "{created:?}");
}

fn add(server: &Server, collection: &str, source: &str, text: &str) -> Answered {
    let document = json!({"source": source, "content": text});
    server.post(&format!("{ALL}/{collection}/documents"), &document)
}

fn search(server: &Server, body: &Value) -> Vec<Value> {
    let found = server.post("/v1/knowledge/search", body).good();
    found["passages"].as_array().unwrap().clone()
}

#[test]
fn a_document_is_added_found_read_and_deleted() {
    let (host, endpoint) = (host(""), scripted([]));
    let server = serve(&host, &endpoint);
    create(&server, "handbook");
    assert_eq!(server.post(ALL, &json!({"name": "handbook"})).status, 409);
    let path = format!("{ALL}/handbook/documents");
    let text = "# Fees\n\n## Cards\n\nA lost card costs 20 euro.\n";
    let document = json!({"source": "fees.md", "content": text, "labels": {"team": "a"}});
    let added = server.post(&path, &document);
    assert_eq!(added.status, 201, "{added:?}");
    let added = added.json();
    assert_eq!(
        (&added["result"], &added["document"]["mime_type"]),
        (&json!("added"), &json!("text/markdown"))
    );
    let id = added["document"]["id"].as_str().unwrap();
    let again = server.post(&path, &document);
    assert_eq!(
        (again.status, &again.json()["result"]),
        (200, &json!("unchanged"))
    );
    // The same as bytes; and one more, whose type is that of its header.
    let labels = "%7B%22team%22%3A%22b%22%7D";
    let raw = format!("{path}?source=fees.md&labels={labels}");
    let labelled = server.send(&raw, "text/markdown", text.as_bytes(), &[]);
    assert_eq!(
        (labelled.status, &labelled.json()["result"]),
        (200, &json!("labelled"))
    );
    let raw = format!("{path}?source=hours&title=Hours");
    let other = server.send(
        &raw,
        "text/plain; charset=utf-8",
        b"Open on Saturdays.",
        &[],
    );
    assert_eq!(
        (other.status, &other.json()["document"]["title"]),
        (201, &json!("Hours"))
    );

    let found = search(&server, &json!({"text": "What does a lost card cost?"}));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["collection"], "handbook");
    assert_eq!(found[0]["document"]["id"], id);
    assert_eq!(found[0]["headings"], json!(["Fees"]));
    let (starts, ends) = (
        found[0]["starts"].as_u64().unwrap(),
        found[0]["ends"].as_u64().unwrap(),
    );
    let quoted = &text[usize::try_from(starts).unwrap()..usize::try_from(ends).unwrap()];
    assert_eq!(found[0]["text"], quoted);
    let both =
        json!({"texts": ["lost card", "open saturdays"], "collections": ["handbook"], "most": 9});
    assert_eq!(search(&server, &both).len(), 2);
    let narrowed =
        json!({"texts": ["lost card", "open saturdays"], "labels": {"team": "b"}, "by": "words"});
    assert_eq!(search(&server, &narrowed).len(), 1);

    let listed = server.get(&format!("{path}?limit=1")).good();
    assert_eq!(listed["documents"][0]["source"], "hours");
    let before = listed["documents"][0]["id"].as_str().unwrap();
    let rest = server
        .get(&format!("{path}?limit=9&before={before}"))
        .good();
    assert_eq!(rest["documents"].as_array().unwrap().len(), 1, "{rest}");
    let shown = server.get(&format!("{path}/{id}")).good();
    assert_eq!(shown["content"][0]["text"], quoted, "{shown}");
    let of = server.get(&format!("{ALL}/handbook")).good();
    assert_eq!(
        (&of["documents"], &of["access"]),
        (&json!(2), &json!("own"))
    );

    let handbook = format!("{ALL}/handbook");
    for (change, kept) in [
        (json!({"keep_days": 7}), json!(7)),
        (json!({}), json!(7)),
        (json!({"keep_days": null}), json!(null)),
    ] {
        let changed = server.ask(Method::PATCH, &handbook, Some(&change), &[]);
        assert_eq!(changed.good()["keep_days"], kept, "{change}");
        assert_eq!(server.get(&handbook).good()["keep_days"], kept, "{change}");
    }

    assert_eq!(delete(&server, &format!("{path}/{id}")).status, 204);
    assert_eq!(delete(&server, &format!("{path}/{id}")).status, 404);
    assert!(search(&server, &json!({"text": "lost card"})).is_empty());
    assert_eq!(delete(&server, &format!("{ALL}/handbook")).status, 204);
    assert_eq!(server.get(&format!("{ALL}/handbook")).status, 404);
    let log = server.get("/v1/audit").good().to_string();
    for action in [
        "collection_created",
        "document_added",
        "document_labelled",
        "document_deleted",
        "collection_deleted",
    ] {
        assert!(log.contains(action), "{action}: {log}");
    }
    // What was deleted leaves the database without another request.
    let database = host.path().join("state/toolhold.db");
    let holds = |what: &str| {
        let log = database.with_extension("db-wal");
        [&database, &log].iter().any(|file| {
            let bytes = std::fs::read(file).unwrap_or_default();
            bytes
                .windows(what.len())
                .any(|part| part == what.as_bytes())
        })
    };
    until("a database without the passages", || {
        (!holds("A lost card costs")).then_some(())
    });
}

#[test]
fn keys_are_apart_on_every_route_unless_a_collection_is_shared() {
    let (host, endpoint) = (host(""), scripted([]));
    let (ann, bob) = (key(&host, "ann"), key(&host, "bob"));
    let mut server = serve(&host, &endpoint);
    server.use_key(&ann);
    create(&server, "plans");
    let added = add(&server, "plans", "plan.md", "The secret plan.").good();
    let document = added["document"]["id"].as_str().unwrap().to_owned();
    server.use_key(&bob);
    create(&server, "plans");
    let theirs = format!("{ALL}/ann%2Fplans");
    let there = format!("{theirs}/documents/{document}");
    let share = json!({"access": "write"});
    let routes = |server: &Server| {
        [
            server.get(&theirs),
            server.ask(Method::PATCH, &theirs, Some(&json!({"keep_days": 1})), &[]),
            delete(server, &theirs),
            server.get(&format!("{theirs}/documents")),
            add(server, "ann%2Fplans", "x.md", "Text."),
            server.get(&there),
            delete(server, &there),
            server.get(&format!("{theirs}/export")),
            server.get(&format!("{theirs}/shares")),
            put(server, &format!("{theirs}/shares/bob"), &share),
            delete(server, &format!("{theirs}/shares/bob")),
            server.post(
                "/v1/knowledge/search",
                &json!({"text": "plan", "collections": ["ann/plans"]}),
            ),
        ]
        .map(|answered| answered.status)
    };
    assert_eq!(routes(&server), [404; 12]);
    // An id of another's document helps no more in a collection of one's own.
    assert_eq!(
        server
            .get(&format!("{ALL}/plans/documents/{document}"))
            .status,
        404
    );
    assert_eq!(
        delete(&server, &format!("{ALL}/plans/documents/{document}")).status,
        404
    );
    assert!(search(&server, &json!({"text": "plan"})).is_empty());
    assert_eq!(
        server.get(ALL).good()["collections"]
            .as_array()
            .unwrap()
            .len(),
        1
    );

    server.use_key(&ann);
    let mine = format!("{ALL}/plans/shares");
    assert_eq!(
        put(&server, &format!("{mine}/bob"), &json!({"access": "read"})).status,
        204
    );
    // A name that no key has is told apart by nothing.
    assert_eq!(
        put(
            &server,
            &format!("{mine}/nobody"),
            &json!({"access": "read"})
        )
        .status,
        204
    );
    for (path, body) in [
        ("ann", json!({"access": "read"})),
        ("B%00b", json!({"access": "read"})),
        ("bob", json!({"access": "all"})),
    ] {
        assert_eq!(
            put(&server, &format!("{mine}/{path}"), &body).status,
            400,
            "{path}"
        );
    }
    let shared = server.get(&mine).good();
    assert_eq!(shared["shares"][0], json!({"key": "bob", "access": "read"}));
    server.use_key(&bob);
    assert_eq!(
        routes(&server),
        [200, 403, 403, 200, 403, 200, 403, 200, 403, 403, 403, 200]
    );
    // An offer changes nothing but what a name finds.
    let plan = json!({"text": "plan"});
    assert!(search(&server, &plan).is_empty());
    let by_name = json!({"text": "plan", "collections": ["ann/plans"]});
    assert_eq!(search(&server, &by_name).len(), 1);
    let listed = server.get(ALL).good();
    let offer = &listed["collections"][1];
    assert_eq!(
        (&offer["name"], &offer["access"], &offer["offered"]),
        (&json!("ann/plans"), &json!("read"), &json!(true))
    );
    let answer = format!("{theirs}/share");
    assert_eq!(put(&server, &answer, &json!(null)).status, 204);
    let found = search(&server, &plan);
    assert_eq!(
        (found.len(), &found[0]["collection"]),
        (1, &json!("ann/plans"))
    );
    let listed = server.get(ALL).good();
    assert_eq!(listed["collections"][1]["offered"], json!(null));
    assert_eq!(delete(&server, &answer).status, 204);
    assert_eq!(routes(&server), [404; 12]);
    assert_eq!(delete(&server, &answer).status, 404);
    assert_eq!(put(&server, &answer, &json!(null)).status, 404);
    let own = format!("{ALL}/plans/share");
    assert_eq!(put(&server, &own, &json!(null)).status, 400);
    assert_eq!(delete(&server, &own).status, 400);

    server.use_key(&ann);
    assert_eq!(put(&server, &format!("{mine}/bob"), &share).status, 204);
    server.use_key(&bob);
    assert_eq!(
        add(&server, "ann%2Fplans", "y.md", "Another secret.").status,
        201
    );
    assert_eq!(
        delete(&server, &theirs).status,
        403,
        "writing is not owning"
    );
    server.use_key(&ann);
    assert_eq!(delete(&server, &format!("{mine}/bob")).status, 204);
    assert_eq!(delete(&server, &format!("{mine}/bob")).status, 404);
    server.use_key(&bob);
    assert_eq!(routes(&server), [404; 12]);
    // Who did what.
    let log = host.run(&["audit", "search", "--json"]).stdout;
    let by_bob = log
        .lines()
        .any(|line| line.contains("document_added") && line.contains("\"bob\""));
    assert!(by_bob, "{log}");
    for action in ["collection_shared", "share_accepted", "share_left"] {
        assert!(log.contains(action), "{action}: {log}");
    }
}

#[test]
fn the_terminal_shares_and_exports_what_keys_use() {
    let (host, endpoint) = (host(""), scripted([]));
    host.write("notes/fees.md", "# Fees\n\nA lost card costs 20 euro.\n");
    assert_eq!(host.run(&["knowledge", "add", "notes"]).code, Some(0));
    let ann = key(&host, "ann");
    let shared = host.run(&["knowledge", "share", "documents", "ann"]);
    assert_eq!(shared.code, Some(0), "{shared:?}");
    let mut server = serve(&host, &endpoint);
    server.use_key(&ann);
    let found = search(&server, &json!({"text": "card"}));
    assert_eq!(found[0]["collection"], "~/documents", "{found:?}");
    assert_eq!(add(&server, "~%2Fdocuments", "x", "x y z").status, 403);
    let lines = server.get(&format!("{ALL}/~%2Fdocuments/export"));
    assert_eq!(lines.headers["content-type"], "application/jsonl");
    assert_eq!(lines.text.lines().count(), 2, "{lines:?}");
    host.write("export.jsonl", &lines.text);
    let imported = host.run(&["knowledge", "import", "copy", "export.jsonl"]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    assert_eq!(
        host.run(&["knowledge", "unshare", "documents", "ann"]).code,
        Some(0)
    );
    assert!(search(&server, &json!({"text": "card"})).is_empty());
    let left = host.run(&[
        "knowledge",
        "search",
        "--json",
        "--collection",
        "copy",
        "card",
    ]);
    assert!(left.stdout.contains("20 euro"), "{left:?}");
}

#[test]
fn what_is_no_document_and_no_question_is_refused_with_its_reason() {
    let (host, endpoint) = (host(""), scripted([]));
    let server = serve(&host, &endpoint);
    create(&server, "c");
    let path = format!("{ALL}/c/documents");
    for (source, kind, bytes, status, said) in [
        (
            "a.pdf",
            "application/octet-stream",
            &b"%PDF-1.7"[..],
            422,
            "it is damaged",
        ),
        ("a", "application/pdf", b"%PDF-1.7", 422, "it is damaged"),
        (
            "a.txt",
            "text/plain",
            b"\xff\xfea\0",
            415,
            "iconv -f UTF-16",
        ),
        ("a.txt", "text/plain", b"a\0b", 415, "no text"),
        ("a.txt", "text/plain", b"\xc3\x28", 415, "not UTF-8"),
        ("a.txt", "text/plain", b"  \n ", 422, "no text in it"),
        ("", "text/plain", b"text", 400, "source"),
        ("%00", "text/plain", b"text", 400, "source"),
    ] {
        let refused = server.send(&format!("{path}?source={source}"), kind, bytes, &[]);
        assert_eq!(refused.status, status, "{source} {kind}: {refused:?}");
        assert!(refused.text.contains(said), "{refused:?}");
    }
    let long = "x".repeat(2_001);
    for (body, status) in [
        (json!({"source": "a"}), 400),
        (json!({"source": "a", "content": "b", "more": 1}), 400),
        (
            json!({"source": "a", "content": "b", "labels": {"c": 1}}),
            400,
        ),
        (
            json!({"source": "a", "content": "b", "labels": {"c": "\u{0}"}}),
            400,
        ),
        (json!({"source": long, "content": "b"}), 400),
        (json!({"source": "a", "content": "b", "title": long}), 400),
        (
            json!({"source": "a", "content": "b", "labels": {"c": long}}),
            400,
        ),
        (
            json!({"source": "a", "content": "b", "mime_type": "application/pdf"}),
            422,
        ),
        (json!([1]), 400),
        (json!(null), 400),
    ] {
        let refused = server.post(&path, &body);
        assert_eq!(refused.status, status, "{body}: {refused:?}");
        assert!(refused.json()["error"]["message"].is_string());
    }
    let refused = server.send(
        &format!("{path}?source=a&labels=x"),
        "text/plain",
        b"b",
        &[],
    );
    assert_eq!(refused.status, 400, "{refused:?}");
    let large = vec![b'x'; (16 << 20) + 1];
    let refused = server.send(&format!("{path}?source=a"), "text/plain", &large, &[]);
    assert_eq!(refused.status, 413, "{refused:?}");
    for name in ["", "A", "a/b", "1", "~", &"a".repeat(49)] {
        let refused = server.post(ALL, &json!({"name": name}));
        assert_eq!(refused.status, 400, "{name}: {refused:?}");
    }
    for days in [json!(0), json!(-1), json!("x"), json!(1e10)] {
        let refused = server.post(ALL, &json!({"name": "d", "keep_days": days}));
        assert_eq!(refused.status, 400, "{days}: {refused:?}");
    }
    for name in ["d", "%00", "a%2Fb%2Fc", "..", "%F0%9F%92%A9"] {
        assert_eq!(
            server.get(&format!("{ALL}/{name}/documents")).status,
            404,
            "{name}"
        );
    }
    for (body, status) in [
        (json!({}), 400),
        (json!({"text": " "}), 400),
        (json!({"text": "a", "most": 0}), 400),
        (json!({"text": "a", "most": 101}), 400),
        (json!({"text": "a", "most_of_document": 0}), 400),
        (json!({"text": "a", "by": "magic"}), 400),
        (json!({"text": "a", "collections": ["d"]}), 404),
        (json!({"text": "x ".repeat(9_000)}), 400),
        (
            json!({"texts": ["a", "b", "c", "d", "e", "f", "g", "h", "i"]}),
            400,
        ),
        (json!({"text": "\u{0} OR \" * NEAR("}), 200),
        (json!({"text": "a", "labels": {"\u{0}": "\u{0}"}}), 200),
    ] {
        let refused = server.post("/v1/knowledge/search", &body);
        assert_eq!(refused.status, status, "{body}: {refused:?}");
    }
    let refused = server.get(&format!("{path}?limit=0"));
    assert_eq!(refused.status, 400, "{refused:?}");
    for number in 1..100 {
        create(&server, &format!("c{number}"));
    }
    let refused = server.post(ALL, &json!({"name": "another"}));
    assert_eq!(refused.status, 409, "{refused:?}");
}

/// Neither an upload that breaks off nor a client that does not wait for the answer leaves anything half done.
#[test]
fn a_client_that_goes_away_leaves_no_half_document() {
    let (host, endpoint) = (host(""), scripted([]));
    let server = serve(&host, &endpoint);
    create(&server, "c");
    let address = server.address().trim_start_matches("http://").to_owned();
    let upload = |length: usize, text: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(
            stream,
            "POST {ALL}/c/documents?source=late HTTP/1.1\r\nHost: {address}\r\nContent-Type: text/plain\r\n\
             Content-Length: {length}\r\n\r\n{text}"
        )
        .unwrap();
        stream
    };
    let text = "A sentence about lost cards. ".repeat(20_000);
    drop(upload(text.len() + 1, &text));
    let listed = || server.get(&format!("{ALL}/c/documents")).good()["documents"].clone();
    assert_eq!(listed(), json!([]));
    // All of it arrives, and nobody waits for the answer.
    let mut stream = upload(text.len(), &text);
    stream
        .set_read_timeout(Some(std::time::Duration::from_millis(50)))
        .unwrap();
    let _ = stream.read(&mut [0; 1]);
    drop(stream);
    until("the document", || {
        (listed()[0]["bytes"] == json!(text.len())).then_some(())
    });
    let again = server.send(
        &format!("{ALL}/c/documents?source=late"),
        "text/plain",
        text.as_bytes(),
        &[],
    );
    assert_eq!(again.json()["result"], "unchanged", "{again:?}");
}
