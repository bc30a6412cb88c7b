//! Guards: personal data, a secret and the hosts of URLs, directly beside letters of each language.

use super::{LANGUAGES, LanguageCase};
use crate::mission::ask;
use serde_json::{Value, json};
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::Host;
use support::server::Server;
use support::transcript::{answers, calls, told};

const SECRET: &str = "AKIAIOSFODNN7EXAMPLE";

const CARD: &str = "4111111111111111";

const POLICY: &str = r#"
[shields.private]
kind = "pii"
hide = ["phone", "national_id", "iban", "api_key"]

[shields.hosts]
kind = "domains"
allow = ["example.com"]
"#;

/// The replies of a run: calls with a URL that is not allowed and with one that is, and an answer with the personal data.
fn replies(case: &LanguageCase) -> [Reply; 2] {
    let reverse = |url: &str| ("text.reverse", json!({"text": case.beside_letters(url)}));
    [
        calls([
            reverse("https://evil.example/x"),
            reverse("https://example.com/a"),
        ]),
        answers(case.placeholder()),
    ]
}

#[test]
fn statement_042_2_guards_find_values_beside_letters_of_eight_languages() {
    let host = Host::new();
    host.ship("text").write("toolhold.toml", POLICY);
    let endpoint = Endpoint::start(Scenario::new(LANGUAGES.iter().flat_map(replies)));
    let url = endpoint.base_url();
    let server = Server::start(&host, &["--base-url", &url, "--model", "m"]);
    for (at, case) in LANGUAGES.iter().enumerate() {
        let language = case.language;
        let (_, personal) = case.personal;
        let task = [personal, SECRET].map(|value| case.beside_letters(value));
        let answer = server.post("/v1/agent", &ask(&task.join("\n"))).good();
        // The user has the value, and the model has only its placeholder.
        assert_eq!(answer["output"], personal, "{language}: {answer}");
        let (first, second) = (told(&endpoint, at * 2), told(&endpoint, at * 2 + 1));
        for placeholder in [case.placeholder(), "<api_key_1>".to_owned()] {
            let shown = case.beside_letters(&placeholder);
            assert!(first.contains(&shown), "{language}: {shown}: {first}");
        }
        for value in [personal, SECRET] {
            assert!(!first.contains(value), "{language}: {value}: {first}");
            assert!(!second.contains(value), "{language}: {value}: {second}");
        }
        // Of the two calls, the tool ran for the one whose host is allowed.
        let blocked = "evil.example is not among the allowed hosts (example.com)";
        assert!(second.contains(blocked), "{language}: {second}");
        assert!(
            second.contains("moc.elpmaxe//:sptth"),
            "{language}: {second}"
        );
        assert!(!second.contains("elpmaxe.live"), "{language}: {second}");
    }
}

/// The arguments of a call are in the audit log without the values that the policy knows by their form.
#[test]
fn statement_000_95_the_audit_log_has_no_value_in_clear_in_eight_languages() {
    let host = Host::new();
    host.ship("text");
    let endpoint = Endpoint::start(Scenario::default());
    let url = endpoint.base_url();
    let server = Server::start(&host, &["--base-url", &url, "--model", "m"]);
    for case in &LANGUAGES {
        let text = [CARD, SECRET].map(|value| case.beside_letters(value));
        let asked = json!({"arguments": {"text": text.join("\n")}});
        server.post("/v1/tools/text.reverse", &asked).good();
    }
    let log = host.run(&["audit", "search", "--json"]).stdout;
    let rows = log.lines().map(|line| {
        let row: Value = serde_json::from_str(line).unwrap();
        row
    });
    let calls: Vec<Value> = rows
        .filter(|row| row["tool"] == "text.reverse" && row["arguments"].is_object())
        .collect();
    for case in &LANGUAGES {
        let [before, _] = case.letters;
        let is_of_case = |row: &&Value| row["arguments"].to_string().contains(before);
        let row = calls.iter().find(is_of_case);
        assert!(row.is_some(), "{}: {log}", case.language);
    }
    for value in [CARD, SECRET] {
        assert!(!log.contains(value), "{value}: {log}");
    }
}
