//! A key is sent to the address that it was configured with, and to no other.

use serde_json::json;
use support::collector::Collector;
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Finished, Host, finish};

const KEY: &str = "sk-for-the-right-address";

fn endpoint() -> Endpoint {
    let reply = || Reply::content(json!({"calls": [], "output": "done"}).to_string());
    Endpoint::start(Scenario::new([reply(), reply()]))
}

/// Two servers, and a host whose endpoint `big` is the right one.
struct Bench {
    host: Host,
    right: Endpoint,
    wrong: Endpoint,
}

impl Bench {
    fn new() -> Self {
        let (host, right, wrong) = (Host::new(), endpoint(), endpoint());
        let file = format!(
            "[endpoints.default]\nbase_url = {url:?}\nmodel = \"m\"\ncontract = \"schema\"\n\
             [endpoints.big]\nbase_url = {url:?}\nmodel = \"m\"\napi_key_env = \"BIG_KEY\"\n",
            url = right.base_url()
        );
        host.write(".config/toolhold/config.toml", file);
        Self { host, right, wrong }
    }

    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Finished {
        let mut command = self.host.command(&["run", "t"]);
        command.args(arguments).envs(variables.iter().copied());
        finish(command.output().unwrap())
    }

    /// Whether a server was given the key.
    fn is_told(endpoint: &Endpoint) -> bool {
        let given = endpoint.authorizations();
        given.iter().flatten().any(|value| value.contains(KEY))
    }
}

/// Arguments, variables, the variable with the key, and a word of the error; empty: the key goes to its own server.
type Way<'a> = (
    &'a [&'static str],
    &'a [(&'static str, &'static str)],
    [(&'static str, &'static str); 1],
    &'a str,
);

#[test]
fn a_key_is_not_sent_to_an_address_that_another_setting_gave() {
    let own = [("BIG_KEY", KEY)];
    let usual = [("TOOLHOLD_API_KEY", KEY)];
    // WRONG stands for the address of the wrong server.
    let ways: [Way<'_>; 6] = [
        (
            &["--endpoint", "big", "--base-url", "WRONG"],
            &[],
            own,
            "--api-key-env",
        ),
        (
            &["--endpoint", "big"],
            &[("TOOLHOLD_ENDPOINTS__BIG__BASE_URL", "WRONG")],
            own,
            "TOOLHOLD_ENDPOINTS__BIG__API_KEY_ENV",
        ),
        (&["--base-url", "WRONG"], &[], usual, "--api-key-env"),
        (
            &["--endpoint", "big"],
            &[("TOOLHOLD_BASE_URL", "WRONG")],
            own,
            "",
        ),
        (
            &[],
            &[("TOOLHOLD_BASE_URL", "WRONG"), ("TOOLHOLD_ENDPOINT", "big")],
            own,
            "",
        ),
        (
            &["--model", "m", "--endpoint", "big"],
            &[("TOOLHOLD_BASE_URL", "WRONG")],
            own,
            "",
        ),
    ];
    for (arguments, variables, key, named) in ways {
        let bench = Bench::new();
        let url = bench.wrong.base_url();
        let filled = |text: &'static str| if text == "WRONG" { url.as_str() } else { text };
        let arguments: Vec<&str> = arguments.iter().copied().map(filled).collect();
        let variables = variables.iter().copied();
        let mut variables: Vec<(&str, &str)> = variables
            .map(|(name, value)| (name, filled(value)))
            .collect();
        variables.extend(key);
        let done = bench.run(&arguments, &variables);
        let at = format!("{arguments:?} {variables:?} {done:?}");
        assert!(!Bench::is_told(&bench.wrong), "{at}");
        if named.is_empty() {
            assert_eq!(done.code, Some(0), "{at}");
            assert!(Bench::is_told(&bench.right), "{at}");
        } else {
            assert_ne!(done.code, Some(0), "{at}");
            assert!(
                done.stderr.contains(named) && done.stderr.contains(key[0].0),
                "{at}"
            );
            assert!(bench.wrong.requests().is_empty(), "{at}");
        }
    }
}

