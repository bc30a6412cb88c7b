//! The module `knowledge`: documents and facts as tools of a model, with the real binary.

use crate::run::{answers, calls};
use serde_json::{Value, json};
use sqlx::Connection as _;
use std::io::Write as _;
use std::process::Stdio;
use support::endpoint::{Endpoint, Scenario};
use support::host::{Finished, Host, finish};

/// All that the module asks for.
const ALL: &str = "[module.knowledge]\nknowledge = { collections = [{ name = \"*\" }], \
     memory = { user = [\"recall\", \"remember\", \"forget\"] } }\n";

fn host(config: &str) -> Host {
    let host = Host::new();
    host.ship("knowledge")
        .write(
            "toolhold.toml",
            format!("[modules]\npinning = \"never\"\n{config}"),
        )
        .write(
            "notes/fees.md",
            "# Fees\n\nAll fees are for private customers.\n\n## Cards\n\nA lost card costs 20 euro.\n",
        )
        .write("secret/plan.md", "The secret plan of the cards is Friday.\n");
    for (folder, collection) in [("notes", "fees"), ("secret", "plans")] {
        let added = host.run(&["knowledge", "add", "--collection", collection, folder]);
        assert_eq!(added.code, Some(0), "{added:?}");
    }
    host
}

fn call(host: &Host, tool: &str, arguments: &Value) -> Finished {
    host.run(&["modules", "call", tool, &arguments.to_string()])
}

fn ok(host: &Host, tool: &str, arguments: &Value) -> Value {
    let done = call(host, tool, arguments);
    assert_eq!(done.code, Some(0), "{done:?}");
    serde_json::from_str(&done.stdout).unwrap()
}

fn run(host: &Host, endpoint: &Endpoint, task: &str) -> Finished {
    let url = endpoint.base_url();
    let done = host.run(&["run", task, "--base-url", &url]);
    assert_eq!(done.code, Some(0), "{done:?}");
    done
}

fn told(endpoint: &Endpoint, n: usize) -> String {
    endpoint.requests()[n]["messages"].to_string()
}

#[test]
fn a_run_searches_documents_and_remembers_for_the_next() {
    let host = host(ALL);
    let endpoint = Endpoint::start(Scenario::new([
        calls(
            "knowledge.search",
            json!({"question": "cost of a lost card"}),
        ),
        calls(
            "knowledge.remember",
            json!({"text": "The user lost a card in May", "confidence": 0.9}),
        ),
        answers(json!("20 euro")),
    ]));
    let done = run(&host, &endpoint, "What does my lost card cost?");
    assert_eq!(done.stdout.trim(), "20 euro");
    let seen = told(&endpoint, 1);
    assert!(seen.contains("A lost card costs 20 euro."), "{seen}");

    let endpoint = Endpoint::start(Scenario::new([
        calls(
            "knowledge.recall",
            json!({"question": "when was the card lost?"}),
        ),
        answers(json!("in May")),
    ]));
    run(&host, &endpoint, "When did I lose it?");
    let seen = told(&endpoint, 1);
    assert!(seen.contains("The user lost a card in May"), "{seen}");

    // What a person sees of it, and forgets.
    let list = host.run(&["memory", "list", "--json"]);
    let fact: Value = serde_json::from_str(&list.stdout).unwrap();
    assert_eq!(
        (&fact["scope"], &fact["confidence"]),
        (&"user".into(), &0.9.into())
    );
    assert!(
        fact["source"]
            .as_str()
            .unwrap()
            .starts_with("knowledge.remember in call "),
        "{fact}"
    );
    let id = fact["id"].as_str().unwrap();
    let new = ok(
        &host,
        "knowledge.remember",
        &json!({"text": "The user lost a card in June", "replaces": id}),
    );
    let new = new["id"].as_str().unwrap();
    let late = call(
        &host,
        "knowledge.remember",
        &json!({"text": "It was July", "replaces": id}),
    );
    assert!(late.stderr.contains(new), "{late:?}");
    let shown = host.run(&["memory", "show", new]);
    let lines: Vec<&str> = shown.stdout.lines().map(str::trim).collect();
    assert!(
        lines.contains(&"The user lost a card in May")
            && lines.contains(&"The user lost a card in June")
            && shown.stdout.contains(&format!("by {new}")),
        "{shown:?}"
    );
    let log = host.run(&["audit", "export"]);
    assert!(
        log.stdout.contains("knowledge.remember") && !log.stdout.contains("card in "),
        "{log:?}"
    );
    let forgotten = host.run(&["memory", "forget", new, "--history", "--json"]);
    let forgotten: Value = serde_json::from_str(&forgotten.stdout).unwrap();
    assert_eq!(forgotten["facts"].as_array().unwrap().len(), 2);
    let none = ok(&host, "knowledge.recall", &json!({}));
    assert_eq!(none, json!({"facts": []}));
    let again = host.run(&["memory", "forget", new]);
    assert_eq!(again.code, Some(1), "{again:?}");
}

