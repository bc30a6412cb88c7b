//! An installed binary works in any folder: with the user's modules, and with those that come with it.

use crate::mcp_server::wire::Stdio;
use serde_json::json;
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Host, finish};

/// Where the user's own modules are.
const USERS: &str = ".local/share/toolhold/modules";

fn names(host: &Host) -> Vec<String> {
    let listed = host.run(&["modules", "list"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let lines = listed.stdout.lines();
    let names = lines.filter(|line| !line.starts_with(' '));
    names
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn modules_that_come_with_the_program_are_found_in_an_empty_folder() {
    let host = Host::new();
    let sum = r#"{"expression":"6 * 7"}"#;
    let called = host.run(&["modules", "call", "calculator.evaluate", sum]);
    assert_eq!(called.code, Some(0), "{called:?}");
    assert!(called.stdout.contains("42"), "{called:?}");
    let listed = names(&host);
    for name in ["calculator", "files", "text"] {
        assert!(listed.iter().any(|own| own == name), "{listed:?}");
    }
    let call =
        json!({"_tool": "calculator.evaluate", "_reasoningForCall": "r", "expression": "6 * 7"});
    let endpoint = Endpoint::start(Scenario::new([
        Reply::solution(json!({"calls": [call], "output": null})),
        Reply::solution(json!({"calls": [], "output": "It is 42."})),
    ]));
    let url = endpoint.base_url();
    let done = host.run(&["run", "t", "--base-url", &url, "--model", "m"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stderr.contains("= {\"value\":\"42\"}"), "{done:?}");
    // Nothing was put into the folder.
    assert!(!host.path().join("modules").exists());
    let mut client = Stdio::session(&host, &["--tools", "calculator"], json!({}));
    let listed =
        client.ask(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}));
    assert!(
        listed.to_string().contains("calculator-evaluate"),
        "{listed}"
    );
}

#[test]
fn a_modules_folder_has_what_it_has_and_the_others_are_found_by_name() {
    let host = Host::new();
    host.ship("text");
    assert_eq!(names(&host), ["text"]);
    let sum = r#"{"expression":"6 * 7"}"#;
    let called = host.run(&["modules", "call", "calculator.evaluate", sum]);
    assert_eq!(called.code, Some(0), "{called:?}");
    // One that is there and cannot be loaded is not replaced.
    host.write("modules/calculator/calculator.wasm", "no component");
    let called = host.run(&["modules", "call", "calculator.evaluate", sum]);
    assert_ne!(called.code, Some(0), "{called:?}");
    // Who names a folder gets that folder.
    std::fs::create_dir(host.path().join("other")).unwrap();
    let called = host.run(&[
        "modules",
        "call",
        "text.reverse",
        "{}",
        "--modules",
        "other",
    ]);
    assert_ne!(called.code, Some(0), "{called:?}");
}

#[test]
fn modules_that_come_with_the_program_are_put_into_the_cache_when_one_is_needed() {
    let host = Host::new();
    let component = wat::parse_str(
        r#"(component
             (core module $m (func (export "one") (result i32) (i32.const 1)))
             (core instance $i (instantiate $m))
             (func (export "one") (result u32) (canon lift (core func $i "one"))))"#,
    );
    host.write("modules/mine.wasm", component.unwrap());
    let cache = host.path().join("cache");
    let run = |arguments: &[&str]| {
        let mut command = host.command(arguments);
        let ran = command.env("TOOLHOLD_PATHS__CACHE", &cache).output();
        let done = finish(ran.unwrap());
        assert_eq!(done.code, Some(0), "{done:?}");
    };
    run(&["modules", "list"]);
    run(&["modules", "inspect", "mine"]);
    let shipped = cache.join("shipped");
    assert!(cache.is_dir() && !shipped.exists());
    run(&["modules", "inspect", "calculator"]);
    assert!(shipped.is_dir());
}

#[test]
fn a_foreign_component_under_the_name_of_a_shipped_module_waits_for_a_person() {
    let sum = r#"{"expression":"6 * 7"}"#;
    for is_used_before in [false, true] {
        let host = Host::new();
        host.ship("calculator");
        if is_used_before {
            let called = host.run(&["modules", "call", "calculator.evaluate", sum]);
            assert_eq!(called.code, Some(0), "{called:?}");
        }
        // Another component: the shipped one with a section that says nothing.
        let path = host.path().join("modules/calculator/calculator.wasm");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend([0, 2, 1, b'x']);
        std::fs::write(&path, bytes).unwrap();
        let called = host.run(&["modules", "call", "calculator.evaluate", sum]);
        assert_ne!(called.code, Some(0), "{is_used_before}: {called:?}");
        assert!(called.stderr.contains("approve"), "{called:?}");
        let approved = host.run(&["modules", "approve", "calculator", "--yes"]);
        assert_eq!(approved.code, Some(0), "{approved:?}");
        let called = host.run(&["modules", "call", "calculator.evaluate", sum]);
        assert_eq!(called.code, Some(0), "{called:?}");
    }
}

#[test]
fn the_users_modules_stand_in_for_a_folder_that_is_not_there() {
    let host = Host::new();
    host.ship("calculator");
    let own = host.path().join(USERS).join("mine");
    std::fs::create_dir_all(&own).unwrap();
    let shipped = host.path().join("modules/calculator/calculator.wasm");
    std::fs::rename(shipped, own.join("mine.wasm")).unwrap();
    std::fs::remove_dir_all(host.path().join("modules")).unwrap();
    let listed = names(&host);
    for name in ["mine", "calculator", "text"] {
        assert!(listed.iter().any(|own| own == name), "{listed:?}");
    }
    // New modules are made where the author is.
    let made = host.run(&["new-module", "shout", "--lang", "rust"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(host.path().join("modules/shout").is_dir());
}
