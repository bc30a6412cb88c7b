//! `[fallback]` through the binary: its configuration, its flags, its variables, and what a person sees.

use serde_json::json;
use support::endpoint::{Endpoint, Expect, Reply, ReplyOrder, Scenario};
use support::host::{Finished, Host, finish};
use support::transcript::{answers, calls};

fn evaluates(expression: &str) -> Reply {
    calls([("calculator.evaluate", json!({"expression": expression}))])
}

/// A run whose own model never writes an expression that can be read.
struct FallbackFixture {
    host: Host,
    own: Endpoint,
    other: Endpoint,
}

impl FallbackFixture {
    /// `failures` of the own model, and then its answer.
    fn new(failures: usize, others: impl IntoIterator<Item = Reply>, configuration: &str) -> Self {
        let own = (0..failures).map(|n| evaluates(&format!("2 plus {n}")));
        let own = Endpoint::start(Scenario::new(own.chain([answers("it is 4")])));
        let other = Endpoint::start(Scenario::new(others));
        let host = Host::new();
        let endpoint = format!(
            "[endpoints.other]\nbase_url = {:?}\nmodel = \"big\"\n[endpoints.keyless]\nbase_url = {:?}\n\
             model = \"x\"\napi_key_env = \"NO_SUCH_KEY_HERE\"\n{configuration}",
            other.base_url(),
            other.base_url(),
        );
        host.ship("calculator").write("toolhold.toml", endpoint);
        Self { host, own, other }
    }

    fn run(&self, flags: &[&str], variables: &[(&str, &str)]) -> Finished {
        let url = self.own.base_url();
        let arguments = [
            "run",
            "What is 2+2?",
            "--base-url",
            &url,
            "--model",
            "small",
        ];
        let mut command = self.host.command(&[&arguments, flags].concat());
        // The calculator itself finds fault with what the model writes.
        command.env("TOOLHOLD_FALLBACK__TOOL_ERRORS", "true");
        finish(command.envs(variables.iter().copied()).output().unwrap())
    }
}

#[test]
fn it_is_set_by_file_flags_and_variables() {
    let models = "[fallback]\nmodels = [\"keyless\", \"other\"]";
    for (configuration, flags, variables, failures, others) in [
        (models, &[][..], &[][..], 3, 1),
        (models, &["--max-tool-failures", "2"], &[], 2, 1),
        (models, &["--no-fallback-tool"], &[], 4, 0),
        (
            models,
            &[],
            &[("TOOLHOLD_FALLBACK__ENABLED", "false")],
            5,
            0,
        ),
        (
            "",
            &["--fallback-tool-models", "keyless,other/huge"],
            &[],
            3,
            1,
        ),
        (
            "",
            &[],
            &[("TOOLHOLD_FALLBACK__MODELS", "keyless,other")],
            3,
            1,
        ),
        // Without a list, no other server is asked.
        ("", &[], &[], 3, 0),
        ("[fallback]\nmodels = [\"*\"]", &[], &[], 3, 1),
    ] {
        let bench = FallbackFixture::new(failures, [evaluates("2+2")], configuration);
        let done = bench.run(flags, variables);
        let case = format!("{configuration} {flags:?} {variables:?}: {done:?}");
        assert_eq!(done.stdout.trim(), "it is 4", "{case}");
        let asked = (bench.own.requests().len(), bench.other.requests().len());
        assert_eq!(asked, (failures + 1, others), "{case}");
        if others == 1 {
            assert!(done.stderr.contains("keyless is not asked"), "{case}");
            assert!(
                done.stderr.contains("NO_SUCH_KEY_HERE is not set"),
                "{case}"
            );
            assert!(done.stderr.contains("managed it"), "{case}");
            let model = &bench.other.requests()[0]["model"];
            let expected = if case.contains("huge") { "huge" } else { "big" };
            assert_eq!(model, expected, "{case}");
        }
    }
}

#[test]
fn a_senseless_fallback_configuration_is_an_error() {
    for (configuration, expect) in [
        ("[fallback]\nmax_tool_failures = 0", "at least 1"),
        ("[fallback]\nattempts = 0", "at least 1"),
        ("[fallback]\nmodels = [\"\"]", "empty name"),
        ("[fallback]\nmodel = [\"a\"]", "fallback.model"),
    ] {
        let done = FallbackFixture::new(0, [], configuration).run(&[], &[]);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(done.stderr.contains(expect), "{done:?}");
    }
    let done = FallbackFixture::new(0, [], "")
        .run(&["--no-fallback-tool", "--max-tool-failures", "2"], &[]);
    assert_eq!(done.code, Some(2), "{done:?}");
}