/// The newest run, and its record as it is stored.
fn last_record(host: &Host) -> (String, String) {
    let list = host.run(&["runs", "--last", "1", "--json"]);
    let row: Value = serde_json::from_str(list.stdout.trim()).unwrap();
    let run = row["run"].as_str().or(row["id"].as_str()).unwrap();
    let record = host.run(&["runs", "export", run]);
    assert_eq!(record.code, Some(0), "{record:?}");
    (run.to_owned(), record.stdout)
}

/// Returns those of `texts` that are in the bytes of the database or of its write-ahead log.
fn in_the_database<'t>(host: &Host, texts: &[&'t str]) -> Vec<&'t str> {
    let files = ["toolhold.db", "toolhold.db-wal"].map(|name| {
        let path = host.path().join(".state").join(name);
        std::fs::read(path).unwrap_or_default()
    });
    let has = |text: &&&str| {
        let mut files = files.iter();
        files.any(|bytes| bytes.windows(text.len()).any(|it| it == text.as_bytes()))
    };
    texts.iter().filter(has).copied().collect()
}

#[test]
fn deleted_and_forgotten_texts_go_out_of_the_records_of_runs() {
    const PASSAGE: &str = "A lost card costs 20 euro.";
    const FACT: &str = "The user lost a card in May";
    let host = host(&format!("{ALL}[knowledge]\ncollections = [\"fees\"]\n"));
    let endpoint = Endpoint::start(Scenario::new([
        calls(
            "knowledge.search",
            json!({"question": "cost of a lost card"}),
        ),
        calls("knowledge.remember", json!({"text": FACT})),
        calls("knowledge.recall", json!({"question": "card"})),
        answers(json!("It is known.")),
    ]));
    run(&host, &endpoint, "What does it cost to lose a card?");
    let (id, record) = last_record(&host);
    for part in ["\"event\":\"retrieved\"", PASSAGE, FACT] {
        assert!(record.contains(part), "{part}: {record}");
    }
    let list = host.run(&["memory", "list", "--json"]);
    let fact: Value = serde_json::from_str(&list.stdout).unwrap();
    for deletes in [
        &["memory", "forget", "--json", fact["id"].as_str().unwrap()][..],
        &[
            "knowledge",
            "remove",
            "--json",
            "--collection",
            "fees",
            "notes/fees.md",
        ],
    ] {
        let done = host.run(deletes);
        let told: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(told["records"], 1, "{done:?}");
    }

    let (_, record) = last_record(&host);
    assert!(
        !record.contains(PASSAGE) && !record.contains(FACT),
        "{record}"
    );
    assert_eq!(in_the_database(&host, &[PASSAGE, FACT]), Vec::<&str>::new());
    let shown = host.run(&["show", &id]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(
        shown.stdout.contains("It is known.") || shown.stderr.contains("It is known."),
        "{shown:?}"
    );
    let told = format!("{}{}", shown.stdout, shown.stderr);
    assert!(told.contains("texts were taken out"), "{told}");
    assert!(
        told.contains(&format!("fact {}", fact["id"].as_str().unwrap())),
        "{told}"
    );
    let replayed = host.run(&["runs", "replay", &id]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    assert!(replayed.stdout.contains("lacks texts"), "{replayed:?}");
    let verified = host.run(&["audit", "verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");

    // An exported file is as genuine as what this database tells of it.
    let file = host.path().join("record.jsonl");
    std::fs::write(&file, &record).unwrap();
    let shown = host.run(&["show", "record.jsonl"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    std::fs::write(
        &file,
        record.replacen("knowledge.search", "knowledge.serach", 9),
    )
    .unwrap();
    let shown = host.run(&["show", "record.jsonl"]);
    assert_ne!(shown.code, Some(0), "{shown:?}");
}

/// The first turn ends at a limit, with the data that its calls wrote, and the second goes on from that.
#[test]
fn an_end_that_the_host_composed_goes_out_of_its_record_and_of_the_next_turns() {
    const PASSAGE: &str = "A lost card costs 20 euro.";
    let host = host(&format!("{ALL}[run]\nmax_steps = 2\nwiring = \"always\"\n"));
    let search = |question: &str| {
        let arguments = json!({"question": question, "_outputPath": "†state.found"});
        calls("knowledge.search", arguments)
    };
    let endpoint = Endpoint::start(Scenario::new([
        search("cost of a lost card"),
        search("price of a lost card"),
        answers(json!("As I said.")),
    ]));
    let url = endpoint.base_url();
    let mut child = host
        .command(&["chat", "--base-url", &url, "--model", "m"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let typed = b"What does it cost to lose it?\nAnd now?\n";
    child.stdin.take().unwrap().write_all(typed).unwrap();
    let chatted = finish(child.wait_with_output().unwrap());
    assert!(chatted.stdout.contains("As I said."), "{chatted:?}");
    let list = host.run(&["runs", "--last", "2", "--json"]);
    let runs: Vec<String> = list
        .stdout
        .lines()
        .map(|line| {
            let row: Value = serde_json::from_str(line).unwrap();
            let run = row["run"].as_str().or(row["id"].as_str());
            run.unwrap().to_owned()
        })
        .collect();
    assert_eq!(runs.len(), 2, "{list:?}");
    let record = |run: &str| host.run(&["runs", "export", run]).stdout;
    let texts: Vec<String> = runs.iter().map(|run| record(run)).collect();
    assert!(
        texts.iter().all(|text| text.contains(PASSAGE)),
        "nothing is proved: {texts:?}"
    );
    let carries = texts.iter().filter(|text| text.contains("\"carried\":"));
    assert_eq!(carries.count(), 1, "{texts:?}");

    let document = ["--collection", "fees", "notes/fees.md"];
    let removed = host.run(&[&["knowledge", "remove", "--json"][..], &document].concat());
    let told: Value = serde_json::from_str(&removed.stdout).unwrap();
    assert_eq!(told["records"], 2, "{removed:?}");
    for run in runs.iter().map(String::as_str) {
        let text = record(run);
        assert!(!text.contains(PASSAGE), "{text}");
        for command in [&["show", run][..], &["runs", "replay", run]] {
            let done = host.run(command);
            assert_eq!(done.code, Some(0), "{done:?}");
        }
    }
    assert_eq!(in_the_database(&host, &[PASSAGE]), Vec::<&str>::new());
    let verified = host.run(&["audit", "verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

#[test]
fn a_fact_that_a_run_forgets_goes_out_of_its_own_record_at_its_end() {
    const FACT: &str = "The user likes marmalade";
    let host = host(ALL);
    let fact = ok(&host, "knowledge.remember", &json!({"text": FACT}));
    let endpoint = Endpoint::start(Scenario::new([
        calls("knowledge.recall", json!({})),
        calls("knowledge.forget", json!({"id": fact["id"]})),
        answers(json!("It is forgotten.")),
    ]));
    run(&host, &endpoint, "Forget what I like.");
    assert!(told(&endpoint, 1).contains(FACT));
    let (id, record) = last_record(&host);
    assert!(!record.contains(FACT), "{record}");
    assert_eq!(in_the_database(&host, &[FACT]), Vec::<&str>::new());
    let shown = host.run(&["show", &id]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
}

#[test]
fn a_module_reads_what_was_granted_and_nothing_else() {
    let question = json!({"question": "cards", "count": 20});
    let ungranted = host("");
    let denied = call(&ungranted, "knowledge.search", &question);
    assert_ne!(denied.code, Some(0));
    assert!(
        denied.stderr.contains("--with-collection"),
        "the operator is told: {denied:?}"
    );

    let granted = host(
        "[module.knowledge]\nknowledge = { collections = [{ name = \"fee*\", rights = [\"search\"] }] }\n",
    );
    let found = ok(&granted, "knowledge.search", &question);
    let found = found["passages"].as_array().unwrap();
    assert!(
        !found.is_empty() && found.iter().all(|it| it["collection"] == "fees"),
        "{found:?}"
    );
    let named = json!({"question": "cards", "collections": ["plans"]});
    let denied = call(&granted, "knowledge.search", &named);
    assert!(
        denied.stderr.contains("may not search the collection"),
        "{denied:?}"
    );
    let read = call(&granted, "knowledge.read", &json!({"id": found[0]["id"]}));
    assert!(read.stderr.contains("may read no collection"), "{read:?}");
    let fact = call(&granted, "knowledge.remember", &json!({"text": "x"}));
    assert!(
        fact.stderr.contains("--with-memory user:remember"),
        "{fact:?}"
    );

    // A passage of a collection that was not granted is not there, by its id either.
    let all = host(ALL);
    let plan = ok(
        &all,
        "knowledge.search",
        &json!({"question": "secret plan"}),
    );
    let plan = plan["passages"][0]["id"].clone();
    ok(&all, "knowledge.read", &json!({"id": plan}));
    all.write(
        "toolhold.toml",
        "[modules]\npinning = \"never\"\n[module.knowledge]\nknowledge = { collections = [{ name = \"fees\" }] }\n",
    );
    let read = call(&all, "knowledge.read", &json!({"id": plan}));
    assert!(read.stderr.contains("there is no passage"), "{read:?}");
}

#[test]
fn a_module_reads_around_a_passage() {
    let host = host(ALL);
    let found = ok(
        &host,
        "knowledge.search",
        &json!({"question": "lost card", "collections": ["fees"], "count": 1}),
    );
    let read = ok(
        &host,
        "knowledge.read",
        &json!({"id": found["passages"][0]["id"], "before": 9, "after": 9}),
    );
    let texts = read["passages"].as_array().unwrap();
    let all: String = texts.iter().filter_map(|it| it["text"].as_str()).collect();
    assert!(
        all.contains("private customers") && all.contains("20 euro"),
        "{read}"
    );
}

/// A collection of another owner is there for a module only where that owner shares it and the grant names it.
#[tokio::test(flavor = "multi_thread")]
async fn another_tenants_knowledge_is_not_reached() {
    let host = host(
        "[module.knowledge]\nknowledge = { collections = [{ name = \"*\" }, { name = \"bob/*\" }], \
         memory = { user = [\"recall\", \"remember\", \"forget\"] } }\n",
    );
    let question = json!({"question": "secret plan"});
    let found = ok(&host, "knowledge.search", &question);
    let passage = found["passages"][0]["id"].clone();
    let fact = json!({"text": "Bob likes zebras"});
    let fact = ok(&host, "knowledge.remember", &fact)["id"].clone();
    // As if the key bob had added both.
    let path = host.path().join(".state/toolhold.db");
    let url = format!("sqlite://{}", path.display());
    sqlx::any::install_default_drivers();
    let mut database = sqlx::AnyConnection::connect(&url).await.unwrap();
    for statement in [
        "UPDATE collections SET owner = 'bob' WHERE name = 'plans'",
        "UPDATE facts SET owner = 'bob'",
    ] {
        let changed = sqlx::query(statement).execute(&mut database).await.unwrap();
        assert_eq!(changed.rows_affected(), 1);
    }

    let found = ok(&host, "knowledge.search", &question);
    assert!(!found.to_string().contains("secret"), "{found}");
    let named = json!({"question": "secret plan", "collections": ["bob/plans"]});
    for (tool, arguments, reason) in [
        ("knowledge.search", &named, "there is no collection"),
        (
            "knowledge.read",
            &json!({"id": passage}),
            "there is no passage",
        ),
        ("knowledge.forget", &json!({"id": fact}), "there is no fact"),
        (
            "knowledge.remember",
            &json!({"text": "Bob hates zebras", "replaces": fact}),
            "there is no fact",
        ),
    ] {
        let refused = call(&host, tool, arguments);
        assert_ne!(refused.code, Some(0), "{tool}");
        assert!(refused.stderr.contains(reason), "{refused:?}");
    }
    let zebra = json!({"question": "zebra"});
    assert_eq!(ok(&host, "knowledge.recall", &zebra), json!({"facts": []}));

    let share = "INSERT INTO collection_grants (collection, grantee, access) \
                 SELECT id, '', 'read' FROM collections WHERE owner = 'bob'";
    sqlx::query(share).execute(&mut database).await.unwrap();
    let found = ok(&host, "knowledge.search", &named);
    assert_eq!(found["passages"][0]["collection"], "bob/plans");
    ok(&host, "knowledge.read", &json!({"id": passage}));
}
