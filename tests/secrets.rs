//! Keys that `toolhold secrets` keeps, and hosted models in one line.

use crate::terminal::at_terminal;
use serde_json::{Value, json};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Finished, Host, finish};

pub const KEY: &str = "sk-a-secret-of-this-test";

fn set(host: &Host, name: &str, value: &str) -> Finished {
    set_with(host.command(&["secrets", "set", name]), value)
}

/// The command, with the value at its stdin.
pub fn set_with(mut command: Command, value: &str) -> Finished {
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(value.as_bytes()).unwrap();
    drop(input);
    finish(child.wait_with_output().unwrap())
}

/// An endpoint that wants the key.
pub fn endpoint() -> Endpoint {
    let reply = Reply::content(json!({"calls": [], "output": "done"}).to_string());
    Endpoint::start(Scenario::new([reply]).with_key(KEY))
}

/// `toolhold run` of a model of the preset `openai`, which is at `endpoint`.
pub fn run(host: &Host, endpoint: &Endpoint, variables: &[(&str, &str)]) -> Finished {
    let mut command = host.command(&["run", "t", "--model", "openai:gpt-x", "-v"]);
    // An address of one's own takes nothing from the preset, so the key and the dialect are said, too.
    host.write(
        ".config/toolhold/config.toml",
        format!(
            "[endpoints.openai]\nbase_url = {:?}\napi_key_env = \"OPENAI_API_KEY\"\ncontract = \"schema\"\n\
             fields = {{ max_tokens = \"max_completion_tokens\", temperature = \"\" }}\n",
            endpoint.base_url()
        ),
    );
    // The address of another endpoint, which the key must not be sent to.
    command.env("TOOLHOLD_BASE_URL", "http://127.0.0.1:1/v1");
    command.envs(variables.iter().copied());
    finish(command.output().unwrap())
}

