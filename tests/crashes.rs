//! What an author is told of a crash, and of where a call's time went.

use serde_json::{Value, json};
use support::endpoint::{Endpoint, Scenario};
use support::host::{Finished, Host};
use support::transcript::{Transcript, answers, calls};
use toolhold_hostile::components::{CRASHING, debug_bombs, with_debug_information};

/// `hot` computes in a loop, and `cold` calls it and computes little itself; `crash` ends with a trap after it, and `spin`
/// does not end.
const BUSY: &str = r#"(component
    (core module $m
        (func $hot (param i32) (local i32)
            (loop $again
                (local.set 1 (i32.add (local.get 1) (i32.const 1)))
                (br_if $again (i32.lt_u (local.get 1) (local.get 0)))))
        (func $cold (export "cold") (param i32)
            (call $hot (local.get 0)))
        (func $crash (export "crash") (param i32)
            (call $hot (local.get 0))
            unreachable)
        (func $spin (export "spin") (param i32)
            (loop $again (call $hot (i32.const 1000)) (br $again))))
    (core instance $i (instantiate $m))
    (func (export "cold") (param "turns" u32) (canon lift (core func $i "cold")))
    (func (export "crash") (param "turns" u32) (canon lift (core func $i "crash")))
    (func (export "spin") (param "turns" u32) (canon lift (core func $i "spin"))))"#;

fn host(component: &[u8], limits: &str) -> Host {
    let host = Host::new();
    host.write("modules/m/m.wasm", component);
    host.write(
        "modules/m/module.toml",
        format!("name = \"m\"\n[limits]\n{limits}\n"),
    );
    host
}

fn busy() -> Host {
    let component = wat::parse_str(BUSY).expect("it is valid");
    host(&component, "timeout_ms = 1500\nfuel = 1000000000000")
}

/// A call with a profile: the whole report, and the file.
fn profiled(host: &Host, tool: &str) -> (Value, Value) {
    let file = host.path().join("profile.json");
    let _ = std::fs::remove_file(&file);
    let arguments = json!({"turns": 40_000_000}).to_string();
    let done = host.run(&[
        "modules",
        "call",
        tool,
        &arguments,
        "--profile",
        "profile.json",
        "--json",
    ]);
    let json = |text: &str| -> Value {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    };
    let written =
        std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    (json(&done.stdout), json(&written))
}

#[test]
fn a_profile_names_the_function_that_computes_first() {
    let host = busy();
    let (report, firefox) = profiled(&host, "m.cold");
    assert_eq!(report["result"], json!({"value": null}), "{report}");
    let profile = &report["profile"];
    assert!(profile["samples"].as_u64() >= Some(5), "{report}");
    let functions = profile["functions"].as_array().expect("functions");
    let of = |index: usize, count: &str| functions[index][count].as_f64().unwrap_or(f64::NAN);
    let samples = profile["samples"].as_f64().expect("a number");
    assert_eq!(functions[0]["name"], "hot", "{report}");
    assert_eq!(functions[1]["name"], "cold", "{report}");
    // A sample may be taken where a function begins.
    assert!(of(0, "self") > samples * 0.7, "{report}");
    assert!(of(1, "self") < samples * 0.3, "{report}");
    assert!(of(1, "total") > samples * 0.9, "{report}");
    assert!(
        firefox["meta"]["preprocessedProfileVersion"].is_u64(),
        "{firefox}"
    );
    // The same for a person.
    let arguments = json!({"turns": 40_000_000}).to_string();
    let done = host.run(&[
        "modules",
        "call",
        "m.cold",
        &arguments,
        "--profile",
        "p.json",
    ]);
    assert_eq!(done.code, Some(0), "{done:?}");
    for part in [
        "profile: p.json",
        "profiler.firefox.com",
        " %  hot",
        " %  cold",
    ] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
}

#[test]
fn a_call_that_crashes_or_is_stopped_has_a_profile() {
    let host = busy();
    for (tool, kind) in [("m.crash", "trap"), ("m.spin", "deadline")] {
        let (report, _) = profiled(&host, tool);
        assert_eq!(report["error"]["kind"], kind, "{report}");
        assert_eq!(report["profile"]["functions"][0]["name"], "hot", "{report}");
    }
}

#[test]
fn a_profile_that_cannot_be_written_is_said_before_the_call() {
    let host = busy();
    let done = host.run(&[
        "modules",
        "call",
        "m.cold",
        r#"{"turns": 1}"#,
        "--profile",
        "none/p.json",
    ]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("--profile none/p.json"), "{done:?}");
    assert!(done.stdout.is_empty(), "{done:?}");
}

fn crashed(host: &Host) -> Finished {
    let done = host.run(&["modules", "call", "m.boom"]);
    assert_eq!(done.code, Some(5), "{done:?}");
    done
}

/// The component has debug information of its own, and no name for its function.
#[test]
fn a_crash_names_lines_where_an_author_works() {
    let crashing = wat::parse_str(CRASHING).expect("it is valid");
    let without = crashed(&host(&crashing, ""));
    assert!(!without.stderr.contains("a.c"), "{without:?}");
    for (what, bytes) in with_lines() {
        let done = crashed(&host(&bytes, ""));
        assert!(done.stderr.contains("at ? (a.c:3)"), "{what}: {done:?}");
    }
}

/// Components that crash at line 3 of a.c, as they say.
fn with_lines() -> Vec<(&'static str, Vec<u8>)> {
    let crashing = wat::parse_str(CRASHING).expect("it is valid");
    let mut bombs = debug_bombs();
    bombs.retain(|(_, sections)| {
        let bytes = sections.iter().map(|(_, bytes)| bytes.len());
        bytes.sum::<usize>() < 1_000
    });
    let with = |sections| with_debug_information(&crashing, sections).expect("it has a module");
    bombs
        .iter()
        .map(|(what, sections)| (*what, with(sections)))
        .collect()
}

/// A model has no use for lines, and each crash of a hostile module would start a process.
#[test]
fn a_crash_in_a_run_names_no_lines() {
    let (_, bytes) = with_lines().into_iter().next().expect("there is one");
    let host = host(&bytes, "");
    let endpoint = Endpoint::start(Scenario::new([
        calls([("m.boom", json!({}))]),
        answers("It crashed."),
    ]));
    let run = Transcript::of(&host, &endpoint, &["run", "Crash."]);
    let failure = run.failure("m.boom");
    assert_eq!(failure["kind"], "trap", "{failure}");
    assert!(!failure.to_string().contains("a.c"), "{failure}");
}
