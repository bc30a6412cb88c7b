//! `toolhold chat`, and what is generated from the definitions of the commands.

use serde_json::json;
use std::io::Write as _;
use std::process::Stdio;
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Finished, Host, finish};
use support::transcript::{answers, calls};

pub(super) fn chat(host: &Host, endpoint: &Endpoint, more: &[&str], typed: &str) -> Finished {
    let url = endpoint.base_url();
    let arguments = [&["chat", "--base-url", &url, "--model", "m"], more].concat();
    let mut child = host
        .command(&arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(typed.as_bytes())
        .unwrap();
    finish(child.wait_with_output().unwrap())
}

#[test]
fn a_chat_remembers_and_can_be_gone_on_with() {
    let host = Host::new();
    host.ship("calculator");
    let endpoint = Endpoint::start(Scenario::new([
        calls([("calculator.evaluate", json!({"expression": "2+2"}))]),
        answers("It is 4."),
        answers("You asked for 2+2."),
    ]));
    let first = chat(
        &host,
        &endpoint,
        &[],
        "/help\n/nonsense\nWhat is 2+2?\n/tools\n",
    );
    assert_eq!(first.code, Some(0), "{first:?}");
    for part in ["/sessions", "It is 4.", "calculator.evaluate"] {
        assert!(first.stdout.contains(part), "{part}: {first:?}");
    }
    assert!(
        first.stderr.contains("/nonsense is no command"),
        "{first:?}"
    );
    let second = chat(
        &host,
        &endpoint,
        &["--session", "last"],
        "What did I ask?\n/history\n/sessions\n",
    );
    assert_eq!(second.code, Some(0), "{second:?}");
    assert!(second.stdout.contains("You asked for 2+2."), "{second:?}");
    assert!(second.stdout.contains("2 turns"), "{second:?}");
    let told = endpoint.requests()[2].to_string();
    assert!(told.contains("It is 4."), "{told}");
    let missing = chat(&host, &endpoint, &["--session", "zzz"], "");
    assert!(missing.stderr.contains("no session"), "{missing:?}");
    let missing = chat(&host, &endpoint, &["--agent", "nobody"], "");
    assert!(missing.stderr.contains("there are default"), "{missing:?}");
}

#[test]
fn completions_manual_and_reference_are_made() {
    let host = Host::new();
    let bash = host.run(&["generate", "completions", "bash"]).stdout;
    assert!(
        bash.contains("toolhold") && bash.contains("--base-url"),
        "{bash:.200}"
    );
    let man = host.run(&["generate", "man", "man"]);
    assert_eq!(man.code, Some(0), "{man:?}");
    let page = std::fs::read_to_string(host.path().join("man/toolhold-serve.1")).unwrap();
    for part in [
        ".SH SYNOPSIS",
        ".SH OPTIONS",
        "HTTP",
        "\\fB\\-\\-listen\\fR",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!host.path().join("man/toolhold-help.1").exists());
    let reference = host.run(&["generate", "config"]).stdout;
    for key in ["[serve]", "key_concurrent_runs = ", "[endpoints.default]"] {
        assert!(reference.contains(key), "{key}");
    }
}

/// The person at the prompt is asked back as clients of the APIs are.
#[test]
fn statement_000_12_a_stopped_turn_of_a_chat_asks_back_in_the_language_of_the_task() {
    let host = Host::new();
    host.ship("calculator")
        .write("toolhold.toml", "[run]\nmax_steps = 1\n");
    let call = || calls([("calculator.evaluate", json!({"expression": "2+2"}))]);
    let endpoint = Endpoint::start(Scenario::new([call(), call()]));
    let typed = "Посчитай сумму заказов за март.\nДа\n";
    let done = chat(&host, &endpoint, &[], typed);
    assert_eq!(
        done.stderr.matches("Продолжить, или").count(),
        2,
        "{done:?}"
    );
    let second = endpoint.requests()[1].to_string();
    assert!(second.contains("whether I should go on"), "{second}");
}

#[test]
fn statement_000_12_a_cut_answer_of_a_chat_is_told_in_the_language_of_the_task() {
    let host = Host::new();
    host.write(
        "toolhold.toml",
        "[endpoints.default]\ncontract = \"tools\"\n",
    );
    let endpoint = Endpoint::start(Scenario::new([Reply {
        finish_reason: Some("length".into()),
        ..Reply::content("4, 5")
    }]));
    let done = chat(&host, &endpoint, &[], "请把这句话翻译成英文。\n");
    assert!(done.stdout.contains("4, 5"), "{done:?}");
    assert!(done.stderr.contains("要我继续写完吗"), "{done:?}");
}