#[test]
fn a_hosted_model_is_asked_with_a_kept_key_and_in_its_dialect() {
    let (host, endpoint) = (Host::new(), endpoint());
    let kept = set(&host, "openai", &format!("{KEY}\n"));
    assert_eq!(kept.code, Some(0), "{kept:?}");
    let path = host.path().join(".config/toolhold/secrets.toml");
    assert!(
        kept.stdout.contains("kept OPENAI_API_KEY in") && kept.stdout.contains("not encrypted"),
        "it says where it is kept, and how: {kept:?}"
    );
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    let done = run(&host, &endpoint, &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("done"), "{done:?}");
    let requests = endpoint.requests();
    let request = &requests[0];
    assert_eq!(request["model"], "gpt-x");
    assert!(request["max_completion_tokens"].is_u64(), "{request}");
    assert_eq!(
        (&request["max_tokens"], &request["temperature"]),
        (&Value::Null, &Value::Null)
    );
    // No record holds it, and no list.
    for arguments in [
        &["show", "last", "--json"][..],
        &["secrets", "list"],
        &["secrets", "list", "--json"],
        &["config", "--json"],
    ] {
        let shown = host.run(arguments);
        assert_eq!(shown.code, Some(0), "{shown:?}");
        assert!(!format!("{shown:?}").contains(KEY), "{arguments:?}");
    }
    assert_eq!(
        host.run(&["secrets", "list"]).stdout,
        "OPENAI_API_KEY  (in the file)\n"
    );
    let removed = host.run(&["secrets", "remove", "openai"]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    let again = host.run(&["secrets", "remove", "openai"]);
    assert!(
        again.stderr.contains("no secret OPENAI_API_KEY"),
        "{again:?}"
    );
}

#[test]
fn a_variable_that_is_set_wins_and_a_missing_key_is_told_with_the_command() {
    let (host, with_key) = (Host::new(), endpoint());
    let refused = run(&host, &with_key, &[]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("toolhold secrets set OPENAI_API_KEY"),
        "{refused:?}"
    );
    set(&host, "OPENAI_API_KEY", "another");
    let done = run(&host, &with_key, &[("OPENAI_API_KEY", KEY)]);
    assert_eq!(done.code, Some(0), "{done:?}");
    // An empty variable is none.
    set(&host, "OPENAI_API_KEY", KEY);
    let done = run(&host, &endpoint(), &[("OPENAI_API_KEY", "")]);
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// Everything that names a variable for a secret takes a kept one.
#[test]
fn modules_and_servers_are_given_kept_secrets() {
    let host = Host::new();
    host.ship("calculator");
    host.write(
        "toolhold.toml",
        "[mcp_server]\ntoken_env = \"MY_TOKEN\"\n[serve]\nkeys = \"always\"\n[storage]\nurl_env = \"MY_DATABASE\"\n",
    );
    set(&host, "MY_DATABASE", "postgres://nobody@127.0.0.1:1/none");
    let listed = host.run(&["runs"]);
    assert_ne!(listed.code, Some(0), "it uses the database: {listed:?}");
    assert!(!format!("{listed:?}").contains("modules"), "{listed:?}");
    let removed = host.run(&["secrets", "remove", "MY_DATABASE"]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert_eq!(host.run(&["runs"]).code, Some(0));
}

#[test]
fn what_cannot_be_kept_is_refused_with_words() {
    let host = Host::new();
    for (name, value, expect) in [
        ("A-B", "x", "cannot be the name of a variable"),
        ("A", "\n", "no secret was given"),
        ("A", "a\0b", "no secret was given"),
        ("A", &"x".repeat(70_000), "at most 64 KiB"),
    ] {
        let refused = set(&host, name, value);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(expect), "{expect}: {refused:?}");
    }
    set(&host, "A", "x");
    let path = host.path().join(".config/toolhold/secrets.toml");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    // What needs no secret goes on. The file may say where the database is.
    for (arguments, code) in [
        (&["secrets", "list"][..], 1),
        (&["run", "hello", "--model", "m"], 1),
        (&["runs"], 1),
        (&["config"], 0),
    ] {
        let done = host.run(arguments);
        assert_eq!(done.code, Some(code), "{done:?}");
        assert!(done.stderr.contains("chmod 600"), "{done:?}");
    }
}

/// A folder that somebody else wrote, or a mistake of one's own, keeps nobody from forgetting a key.
#[test]
fn a_wrong_configuration_does_not_keep_a_secret() {
    let host = Host::new();
    set(&host, "A_KEY", KEY);
    for (path, text) in [
        ("toolhold.toml", "["),
        (".config/toolhold/config.toml", "[secrets]\nstore = 1\n"),
    ] {
        host.write_untrusted(path, text);
        let listed = host.run(&["secrets", "list"]);
        assert_eq!(listed.code, Some(0), "{listed:?}");
        assert_eq!(listed.stdout, "A_KEY  (in the file)\n");
        assert!(listed.stderr.contains("secrets.store"), "{listed:?}");
        let refused = host.run(&["secrets", "set", "B_KEY"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("not valid TOML"), "{refused:?}");
    }
    let removed = host.run(&["secrets", "remove", "A_KEY"]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert_eq!(host.run(&["secrets", "list"]).stdout, "");
}

#[test]
fn a_secret_is_typed_unseen() {
    let host = Host::new();
    let command = host.command(&["secrets", "set", "A_KEY"]);
    let done = at_terminal(&command, &[("A_KEY: ", &format!("{KEY}\n"))]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!done.stdout.contains(KEY), "{done:?}");
    let path = host.path().join(".config/toolhold/secrets.toml");
    assert!(std::fs::read_to_string(path).unwrap().contains(KEY));
    let interrupted = at_terminal(&command, &[("A_KEY: ", "\u{3}")]);
    assert_eq!(interrupted.code, Some(130), "{interrupted:?}");
    // What is pasted behind the first line is neither kept, nor shown, nor left to the shell.
    let command = host.command(&["secrets", "set", "B_KEY"]);
    let long = format!("{}\n", "x".repeat(5000));
    for (typed, expect) in [
        ("BEGIN\nthe-rest\nEND\n", "several lines"),
        ("BEGIN\nthe-rest", "several lines"),
        (&long, "4095 bytes"),
    ] {
        let refused = at_terminal(&command, &[("B_KEY: ", typed)]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        let shown = refused.stdout.replace("\r\n  │ ", " ");
        assert!(shown.contains(expect), "{refused:?}");
        assert!(!shown.contains("the-rest"), "{refused:?}");
    }
    assert_eq!(
        host.run(&["secrets", "list"]).stdout,
        "A_KEY  (in the file)\n"
    );
}

/// The error of a slow endpoint names the key to raise.
#[test]
fn an_endpoint_that_is_too_slow_is_told_with_the_key_to_raise() {
    let host = Host::new();
    let slow = Reply {
        delay_ms: 5_000,
        ..Reply::content("late")
    };
    let endpoint = Endpoint::start(Scenario::new([slow]));
    let mut command = host.command(&[
        "run",
        "t",
        "--base-url",
        &endpoint.base_url(),
        "--model",
        "m",
    ]);
    command.env("TOOLHOLD_ENDPOINTS__DEFAULT__FIRST_TOKEN_TIMEOUT_MS", "200");
    command.env("TOOLHOLD_ENDPOINTS__DEFAULT__ATTEMPTS", "1");
    let done = finish(command.output().unwrap());
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(
        done.stderr
            .contains("raise first_token_timeout_ms in [endpoints."),
        "{done:?}"
    );
}