#[test]
fn a_trusted_found_file_takes_no_key_to_its_own_address() {
    for key in ["BIG_KEY", "TOOLHOLD_API_KEY"] {
        let bench = Bench::new();
        let name = if key == "BIG_KEY" { "big" } else { "default" };
        let file = format!(
            "endpoint = \"{name}\"\n[endpoints.{name}]\nbase_url = {:?}\n",
            bench.wrong.base_url()
        );
        bench.host.write("toolhold.toml", file);
        let done = bench.run(&[], &[(key, KEY)]);
        assert!(!Bench::is_told(&bench.wrong), "{done:?}");
        assert_ne!(done.code, Some(0), "{done:?}");
        assert!(done.stderr.contains(key), "{done:?}");
    }
    // An endpoint of the file's own, which inherits no key of the user's.
    let bench = Bench::new();
    let file = format!(
        "endpoint = \"theirs\"\n[endpoints.theirs]\nbase_url = {:?}\nmodel = \"m\"\ncontract = \"schema\"\n",
        bench.wrong.base_url()
    );
    bench.host.write("toolhold.toml", file);
    let done = bench.run(&[], &[("TOOLHOLD_API_KEY", KEY)]);
    assert!(!Bench::is_told(&bench.wrong), "{done:?}");
    assert_ne!(done.code, Some(0), "{done:?}");
}

#[test]
fn a_key_that_is_named_beside_the_address_is_sent_there() {
    let bench = Bench::new();
    let url = bench.wrong.base_url();
    let given = [
        "--endpoint",
        "big",
        "--base-url",
        &url,
        "--api-key-env",
        "OTHER_KEY",
    ];
    let done = bench.run(&given, &[("BIG_KEY", "another"), ("OTHER_KEY", KEY)]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(Bench::is_told(&bench.wrong) && !Bench::is_told(&bench.right));
    // Without the key there is nothing to keep back, and the address is asked.
    let bench = Bench::new();
    let url = bench.wrong.base_url();
    let done = bench.run(&["--endpoint", "big", "--base-url", &url], &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let given = ["--endpoint", "big", "--base-url", &url, "--api-key-env", ""];
    let done = bench.run(&given, &[("BIG_KEY", KEY)]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!Bench::is_told(&bench.wrong), "{done:?}");
}

/// The exporter reads the standard variables by itself; they are for the collector that they were set with.
#[test]
fn headers_of_the_standard_variables_go_to_their_own_collector() {
    let headers = format!("authorization={KEY}");
    let (all, traces) = (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    );
    for (has_found, has_variable, standard, is_told) in [
        (true, false, None, false),
        (true, false, Some(all), false),
        (false, true, Some(all), false),
        (false, true, Some(traces), false),
        (false, true, None, true),
        (false, false, Some(all), true),
    ] {
        let (bench, theirs, own) = (Bench::new(), Collector::start(), Collector::start());
        let mut variables = vec![("OTEL_EXPORTER_OTLP_HEADERS", headers.as_str())];
        if has_found {
            let file = format!("[telemetry]\nendpoint = {:?}\n", theirs.url());
            bench.host.write("toolhold.toml", file);
        }
        let (theirs_url, own_url) = (theirs.url(), own.url());
        if has_variable {
            variables.push(("TOOLHOLD_TELEMETRY__ENDPOINT", theirs_url));
        }
        if let Some(standard) = standard {
            variables.push((standard, own_url));
        }
        let done = bench.run(&[], &variables);
        assert_eq!(done.code, Some(0), "{done:?}");
        let used = if has_found || has_variable {
            &theirs
        } else {
            &own
        };
        assert!(!used.spans().is_empty(), "{done:?}");
        let told = used.authorizations();
        assert_eq!(told.iter().any(|value| value == KEY), is_told, "{told:?}");
        let warned = done.stderr.matches("OTEL_EXPORTER_OTLP_HEADERS").count();
        assert_eq!(warned, usize::from(!is_told), "{done:?}");
    }
}
