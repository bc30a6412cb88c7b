//! The command line with good and bad input: what it prints and how it exits.

use serde_json::{Value, json};
use std::process::Stdio;
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Host, finish};
use support::records::Records;
use support::sandbox::component;
use toolhold_hostile::components as hostile;

#[test]
fn a_module_call_prints_the_exact_result_and_what_it_cost() {
    let host = Host::new();
    host.ship("calculator");
    let done = host.run(&[
        "modules",
        "call",
        "calculator.evaluate",
        r#"{"expression":"2^200 % 97"}"#,
    ]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains(r#""value": "62""#), "{done:?}");
    for word in ["s · ", "fuel", "memory"] {
        assert!(done.stderr.contains(word), "{done:?}");
    }
    let done = host.run(&[
        "modules",
        "call",
        "calculator.evaluate",
        r#"{"expression":"2^200 % 97"}"#,
        "--json",
    ]);
    let whole: Value = serde_json::from_str(&done.stdout).expect("one JSON object");
    assert_eq!(whole.pointer("/result/value/value"), Some(&json!("62")));
    assert!(
        whole["usage"]["fuel"].as_u64() > Some(0)
            && whole["usage"]["memory_bytes"].as_u64() > Some(0),
        "{whole}"
    );
}

#[test]
fn bad_input_to_a_call_says_what_to_do() {
    let host = Host::new();
    host.ship("calculator")
        .write("modules/bad.wasm", component(hostile::COMPUTE));
    for (arguments, code, expect) in [
        (vec!["calculator", "{}"], 1, "expected MODULE.TOOL"),
        (vec!["nothing.here", "{}"], 1, "no module \"nothing\""),
        (
            vec!["calculator.nothing", "{}"],
            1,
            "it has calculator.evaluate",
        ),
        (vec!["calculator.evaluate", "{expression}"], 1, "not JSON"),
        (
            vec!["calculator.evaluate", "{}"],
            5,
            "\"expression\" is a required property",
        ),
        (
            vec!["calculator.evaluate", r#"{"expression":7}"#],
            5,
            "/expression: 7 is not of type \"string\"",
        ),
        (
            vec!["calculator.evaluate", r#"{"expression":"1+"}"#],
            5,
            "tool: ",
        ),
        (vec!["bad.boom"], 5, "trap: the tool crashed"),
        (vec!["bad.recurse"], 5, "stack: "),
    ] {
        let done = host.run(&[&["modules", "call"], arguments.as_slice()].concat());
        assert_eq!(done.code, Some(code), "{arguments:?}: {done:?}");
        assert!(done.stderr.contains(expect), "{arguments:?}: {done:?}");
    }
}

#[test]
fn limits_can_be_lowered_for_one_module_and_the_error_names_them() {
    let host = Host::new();
    host.write("modules/bad.wasm", component(hostile::COMPUTE))
        .write("toolhold.toml", "[module.bad.limits]\nfuel = 1_000_000\n");
    let done = host.run(&["modules", "call", "bad.spin"]);
    assert_eq!(done.code, Some(5), "{done:?}");
    assert!(done.stderr.contains("fuel limit of 1000000"), "{done:?}");
}

#[test]
fn one_bad_module_never_hides_the_others() {
    let host = Host::new();
    host.ship("calculator")
        .write("modules/broken.wasm", "no component")
        .write(
            "modules/unbuilt/module.toml",
            "[build]\nlanguage = \"python\"\n",
        );
    let done = host.run(&["modules", "list"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("calculator.evaluate"), "{done:?}");
    assert!(
        done.stderr.contains("left out: ")
            && done.stderr.contains("does not begin with the Wasm header"),
        "{done:?}"
    );
    assert!(
        done.stderr.contains("not built: ") && done.stderr.contains("toolhold build"),
        "{done:?}"
    );
}

/// A server of one module reads no others, and what is not built is said once, with the command that builds it.
#[test]
fn only_the_modules_that_are_served_are_loaded() {
    let host = Host::new();
    host.ship("calculator").write("modules/broken.wasm", "text");
    for name in ["one", "two"] {
        let manifest = "[build]\nlanguage = \"python\"\n";
        host.write(&format!("modules/{name}/module.toml"), manifest);
    }
    let served = |flags: &[&str]| {
        let mut command = host.command(&[&["mcp"], flags].concat());
        let done = command.stdin(Stdio::null()).output().expect("it runs");
        let done = finish(done);
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stderr
    };
    let all = served(&[]);
    assert!(all.contains("broken.wasm"), "{all}");
    let unbuilt: Vec<&str> = all
        .lines()
        .filter(|line| line.contains("not built"))
        .collect();
    let expected = "not built: toolhold build modules/one modules/two";
    assert_eq!(unbuilt, [expected], "{all}");
    let one = served(&["--tools", "calculator"]);
    assert!(
        !one.contains("broken") && !one.contains("not built"),
        "{one}"
    );
}

#[test]
fn runs_are_listed_as_json() {
    let host = Host::new();
    host.ship("calculator");
    let endpoint = Endpoint::start(Scenario::new(
        (0..2).map(|_| Reply::solution(json!({"calls": [], "output": "done"}))),
    ));
    let url = endpoint.base_url();
    for task in ["one", "two"] {
        let done = host.run(&["run", task, "--base-url", &url, "--model", "m"]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let tasks = |flags: &[&str]| -> Vec<Value> {
        let done = host.run(&[&["runs"], flags].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
        let row = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["task"].clone();
        done.stdout.lines().map(row).collect()
    };
    assert_eq!(tasks(&["--json"]), [json!("one"), json!("two")]);
    assert_eq!(tasks(&["--json", "--last", "1"]), [json!("two")]);
}

/// The author of these modules decides what building them runs here; that needs the operator's consent.
#[test]
fn a_call_builds_nothing_that_could_run_native_code() {
    let host = Host::new();
    for (language, file) in [
        ("rust", "Cargo.toml"),
        ("c", "compile_flags.txt"),
        ("go", "go.mod"),
        ("typescript", "tsconfig.json"),
        ("javascript", "package.json"),
    ] {
        let manifest = format!("[build]\nlanguage = \"{language}\"\n");
        host.write("modules/unbuilt/module.toml", manifest)
            .write(&format!("modules/unbuilt/{file}"), "{}");
        let done = host.run(&["modules", "call", "unbuilt.answer"]);
        assert_eq!(done.code, Some(1), "{language}: {done:?}");
        assert!(
            done.stderr.contains("not built: ") && done.stderr.contains("toolhold build"),
            "{language}: {done:?}"
        );
        std::fs::remove_dir_all(host.path().join("modules/unbuilt")).expect("it is there");
    }
}

#[test]
fn inspect_shows_what_a_module_asks_for_and_has() {
    let host = Host::new();
    host.ship("files");
    let asks = host.run(&["modules", "inspect", "files"]);
    assert_eq!(asks.code, Some(0), "{asks:?}");
    for part in [
        "nothing else: no files",
        "asks for",
        "/data",
        "--dir files=",
    ] {
        assert!(asks.stdout.contains(part), "{part}: {}", asks.stdout);
    }
    std::fs::create_dir(host.path().join("notes")).expect("a folder");
    // Where the path leads, whatever was written.
    let notes = host
        .path()
        .join("notes")
        .canonicalize()
        .expect("it is there");
    let given = host.run(&[
        "modules",
        "inspect",
        "files",
        "--dir",
        "files=notes:/data:rw",
    ]);
    assert!(
        given.stdout.contains(&format!(
            "read, write and delete files in {}, which it sees as /data",
            notes.display()
        )),
        "{}",
        given.stdout
    );
    let missing = host.run(&["modules", "inspect", "files", "--dir", "files=nowhere"]);
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(
        missing
            .stderr
            .contains("the directory nowhere cannot be opened"),
        "{missing:?}"
    );
}

#[test]
fn a_granted_directory_is_all_that_a_module_sees() {
    let host = Host::new();
    host.ship("files")
        .write("notes/a.txt", "hello")
        .write("secret.txt", "no");
    let call = |arguments: &[&str]| {
        host.run(
            &[
                &["modules", "call", "--dir", "files=notes:/data:rw"],
                arguments,
            ]
            .concat(),
        )
    };
    let done = call(&["files.write", r#"{"path":"b.txt","content":"new"}"#]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(
        std::fs::read_to_string(host.path().join("notes/b.txt")).expect("written"),
        "new"
    );
    let done = call(&["files.read", r#"{"path":"../secret.txt"}"#]);
    assert_eq!(done.code, Some(5), "{done:?}");
}

#[test]
fn configuration_shows_values_and_origins_and_refuses_what_it_does_not_know() {
    let host = Host::new();
    host.write("toolhold.toml", "[run]\nmax_steps = 3\n");
    let mut command = host.command(&["config", "--json"]);
    command.env("TOOLHOLD_RUN__MAX_TOKENS", "77");
    let done = support::host::finish(command.output().expect("runs"));
    let settings: Vec<Value> = serde_json::from_str(&done.stdout).expect("an array");
    let of = |key: &str| {
        settings
            .iter()
            .find(|s| s["key"] == key)
            .cloned()
            .unwrap_or_default()
    };
    assert_eq!(
        of("run.max_steps"),
        json!({"key": "run.max_steps", "value": 3, "origin": "file toolhold.toml"})
    );
    assert_eq!(
        of("run.max_tokens")["origin"],
        "variable TOOLHOLD_RUN__MAX_TOKENS"
    );
    assert_eq!(of("limits.fuel")["origin"], "default");

    for (text, expect) in [
        ("[run]\nmax_step = 3", "did you mean \"run.max_steps\"?"),
        (
            "[run]\nmax_steps = \"many\"",
            "\"run.max_steps\", set by file toolhold.toml",
        ),
        ("[run]\nmax_steps = 0", "must be at least 1"),
        ("[tool_retry]\nattempts = 11", "must be at most 10"),
        ("endpoint = \"big\"", "there is no [endpoints.big]"),
        ("[run", "not valid TOML"),
    ] {
        host.write("toolhold.toml", text);
        let done = host.run(&["modules", "list"]);
        assert_eq!(done.code, Some(1), "{text}: {done:?}");
        assert!(done.stderr.contains(expect), "{text}: {done:?}");
    }
}

#[test]
fn guest_text_cannot_drive_the_terminal() {
    let host = Host::new();
    host.write("modules/bad.wasm", component(hostile::FLOOD));
    let done = host.run(&["modules", "call", "bad.flood"]);
    assert_eq!(done.code, Some(0), "{:?}", done.stderr.get(..500));
    assert!(
        !done.stderr.contains('\u{1b}') && done.stderr.contains("\\u{1b}"),
        "escapes are shown, not obeyed"
    );
    assert!(done.stderr.contains("more bytes were dropped"));
}

#[test]
fn the_demo_replays_a_real_model_against_live_tools() {
    let host = Host::new();
    let done = host.run(&["demo"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stderr.contains("This replays what"),
        "it says that it is a replay: {done:?}"
    );
    assert!(
        done.stderr.contains("calculator.evaluate") && done.stderr.contains("text.count"),
        "{done:?}"
    );
}

/// A run keeps what it was started with: a flag that would change it is refused, not ignored.
#[test]
fn resume_takes_no_flag_that_it_would_ignore() {
    let host = Host::new();
    for flag in [
        &["--max-steps", "3"][..],
        &["--max-tokens", "3"],
        &["--token-budget", "3"],
        &["--timeout", "3"],
        &["--contract", "tools"],
        &["--shape", "both"],
        &["--dry-run"],
        &["--tools", "calculator"],
    ] {
        let done = host.run(&[&["resume", "last"], flag].concat());
        assert_eq!(done.code, Some(2), "{flag:?}: {done:?}");
        for part in [flag[0], "a run goes on with what it was started with"] {
            assert!(done.stderr.contains(part), "{flag:?}: {done:?}");
        }
    }
    let unknown = host.run(&["resume", "last", "--max-stepz", "3"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(!unknown.stderr.contains("goes on with"), "{unknown:?}");
    let elsewhere = host.run(&["runs", "--max-steps", "3"]);
    assert!(!elsewhere.stderr.contains("goes on with"), "{elsewhere:?}");
}

/// Of two runs, one of a model and one of a saved plan, each is resumed with what it can use.
#[test]
fn a_resumed_run_says_when_another_model_goes_on_with_it() {
    let host = Host::new();
    host.ship("text")
        .write("toolhold.toml", "[decisions]\nalways = [\"text.count\"]\n")
        .write("plan.json", r#"[{"_tool": "text.count", "text": "a b"}]"#);
    let call = json!({"_tool": "text.count", "_reasoningForCall": "r", "text": "a b"});
    let endpoint = Endpoint::start(Scenario::new([
        Reply::solution(json!({"calls": [call], "output": null})),
        Reply::solution(json!({"calls": [], "output": "done"})),
    ]));
    let url = endpoint.base_url();
    killed_while_it_waits(&host, &["run", "t", "--base-url", &url, "--model", "first"]);
    let resumed = host.run(&["resume", "last", "--base-url", &url, "--model", "second"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert!(
        resumed
            .stderr
            .contains("second goes on with what first began"),
        "{resumed:?}"
    );
    for kept in ["the schema contract", "no known window", "no price"] {
        assert!(resumed.stderr.contains(kept), "{kept}: {resumed:?}");
    }
    assert_eq!(host.run(&["runs", "replay", "last"]).code, Some(0));

    killed_while_it_waits(&host, &["plan", "run", "plan.json"]);
    let refused = host.run(&["resume", "last", "--model", "m"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("--model has no meaning"),
        "{refused:?}"
    );
    let resumed = host.run(&["resume", "last"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
}

/// Where there is nothing, that is said, and to whom it matters: a pipe gets nothing.
#[test]
fn empty_lists_and_unknown_runs_say_what_to_do() {
    let host = Host::new();
    for (arguments, code, expect) in [
        (&["runs"][..], 0, "there are no runs yet"),
        (&["approvals", "list"], 0, "no call waits for a person"),
        (&["show", "last"], 1, "there are no runs yet"),
        (&["resume", "last"], 1, "there are no runs yet"),
        (&["runs", "diff", "last", "0"], 1, "there are no runs yet"),
        (&["show", "0"], 1, "there is no run \"0\""),
    ] {
        let done = host.run(arguments);
        assert_eq!(done.code, Some(code), "{arguments:?}: {done:?}");
        assert!(
            done.stderr.contains(expect) && done.stdout.is_empty(),
            "{arguments:?}: {done:?}"
        );
    }
}

/// From the question to the end: what waits, what was decided, and what to do next.
#[test]
fn a_run_that_waits_says_so_wherever_one_looks() {
    let host = Host::new();
    host.ship("text")
        .write("toolhold.toml", "[decisions]\nalways = [\"text.count\"]\n")
        .write("plan.json", r#"[{"_tool": "text.count", "text": "a b"}]"#);
    let call = left_while_it_waits(&host, &["plan", "run", "plan.json"]);
    let listed = host.run(&["runs"]).stdout;
    let run = listed.split_whitespace().next().expect("a run");
    for part in [
        "just now",
        "waits for a person",
        &format!("toolhold resume {run}"),
    ] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let records = Records::of(&host);
    let shown = records.digest(&call, "of another");
    let vain = host.run(&["approvals", "refuse", &call, "no"]);
    assert_eq!(vain.code, Some(1), "{vain:?}");
    assert!(vain.stderr.contains("nothing was decided"), "{vain:?}");
    records.digest(&call, &shown);
    let decided = host.run(&["approvals", "refuse", &call, "no"]);
    assert!(
        decided
            .stdout
            .contains(&format!("its process has ended; toolhold resume {run}")),
        "{decided:?}"
    );
    let waiting = host.run(&["approvals", "list"]);
    assert!(
        waiting.stdout.contains("decided, and not taken up yet"),
        "{waiting:?}"
    );
    let resumed = host.run(&["resume", "last"]);
    assert_eq!(resumed.code, Some(5), "{resumed:?}");
    assert!(resumed.stderr.contains("1 step, 0 calls"), "{resumed:?}");
    let over = host.run(&["runs"]).stdout;
    assert!(over.contains("after 1 step, 0 calls"), "{over}");
}

/// A call whose arguments are too long for a line is to be read before it is approved.
#[test]
fn a_long_call_is_shown_whole_before_a_command_approves_it() {
    let host = Host::new();
    let text = format!("{}the end", "long ".repeat(1_000));
    let plan = json!([{"_tool": "text.count", "text": text}]);
    host.ship("text")
        .write("toolhold.toml", "[decisions]\nalways = [\"text.count\"]\n")
        .write("plan.json", plan.to_string());
    let call = left_while_it_waits(&host, &["plan", "run", "plan.json"]);
    let record = host.run(&["show", "last"]).stdout;
    assert!(!record.contains("approvals approve"), "{record}");
    assert!(
        record.contains(&format!("toolhold approvals show {call}")),
        "{record}"
    );
    let shown = host.run(&["approvals", "show", &call]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains(&text), "{shown:?}");
    let none = host.run(&["approvals", "show", "0"]);
    assert!(none.stderr.contains("no call \"0\" waits"), "{none:?}");
}

/// Starts a run whose call waits for a person, kills it, and approves the call.
pub(super) fn killed_while_it_waits(host: &Host, arguments: &[&str]) {
    let call = left_while_it_waits(host, arguments);
    let approved = host.run(&["approvals", "approve", &call]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
}

/// The call that a killed run waits for.
fn left_while_it_waits(host: &Host, arguments: &[&str]) -> String {
    let mut child = host
        .command(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let call = host.waiting_call();
    if arguments[0] == "run" {
        // What the model said is on the record, too.
        Records::of(host).until_there_is("tokens");
    }
    child.kill().expect("SIGKILL");
    child.wait().expect("it ends");
    call
}

/// A reader such as `head` may stop reading: that is no failure, and prints no error.
#[test]
fn a_reader_that_goes_away_is_no_crash() {
    let host = Host::new();
    for arguments in [
        &["config"][..],
        &["config", "--json"],
        &["--help"],
        &["licences"],
        &["licences", "--list"],
    ] {
        let mut child = host
            .command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        drop(child.stdout.take());
        let done = support::host::finish(child.wait_with_output().expect("it ends"));
        assert_eq!(done.stderr, "", "{arguments:?}");
        assert!(
            matches!(done.code, Some(0 | 141)),
            "{arguments:?}: {done:?}"
        );
    }
}

/// The notices are in the binary: neither a configuration nor a folder is read for them.
#[test]
fn licences_are_told_whatever_the_configuration_says() {
    let host = Host::new();
    host.write_untrusted("toolhold.toml", "no configuration");
    let whole = host.run(&["licences"]);
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    let list = host.run(&["licences", "--list"]);
    assert_eq!(list.code, Some(0), "{}", list.stderr);
    for (name, licence) in [
        ("wasmtime", "Apache-2.0 WITH LLVM-exception"),
        ("SQLite", "blessing"),
        ("QuickJS-ng", "MIT"),
    ] {
        assert!(whole.stdout.contains(&format!("\n{name} ")), "{name}");
        let mut lines = list.stdout.lines();
        let line = lines.find(|line| line.starts_with(&format!("{name} ")));
        let line = line.unwrap_or_else(|| panic!("{name} in {}", list.stdout));
        assert!(line.ends_with(licence), "{line}");
    }
}

/// A value that cannot be meant is refused with what to write instead, before anything is done.
#[test]
fn settings_that_cannot_be_meant_are_refused() {
    for (file, expect) in [
        ("[run]\nexamples = 99", ["\"run.examples\"", "0 to 2"]),
        (
            "[run]\ncall_timeout_ms = 0",
            ["\"run.call_timeout_ms\"", "leave it out"],
        ),
        (
            "[run]\ntimeout_ms = 0",
            ["\"run.timeout_ms\"", "leave it out"],
        ),
        (
            "[endpoints.default]\nidle_timeout_ms = 0",
            ["\"endpoints.default.idle_timeout_ms\"", "at least 1"],
        ),
        (
            "[endpoints.big]\nbase_url = \"http://127.0.0.1:1/v1\"\nconnect_timeout_ms = 0",
            ["\"endpoints.big.connect_timeout_ms\"", "at least 1"],
        ),
        (
            "[endpoints.default]\nfirst_token_timeout_ms = 0",
            ["\"endpoints.default.first_token_timeout_ms\"", "at least 1"],
        ),
        (
            "[router]\ntimeout_ms = 0",
            ["\"router.timeout_ms\"", "at least 1"],
        ),
        (
            "[limits]\ntimeout_ms = 0",
            ["\"limits.timeout_ms\"", "at least 1"],
        ),
        (
            "[module.text]\nlimits = { http_timeout_ms = 0 }",
            ["\"module.text.limits.http_timeout_ms\"", "at least 1"],
        ),
        (
            "[shields.a]\nkind = \"pii\"\nhide = [\"email\"]\nplaces = [\"output\"]",
            ["\"shields.a.places\"", "name what to block"],
        ),
    ] {
        let host = Host::new();
        host.write("toolhold.toml", file);
        let done = host.run(&["config"]);
        assert_eq!(done.code, Some(1), "{file}: {done:?}");
        for part in expect {
            assert!(done.stderr.contains(part), "{file}: {part}: {done:?}");
        }
        assert!(done.stderr.contains("toolhold.toml"), "{file}: {done:?}");
    }
}

/// What can be made again is shown by its size, and removed when nothing uses it.
#[test]
fn the_cache_is_shown_and_pruned() {
    let host = Host::new();
    host.ship("calculator");
    let run = |arguments: &[&str]| {
        let mut command = host.command(arguments);
        command.env("TOOLHOLD_PATHS__CACHE", host.path().join("cache"));
        let done = finish(command.output().expect("it runs"));
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout
    };
    run(&["modules", "list"]);
    host.write("cache/toolchains/ziglang-0.1.0/zig", "an old compiler");
    let parts = || -> Value {
        let shown = serde_json::from_str(&run(&["cache", "--json"]));
        shown.map(|it: Value| it["parts"].clone()).expect("JSON")
    };
    let files =
        |parts: Value| [&parts["compiled"], &parts["toolchains"]].map(|it| it["files"].as_u64());
    assert_eq!(files(parts()), [Some(1), Some(1)]);
    assert!(run(&["cache"]).contains("compilers that builds installed"));
    let pruned = run(&["cache", "prune"]);
    assert!(
        pruned.contains("removed 0 compiled modules") && pruned.contains("ziglang-0.1.0"),
        "{pruned}"
    );
    // It was used a moment ago; the compiler's lock goes with it.
    assert_eq!(files(parts()), [Some(1), Some(0)]);
    assert!(!host.path().join("cache/toolchains/ziglang-0.1.0").exists());
    let pruned = run(&["cache", "prune", "--older-than", "0d"]);
    assert!(pruned.contains("removed 1 compiled module "), "{pruned}");
    assert_eq!(files(parts())[0], Some(0));
}

/// Flags of all commands may stand before or behind a command of `runs`, those of `runs` alone behind it.
#[test]
fn flags_between_a_command_and_the_one_below_it() {
    let host = Host::new();
    for (arguments, code) in [
        (&["runs", "--offline", "prune", "--older-than", "1d"][..], 0),
        (&["--offline", "runs", "prune", "--older-than", "1d"], 0),
        (&["runs", "--last", "1"], 0),
        (&["runs", "--last", "1", "prune", "--older-than", "1d"], 2),
        (&["runs", "--json", "replay", "last"], 2),
    ] {
        let done = host.run(arguments);
        assert_eq!(done.code, Some(code), "{arguments:?}: {done:?}");
    }
}
