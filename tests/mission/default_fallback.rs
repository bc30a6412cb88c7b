//! 001.8: other models are asked without a list of them.

use serde_json::{Value, json};
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Finished, Host};
use support::transcript::{answers, calls};

fn evaluates(expression: &str) -> Reply {
    calls([("calculator.evaluate", json!({"expression": expression}))])
}

/// A run with the model `small` at an endpoint that lists these models, with the lines of its configuration. The router
/// has a model at another name of the same server, and another agent has a guard and a model for summaries.
fn run(models: &[&str], replies: Vec<Reply>, configuration: &str) -> (Finished, Endpoint, Host) {
    let endpoint = Endpoint::start(Scenario {
        models: models.iter().map(|name| (*name).to_owned()).collect(),
        ..Scenario::new(replies)
    });
    let url = endpoint.base_url();
    let other_url = url.replace("127.0.0.1", "localhost");
    let host = Host::new();
    host.ship("calculator").write(
        "toolhold.toml",
        format!(
            "[endpoints.default]\nbase_url = {url:?}\nmodel = \"small\"\n\
             [endpoints.safety]\nbase_url = {url:?}\nmodel = \"my-safety-8b\"\n\
             [endpoints.picker]\nbase_url = {other_url:?}\nmodel = \"picker-3b\"\n\
             [endpoints.short]\nbase_url = {url:?}\nmodel = \"short-2b\"\n\
             [router]\nmodel = \"picker\"\ndefault = \"all\"\n\
             [router.classes.all]\ndescription = \"All tasks.\"\nto = \"default\"\n\
             [agents.careful.run]\nsummarizer = \"short\"\n\
             [agents.careful.shields.safety]\nkind = \"model\"\nendpoint = \"safety\"\n\
             [fallback]\ntool_errors = true\nattempts = 1\n{configuration}"
        ),
    );
    let done = host.run(&["run", "What is 2+2?", "--json"]);
    (done, endpoint, host)
}

/// The models that were asked, in their order.
fn asked(endpoint: &Endpoint) -> Vec<String> {
    let requests = endpoint.requests();
    let models = requests.iter().map(|request| &request["model"]);
    models
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// Models that answer and models for other work, by their names or by the configuration of [`run`].
const LISTED: [&str; 9] = [
    "small",
    "llama-guard-3-8b",
    "my-safety-8b",
    "picker-3b",
    "short-2b",
    "nomic-embed-text",
    "bge-reranker-v2-m3",
    "tiny-1b",
    "big-70b",
];

#[test]
fn statement_001_8_other_models_of_the_one_endpoint_are_asked() {
    let wrong = (0..3).map(|n| evaluates(&format!("2 plus {n}")));
    let replies = wrong
        .chain([Reply::content("no"), evaluates("2+2"), answers("it is 4")])
        .collect();
    let (done, endpoint, host) = run(&LISTED, replies, "");
    assert_eq!(done.code, Some(0), "{done:?}");
    let expected = ["small", "small", "small", "big-70b", "tiny-1b", "small"];
    assert_eq!(asked(&endpoint), expected, "{done:?}");
    let end: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&end["event"], &end["steps"]), (&json!("done"), &json!(4)));
    let doctor = host.run(&["doctor"]);
    let order = "asks in this order: default/big-70b, default/tiny-1b\n";
    assert!(doctor.stdout.contains(order), "{doctor:?}");
    let replayed = host.run(&["runs", "replay", "last"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

/// The run's own model may be listed under another name, and a switch turns it all off.
#[test]
fn statement_001_8_nobody_is_asked_where_the_own_model_is_not_listed() {
    for (models, configuration) in [
        (&LISTED[1..], ""),
        (&LISTED[..], "enabled = false\n"),
        (&LISTED[..1], ""),
    ] {
        let wrong = (0..3).map(|n| evaluates(&format!("2 plus {n}")));
        let replies = wrong.chain([answers("it is 4")]).collect();
        let (done, endpoint, _host) = run(models, replies, configuration);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(asked(&endpoint), ["small"; 4], "{models:?} {configuration}");
    }
}

/// `doctor` prints the order of `toolhold run`, for which `[agents.default]` holds.
#[test]
fn statement_001_8_doctor_prints_the_order_of_the_default_agent() {
    let wrong = (0..3).map(|n| evaluates(&format!("2 plus {n}")));
    let replies = wrong
        .chain([evaluates("2+2"), answers("it is 4")])
        .collect();
    let configuration = "[agents.default.fallback]\nmodels = [\"tiny-1b\"]\n";
    let (done, endpoint, host) = run(&LISTED, replies, configuration);
    assert_eq!(done.code, Some(0), "{done:?}");
    let expected = ["small", "small", "small", "tiny-1b", "small"];
    assert_eq!(asked(&endpoint), expected, "{done:?}");
    let doctor = host.run(&["doctor"]);
    let order = "asks in this order: tiny-1b\n";
    assert!(doctor.stdout.contains(order), "{doctor:?}");
}