/// What was probed of a candidate is used, and what spares its endpoint spares it under every name.
#[test]
fn candidates_are_asked_as_they_were_probed_and_spared_as_one() {
    let probing = Scenario::new([
        Reply::tool_calls([("weather_of", json!({"city": "Paris"}))]).expecting(Expect {
            tools: vec!["weather_of".into()],
            tool_choice: Some(json!("auto")),
            contains: vec!["Paris".into()],
            ..Expect::default()
        }),
        Reply::tool_calls([("calculator-evaluate", json!({"expression": "2+"}))]).expecting(
            Expect {
                tools: vec!["calculator-evaluate".into()],
                ..Expect::default()
            },
        ),
        Reply::content("Hello!"),
    ]);
    let bench = FallbackFixture::new(3, [], "");
    let other = Endpoint::start(probing.in_order(ReplyOrder::FirstMatch));
    let url = other.base_url();
    let probe = [
        "doctor",
        "--probe",
        "--json",
        "--base-url",
        &url,
        "--model",
        "big",
    ];
    let probed = bench.host.run(&probe);
    assert!(
        probed.stdout.contains("\"contract\":\"tools\""),
        "{probed:?}"
    );
    let before = other.requests().len();
    bench.host.write(
        "toolhold.toml",
        format!(
            "[endpoints.other]\nbase_url = {url:?}\nmodel = \"big\"\nrequests_per_minute = 1\n\
             queue_timeout_ms = 100\nattempts = 1\n[fallback]\nattempts = 1\nmodels = [\"other\", \"other/huge\"]\n"
        ),
    );
    let done = bench.run(&[], &[]);
    let asked = other.requests().split_off(before);
    assert_eq!(
        asked.len(),
        1,
        "the second stands before the same limit: {done:?}"
    );
    assert!(
        asked[0]["tools"].is_array() && asked[0].get("response_format").is_none(),
        "{asked:?}"
    );
    assert!(
        done.stderr.contains("no place became free at other"),
        "{done:?}"
    );
}

/// What a person sees at the terminal, where a reply could not be used and no other model did better.
#[test]
fn replies_are_given_by_another_model_or_the_first_error_is_told() {
    let unknown = |name: &str| calls([(name, json!({"expression": "2+2"}))]);
    for (others, code) in [
        (vec![answers("it is 4")], Some(0)),
        (vec![Reply::content("so do I")], Some(3)),
    ] {
        let own = Endpoint::start(Scenario::new([
            unknown("calc.first"),
            Reply::content("I think"),
            unknown("calc.last"),
        ]));
        let other = Endpoint::start(Scenario::new(others));
        let host = Host::new();
        let url = other.base_url();
        let config = format!(
            "[endpoints.other]\nbase_url = {url:?}\nmodel = \"big\"\n[fallback]\nattempts = 1\nmodels = [\"other\"]\n"
        );
        host.ship("calculator").write("toolhold.toml", config);
        let url = own.base_url();
        let done = host.run(&["run", "2+2?", "--base-url", &url, "--model", "small"]);
        assert_eq!(done.code, code, "{done:?}");
        assert_eq!((own.requests().len(), other.requests().len()), (3, 1));
        if code == Some(0) {
            assert_eq!(done.stdout.trim(), "it is 4", "{done:?}");
            assert!(done.stderr.contains("other managed it"), "{done:?}");
        } else {
            let error = done.stderr.rfind("replies in a row").unwrap();
            let error = &done.stderr[error..];
            let first = error.find("calc.first");
            assert!(
                first.is_some() && first < error.find("calc.last"),
                "{done:?}"
            );
        }
    }
}

/// With the order that is measured, a run begins with the candidate that did better in the runs before it.
#[test]
fn a_candidate_that_managed_more_is_asked_first() {
    let others = [Reply::content("no"), evaluates("2+2"), evaluates("2+2")];
    let models =
        "[fallback]\nmodels = [\"other\", \"other/huge\"]\nattempts = 1\norder = \"measured\"";
    let bench = FallbackFixture::new(3, others, models);
    let done = bench.run(&[], &[]);
    assert!(done.stderr.contains("other/huge managed it"), "{done:?}");
    let own = (0..3).map(|n| evaluates(&format!("2 plus {n}")));
    let own = Endpoint::start(Scenario::new(own.chain([answers("it is 4")])));
    let again = FallbackFixture { own, ..bench };
    let done = again.run(&[], &[]);
    assert!(done.stderr.contains("other/huge managed it"), "{done:?}");
    let asked = again.other.requests();
    let asked: Vec<_> = asked.iter().map(|request| &request["model"]).collect();
    assert_eq!(asked, ["big", "huge", "huge"]);
    let replayed = again.host.run(&["runs", "replay", "last"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}
