//! Words: keywords of the router, the choice of tools, and the search of documents and facts.

use super::LANGUAGES;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use support::endpoint::{Endpoint, Scenario};
use support::host::Host;
use support::server::Server;
use toolhold_agent::context::Toolbook;
use toolhold_agent::router::{Class, Router, RouterPolicy, Rules};
use toolhold_model::{ChatMessage, ChatRequest, CompletionObserver, Model as _, NoModel};
use toolhold_protocol::completion::Delta;
use toolhold_protocol::routing::{Classifier, Routing};
use toolhold_protocol::tool::Tool;

/// Keeps how a task was classified.
#[derive(Default)]
struct ClassObserver(Vec<Routing>);

impl CompletionObserver for ClassObserver {
    fn delta(&mut self, _: Delta) {}

    fn routing(&mut self, routing: Routing) {
        self.0.push(routing);
    }
}

/// True if a rule with this keyword decides the class of the task.
async fn rule_holds(keyword: &str, task: &str) -> bool {
    let class = |name: &str, keywords: Vec<String>| Class {
        name: name.into(),
        description: String::new(),
        to: name.into(),
        model: Arc::new(NoModel),
        rules: Rules {
            keywords,
            ..Rules::default()
        },
    };
    let classes = vec![
        class("translations", vec![keyword.into()]),
        class("others", Vec::new()),
    ];
    let policy = RouterPolicy {
        picker: None,
        timeout: Duration::from_secs(1),
        default: 1,
    };
    let router = Router::new("router", classes, policy).unwrap();
    let request = ChatRequest::new("", vec![ChatMessage::user(task)]);
    let mut observer = ClassObserver::default();
    // No model answers, and the class is told before.
    let _ = router.complete(&request, &mut observer).await;
    let [Routing::Classified { by, .. }] = observer.0.as_slice() else {
        panic!("{:?}", observer.0)
    };
    *by == Classifier::Rule
}

#[tokio::test]
async fn statement_042_2_router_keywords_in_eight_languages() {
    for case in &LANGUAGES {
        let language = case.language;
        assert!(rule_holds(case.keyword, case.task).await, "{language}");
        assert!(!rule_holds(case.keyword, case.other).await, "{language}");
    }
    // A word with spaces around it and without.
    for (spaced, keyword) in [
        ("请 翻译 这句话", "翻译"),
        ("この 文 を 翻訳 して", "翻訳"),
        ("ช่วย แปล ประโยค นี้", "แปล"),
    ] {
        assert!(rule_holds(keyword, spaced).await, "{spaced}");
        assert!(
            rule_holds(keyword, &spaced.replace(' ', "")).await,
            "{spaced}"
        );
    }
}

#[test]
fn statement_042_2_tools_are_chosen_in_eight_languages() {
    for case in &LANGUAGES {
        let tools = [("m.t1", 0), ("m.t2", 1), ("m.t3", 2)].map(|(name, at)| {
            Arc::new(Tool {
                description: case.tools[at].into(),
                ..Tool::new(name)
            })
        });
        let book = Toolbook::new(&tools);
        let language = case.language;
        assert_eq!(book.find(case.task).first(), Some(&"m.t2"), "{language}");
        assert_eq!(book.find(case.other).first(), Some(&"m.t3"), "{language}");
    }
}

#[test]
fn statement_042_2_documents_are_found_in_eight_languages() {
    let host = Host::new();
    for case in &LANGUAGES {
        let language = case.language;
        host.write(&format!("notes/{language}.txt"), case.document)
            .write(&format!("notes/{language}_hours.txt"), case.distractor);
    }
    let added = host.run(&["knowledge", "add", "notes"]);
    assert_eq!(added.code, Some(0), "{added:?}");
    for case in &LANGUAGES {
        let done = host.run(&["knowledge", "search", "--json", case.question]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let found: Value = serde_json::from_str(&done.stdout).unwrap();
        let source = found["passages"][0]["source"].as_str().unwrap_or_default();
        let name = format!("{}.txt", case.language);
        assert!(source.ends_with(&name), "{}: {found}", case.question);
    }
}

#[test]
fn statement_042_2_facts_are_found_in_eight_languages() {
    let host = Host::new();
    host.ship("knowledge").write(
        "toolhold.toml",
        "[modules]\npinning = \"never\"\n[module.knowledge]\nknowledge = { memory = { user = [\"recall\", \"remember\"] } }\n",
    );
    let endpoint = Endpoint::start(Scenario::default());
    let url = endpoint.base_url();
    let server = Server::start(&host, &["--base-url", &url, "--model", "m"]);
    let call = |tool: &str, arguments: Value| {
        let asked = json!({"arguments": arguments});
        server.post(&format!("/v1/tools/{tool}"), &asked).good()
    };
    for case in &LANGUAGES {
        for text in [case.document, case.distractor] {
            call("knowledge.remember", json!({"text": text}));
        }
    }
    for case in &LANGUAGES {
        let found = call("knowledge.recall", json!({"question": case.question}));
        let first = &found["result"]["facts"][0]["text"];
        assert_eq!(*first, case.document, "{}: {found}", case.question);
    }
}
