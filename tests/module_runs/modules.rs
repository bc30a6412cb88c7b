//! What `_module` names, what a module receives and what it returns (docs/protocol.md, 6).

use serde_json::{Map, Value, json};
use std::process::Stdio;
use std::time::Duration;
use support::endpoint::{Endpoint, Scenario};
use support::host::{Finished, Host, finish};
use support::oci::OciRegistry;
use support::records::Records;
use support::sandbox::{component, repository};
use support::transcript::{Transcript, answers, calls, told};

/// A component whose only tool returns a number: each number is a component of its own.
fn number(number: u32) -> Vec<u8> {
    component(&format!(
        r#"(component
            (core module $m (func (export "say") (result i32) i32.const {number}))
            (core instance $i (instantiate $m))
            (func (export "say") (result u32) (canon lift (core func $i "say"))))"#
    ))
}

fn witness() -> Vec<u8> {
    let path = repository().join("tests/components/witness/witness.wasm");
    std::fs::read(path).expect("the witness")
}

/// A message that defines one tool a name, run by what the name stands for.
fn delegating<'a>(tools: impl IntoIterator<Item = (&'a str, &'a str)>) -> Value {
    let tools = tools.into_iter().map(|(name, module)| {
        let tool = json!({"type": "object", "properties": {"_module": {"const": module}}});
        (name.to_owned(), tool)
    });
    json!({"type": "tool", "tool": tools.collect::<Map<_, _>>()})
}

fn run(host: &Host, endpoint: &Endpoint, context: &Value, options: &[&str]) -> Transcript {
    host.write("context.json", context.to_string());
    let arguments = [&["run", "Do it.", "--context", "context.json"], options].concat();
    Transcript::of(host, endpoint, &arguments)
}

/// Expects that a run with this context is refused before anything is asked, in these words.
fn refused(host: &Host, context: &Value, options: &[&str], words: &[&str]) -> Finished {
    let endpoint = Endpoint::start(Scenario::default());
    let run = run(host, &endpoint, context, options);
    let done = run.finished;
    assert_eq!(done.code, Some(1), "{context}: {done:?}");
    for word in words {
        assert!(
            done.stderr.contains(word),
            "{word:?} for {context}: {done:?}"
        );
    }
    assert!(endpoint.requests().is_empty(), "something was asked");
    done
}

#[test]
fn every_form_names_its_component() {
    let host = Host::new();
    host.ship("calculator")
        .ship("text")
        .write("modules/tally@1.1.wasm", number(11))
        .write("modules/tally@1.2.wasm", number(12))
        .write("modules/tally@2.0.wasm", number(20))
        .write("modules/further/down/deep.wasm", number(7));
    let two = || json!({"expression": "1 + 1"});
    let forms = [
        ("by_name", "calculator", two(), json!({"value": "2"})),
        (
            "as_called",
            "calculator.evaluate",
            two(),
            json!({"value": "2"}),
        ),
        (
            "by_file",
            "./calculator/calculator.wasm",
            two(),
            json!({"value": "2"}),
        ),
        (
            "one_tool",
            "text#reverse",
            json!({"text": "ab"}),
            json!({"text": "ba"}),
        ),
        ("newest", "tally", json!({}), json!(20)),
        ("major", "tally@1", json!({}), json!(12)),
        ("minor", "tally@1.1", json!({}), json!(11)),
        ("exact", "tally@2.0.0#say", json!({}), json!(20)),
        ("a_version_s_file", "./tally@1.1.wasm", json!({}), json!(11)),
        ("deep", "./further/down/deep.wasm", json!({}), json!(7)),
        (
            "deep_tool",
            "./further/down/deep.wasm#say",
            json!({}),
            json!(7),
        ),
    ];
    let made = forms
        .iter()
        .map(|(name, _, arguments, _)| (*name, arguments.clone()));
    let made: Vec<_> = made.collect();
    let (first, rest) = made.split_at(6);
    let endpoint = Endpoint::start(Scenario::new([
        calls(first.to_vec()),
        calls(rest.to_vec()),
        answers("done"),
    ]));
    let tools = forms.iter().map(|(name, module, ..)| (*name, *module));
    // A second version of a name that is known waits for a person otherwise.
    let run = run(
        &host,
        &endpoint,
        &json!([delegating(tools)]),
        &["--trust-all"],
    );
    assert_eq!(run.output(), "done");
    for (name, module, _, expect) in &forms {
        let results = run.results(name);
        assert_eq!(results.len(), 1, "{name}");
        assert_eq!(&results[0]["output"], expect, "{module}: {}", results[0]);
    }
    // What the message leaves open is the component's to say.
    let schema = endpoint.requests()[0]["response_format"].to_string();
    assert!(schema.contains("expression"), "{schema}");
}

#[test]
fn an_unknown_module_is_an_error_before_any_request() {
    let host = Host::new();
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::write(elsewhere.path().join("outside.wasm"), number(1)).unwrap();
    host.ship("text")
        .write("modules/tally@1.2.wasm", number(12))
        .write("modules/broken.wasm", "no component")
        .write("outside.wasm", number(1))
        .write("requests/greet.json", json!({"context": []}).to_string())
        .write("requests/tally.json", json!({"context": []}).to_string())
        .write("requests/bad.json", r#"{"context": [{"type": "nothing"}]}"#);
    let modules = host.path().join("modules");
    std::os::unix::fs::symlink(
        elsewhere.path().join("outside.wasm"),
        modules.join("link.wasm"),
    )
    .unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), modules.join("far")).unwrap();
    for (module, words) in [
        (
            "nowhere",
            &["\"nowhere\"; there are tally, text, bad, greet, tally"][..],
        ),
        ("text", &["names no one tool", "text#count", "text#reverse"]),
        ("text#shout", &["names no one tool", "text#reverse"]),
        ("tally@3", &["no version \"3\"", "there are 1.2.0"]),
        ("tally", &["./tally.json", "tally#TOOL"]),
        ("./none.wasm", &["modules (modules.roots)"]),
        (
            "./broken.wasm",
            &["./broken.wasm: it is not a WebAssembly component"],
        ),
        ("./../outside.wasm", &["outside of the filesystem"]),
        ("./link.wasm", &["outside of the filesystem"]),
        ("./far/outside.wasm", &["outside of the filesystem"]),
        ("/etc/passwd", &["names no file", "./path/to/file.wasm"]),
        ("text/text.wasm", &["names no file"]),
        ("./text", &["names no file", "./path/to/file.json"]),
        ("./none.json", &["requests (requests.folder)", "bad, greet"]),
        ("./../context.json", &["no Request"]),
        ("bad", &["bad.json: ", "message 1"]),
        ("oci://nothing", &["it names no repository"]),
        (
            "oci://127.0.0.1:9/tally:1",
            &["cannot be fetched", "cannot be reached"],
        ),
    ] {
        let done = refused(&host, &json!([delegating([("it", module)])]), &[], words);
        assert!(
            done.stderr.contains("the tool \"it\" cannot be run"),
            "{done:?}"
        );
    }
    let context = json!([delegating([("it", "./text/text.wasm#reverse")])]);
    refused(
        &host,
        &context,
        &["--tools", "tally"],
        &["text.reverse is not among", "--tools"],
    );
}

#[test]
fn paths_lie_under_the_configured_roots() {
    let host = Host::new();
    host.write(
        "toolhold.toml",
        "[modules]\nroots = [\"first\", \"second\"]\n",
    )
    .write("modules/own.wasm", number(1))
    .write("first/both.wasm", number(2))
    .write("second/both.wasm", number(3))
    .write("second/only.wasm", number(4));
    let endpoint = Endpoint::start(Scenario::new([
        calls([
            ("both", json!({})),
            ("only", json!({})),
            ("own.say", json!({})),
        ]),
        answers("done"),
    ]));
    let tools = delegating([("both", "./both.wasm"), ("only", "./only.wasm")]);
    let run = run(&host, &endpoint, &json!([tools]), &[]);
    assert_eq!(run.output(), "done");
    assert_eq!(run.result("both"), &json!(2));
    assert_eq!(run.result("only"), &json!(4));
    assert_eq!(run.result("own.say"), &json!(1));
    let context = json!([delegating([("it", "./own.wasm")])]);
    refused(
        &host,
        &context,
        &[],
        &["under first, second (modules.roots)"],
    );
}

/// A path is another way to the module of that name, and to nothing else.
#[test]
fn a_component_by_path_stands_under_the_rules_of_its_name() {
    let host = Host::new();
    let spins = component(toolhold_hostile::components::COMPUTE);
    host.write("modules/sub/spinner.wasm", &spins).write(
        "toolhold.toml",
        "[modules]\npinning = \"always\"\n[module.spinner.limits]\nfuel = 5_000_000\n",
    );
    let context = json!([delegating([("spin", "./sub/spinner.wasm#spin")])]);
    let remedy = "toolhold modules approve ./sub/spinner.wasm";
    refused(&host, &context, &[], &["disabled", remedy]);
    let approved = host.run(&["modules", "approve", "./sub/spinner.wasm", "--yes"]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let endpoint = Endpoint::start(Scenario::new([
        calls([("spin", json!({}))]),
        answers("done"),
    ]));
    let run = run(&host, &endpoint, &context, &[]);
    let failure = run.failure("spin");
    assert_eq!(failure["kind"], "fuel", "{failure}");
    assert!(
        failure["message"].as_str().unwrap().contains("5000000"),
        "{failure}"
    );

    // Another file of that name is another module, which is not approved.
    host.write("modules/sub/spinner.wasm", number(1));
    refused(&host, &context, &[], &["disabled"]);
    // A name that is taken stays with who has it.
    host.write("toolhold.toml", "")
        .write("modules/spinner.wasm", &spins);
    refused(
        &host,
        &context,
        &[],
        &["already taken by modules/spinner.wasm"],
    );
}

#[test]
fn a_decision_rule_holds_whatever_the_tool_is_called() {
    let host = Host::new();
    host.ship("calculator")
        .write("toolhold.toml", "[decisions]\nalways = [\"calculator\"]\n");
    let context = json!([delegating([
        ("sum", "calculator"),
        ("by_file", "./calculator/calculator.wasm")
    ])]);
    let two = || json!({"expression": "1+1"});
    let endpoint = Endpoint::start(Scenario::new([calls([("sum", two()), ("by_file", two())])]));
    let url = endpoint.base_url();
    host.write("context.json", context.to_string());
    // If it asks only once, it waits until its time is over.
    let options = [
        "--base-url",
        &url,
        "--model",
        "m",
        "--timeout",
        "60",
        "--json",
    ];
    let arguments = [&["run", "t", "--context", "context.json"], &options[..]].concat();
    let done = host.run_until(&arguments, "\"event\":\"approval\"", 2);
    let events: Vec<Value> = done
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let count = |kind: &str| events.iter().filter(|event| event["event"] == kind).count();
    assert_eq!((count("approval"), count("tool_start")), (2, 0), "{done:?}");
}

/// The process that resumes loads again what the first one loaded because a tool named it.
#[test]
fn a_run_that_waits_finds_its_components_again() {
    let host = Host::new();
    host.write("modules/sub/deep.wasm", number(7))
        .write("toolhold.toml", "[decisions]\nalways = [\"deep\"]\n")
        .write(
            "context.json",
            json!([delegating([("dig", "./sub/deep.wasm")])]).to_string(),
        );
    let endpoint = Endpoint::start(Scenario::new([calls([("dig", json!({}))]), answers("dug")]));
    let url = endpoint.base_url();
    let options = ["--base-url", &url, "--model", "m", "--json"];
    let mut child = host
        .command(&[&["run", "t", "--context", "context.json"], &options[..]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let call = host.waiting_call();
    // The reply is over, too, and everything is on the record.
    Records::of(&host).until_there_is("tokens");
    child.kill().unwrap();
    child.wait().unwrap();
    let approved = host.run(&["approvals", "approve", &call]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let resumed = host.run(&[&["resume", "last"], &options[..]].concat());
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let journal = host.run(&["show", "last", "--json"]);
    let run = Transcript::read(&host, journal);
    assert_eq!(
        (run.output(), run.result("dig")),
        (&json!("dug"), &json!(7))
    );
}

#[test]
fn references_name_components_of_registries() {
    let (host, registry) = (Host::new(), OciRegistry::start());
    host.write("modules/.keep", "");
    let of = |rest: &str| registry.reference(rest);
    registry.push("tools/tally", "1.0", &number(10));
    let second = registry.push("tools/tally", "2.0", &number(20));
    let fixed = registry.push("fixed", "latest", &number(3));
    registry.push("sourced", "1", &number(4));
    let sourced = of("sourced:1");
    host.write(
        "toolhold.toml",
        format!("[module.mine]\nsource = \"{sourced}\"\n"),
    );
    let forms = [
        ("one", of("tools/tally:1.0"), 10),
        ("two", of("tools/tally:2.0"), 20),
        ("pinned", of(&format!("fixed@{fixed}")), 3),
        ("pinned_again", of(&format!("fixed@{fixed}#say")), 3),
        ("same_content", of(&format!("tools/tally@{second}")), 20),
        ("source", sourced, 4),
    ];
    let endpoint = Endpoint::start(Scenario::new([
        calls(forms.iter().map(|(name, ..)| (*name, json!({})))),
        answers("done"),
    ]));
    let tools = delegating(
        forms
            .iter()
            .map(|(name, reference, _)| (*name, reference.as_str())),
    );
    host.write("context.json", json!([tools]).to_string());
    let url = endpoint.base_url();
    let cache = host.path().join("cache");
    let start = |arguments: &[&str]| {
        let mut command = host.command(
            &[
                &[
                    "run",
                    "t",
                    "--context",
                    "context.json",
                    "--model",
                    "m",
                    "--json",
                    "--base-url",
                    &url,
                ],
                arguments,
            ]
            .concat(),
        );
        finish(
            command
                .env("TOOLHOLD_PATHS__CACHE", &cache)
                .output()
                .unwrap(),
        )
    };
    let run = Transcript::read(&host, start(&["--trust-all"]));
    assert_eq!(run.output(), "done");
    for (name, reference, expect) in &forms {
        assert_eq!(run.result(name), &json!(expect), "{reference}");
    }
    assert_eq!(
        registry.count("/blobs/"),
        4,
        "each component is fetched once"
    );

    // What the operator gives to a name is for the component that the operator chose.
    host.write("toolhold.toml", "[module.fixed]\nkey_value = {}\n");
    let context = json!([delegating([("it", of("fixed:latest").as_str())])]);
    let advice = format!("source = \"{}\"", of("fixed:latest"));
    refused(&host, &context, &[], &["[module.fixed]", &advice]);
    // Two without a version cannot stand side by side.
    host.write("toolhold.toml", "");
    registry.push("other/fixed", "latest", &number(5));
    let tools = delegating(
        [("a", of("fixed:latest")), ("b", of("other/fixed:latest"))]
            .iter()
            .map(|(a, b)| (*a, b.as_str())),
    );
    refused(
        &host,
        &json!([tools]),
        &[],
        &["already taken", "[module.NAME] source = "],
    );
    refused(
        &host,
        &json!([delegating([("it", of("gone:1").as_str())])]),
        &[],
        &["gone:1 cannot be fetched"],
    );
    let offline = json!([delegating([("it", of("fixed:2").as_str())])]);
    refused(&host, &offline, &["--offline"], &["offline"]);
}

/// What is dropped in later belongs to the next run.
#[test]
fn a_run_sees_the_tools_that_were_there_when_it_began() {
    let host = Host::new();
    let outer = json!({"context": [delegating([("inner", "late")]), {"role": "user", "content": "Go on."}]});
    host.write("modules/early.wasm", number(1))
        .write("requests/outer.json", outer.to_string())
        .write(
            "context.json",
            json!([delegating([("outer", "outer")])]).to_string(),
        );
    let endpoint = Endpoint::start(Scenario::new([
        calls([("late.say", json!({})), ("outer", json!({}))]).delayed_ms(1_500, 0),
        answers("done"),
    ]));
    let url = endpoint.base_url();
    let child = host
        .command(&[
            "run",
            "t",
            "--context",
            "context.json",
            "--base-url",
            &url,
            "--model",
            "m",
            "--json",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(endpoint.wait_until(Duration::from_secs(20), |e| e.requests().len() == 1));
    host.write("modules/late.wasm", number(2))
        .write("requests/late.json", json!({"context": []}).to_string());
    let run = Transcript::read(&host, finish(child.wait_with_output().unwrap()));
    assert_eq!(run.output(), "done");
    assert_eq!(run.failure("late.say")["kind"], "unknown_tool");
    let failure = run.failure("outer")["message"].as_str().unwrap().to_owned();
    assert!(failure.contains("there is no module \"late\""), "{failure}");
}

#[test]
fn a_module_receives_its_arguments_and_what_its_scopes_name() {
    let host = Host::new();
    host.write("modules/witness.wasm", witness());
    let tell = |scopes: Value| {
        let mut properties =
            json!({"_module": {"const": "witness#tell"}, "n": {"type": "integer"}});
        if !scopes.is_null() {
            properties["_scopes"] = scopes;
        }
        json!({"type": "object", "properties": properties})
    };
    let offered = json!({"type": "array", "items": {"enum": ["user.name", "state"]}});
    let context = json!([
        {"type": "data", "kind": "user", "data": {"name": "Ada", "card": "4111"}},
        {"type": "state", "state": {"n": 3, "secret": "s3cret"}},
        {"type": "data", "kind": "greeting", "data": "hello", "_instance": "one"},
        {"type": "data", "kind": "greeting", "data": "hallo", "_instance": "two"},
        {"type": "tool", "tool": {
            "blind": tell(json!(null)),
            "given": tell(json!({"const": ["user.name", "greeting"]})),
            "asks": tell(offered.clone()),
            "asks_too_much": tell(offered),
        }},
    ]);
    let one = json!({"_instance": "one"});
    let with = |more: Value| {
        let mut call = one.clone();
        call.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        call
    };
    let endpoint = Endpoint::start(Scenario::new([
        calls([
            ("blind", with(json!({"n": "†state.n"}))),
            ("given", one.clone()),
            ("asks", with(json!({"_scopes": ["user.name"]}))),
            ("asks_too_much", with(json!({"_scopes": ["user"]}))),
        ]),
        answers("done"),
    ]));
    let run = run(&host, &endpoint, &context, &[]);
    assert_eq!(run.output(), "done");
    for (tool, arguments, seen) in [
        ("blind", json!({"n": 3}), json!([])),
        (
            "given",
            json!({}),
            json!([["user.name", "Ada"], ["greeting", "hello"]]),
        ),
        ("asks", json!({}), json!([["user.name", "Ada"]])),
    ] {
        // One call in the life of each instance.
        let expect = json!({"arguments": arguments, "context": seen, "calls": 1});
        assert_eq!(run.result(tool), &expect, "{tool}");
    }
    let failure = run.failure("asks_too_much");
    assert_eq!(
        (&failure["kind"], &failure["class"]),
        (&json!("scope"), &json!("correctable"))
    );
}

/// The probe, which may call its own tool `reflect`.
fn reflecting(host: &Host) {
    let path = repository().join("modules/sdk/probe/probe.wasm");
    let probe = std::fs::read(path).expect("the probe");
    host.write("modules/probe.wasm", probe).write(
        "toolhold.toml",
        "[module.probe]\ntools = [\"probe.reflect\"]\n",
    );
}

#[test]
fn a_module_is_told_its_call_and_the_tool_as_the_run_knows_it() {
    let host = Host::new();
    reflecting(&host);
    let own = json!({"times": {"type": "integer", "maximum": 3}});
    let with_own = |more: &Value| {
        let mut properties =
            json!({"_tool": {"const": "mirror"}, "_module": {"const": "probe#reflect"}});
        for part in [&own, more] {
            let part = part.as_object().unwrap().clone();
            properties.as_object_mut().unwrap().extend(part);
        }
        properties
    };
    let fixed = json!({"_scopes": {"const": ["user"]}, "_outputPath": {"const": "†state.fixed"}});
    let context = json!([
        {"type": "data", "kind": "user", "data": "Ada"},
        {"type": "data", "kind": "greeting", "data": "hello", "_instance": "one"},
        {"type": "tool", "tool": {
            "mirror": {"type": "object", "description": "Looks.", "properties": with_own(&json!({}))},
            "frame": {"type": "object", "properties": {"_module": {"const": "probe#reflect"},
                "_scopes": fixed["_scopes"], "_outputPath": fixed["_outputPath"]}},
        }},
    ]);
    let endpoint = Endpoint::start(Scenario::new([
        calls([
            (
                "mirror",
                json!({"_instance": "one", "times": 2, "_colour": ["red"],
                "_outputPath": "†state.seen", "_outputMethod": "push"}),
            ),
            ("frame", json!({"_instance": "one"})),
            ("probe.reflect", json!({"_instance": "one"})),
        ]),
        answers("done"),
    ]));
    let run = run(&host, &endpoint, &context, &["--trust-all"]);
    assert_eq!(run.output(), "done");

    let mirror = run.result("mirror");
    for (property, expect) in [
        ("tool", json!("mirror")),
        ("reason", json!("because")),
        ("instance", json!("one")),
        ("scopes", json!(null)),
        ("output_path", json!("†state.seen")),
        ("output_method", json!("push")),
        ("others", json!({"_colour": ["red"]})),
    ] {
        assert_eq!(mirror[property], expect, "{property}: {mirror}");
    }
    // The words and the bounds are the message's and not the module's.
    let schema = &mirror["schema"];
    assert_eq!(schema["description"], "Looks.");
    assert_eq!(schema["properties"]["times"], own["times"], "{schema}");
    assert_eq!(schema["properties"]["_module"]["const"], "probe#reflect");

    // What the author fixed is in force, whether the model wrote it or not.
    let frame = run.result("frame");
    assert_eq!(
        (&frame["output_path"], &frame["scopes"]),
        (&json!("†state.fixed"), &json!(["†user"]))
    );
    assert_eq!(
        frame["schema"]["properties"]["_outputPath"],
        fixed["_outputPath"]
    );

    let plain = run.result("probe.reflect");
    assert_eq!(plain["tool"], "probe.reflect");
    let schema = &plain["schema"];
    assert_eq!(schema["properties"]["_tool"]["const"], "probe.reflect");
    assert_eq!(
        schema["description"],
        "Says what it is told of its own call."
    );
    assert!(
        schema["properties"]["times"]["description"].is_string(),
        "{schema}"
    );
}

#[test]
fn a_nested_module_knows_its_own_call_and_not_its_callers() {
    let host = Host::new();
    reflecting(&host);
    let context = json!([
        {"type": "data", "kind": "user", "data": "Ada"},
        {"type": "data", "kind": "greeting", "data": "hello", "_instance": "one"},
        {"type": "tool", "tool": {"outer": {"type": "object", "properties": {
            "_module": {"const": "probe#ask"},
            "_scopes": {"const": ["user"]},
            "_outputPath": {"const": "†state.outer"},
        }}}},
    ]);
    let question =
        json!({"tool": "probe.reflect", "arguments": {}, "_instance": "one", "_colour": "red"});
    let endpoint = Endpoint::start(Scenario::new([
        calls([("outer", question)]),
        answers("done"),
    ]));
    let run = run(&host, &endpoint, &context, &["--trust-all"]);
    assert_eq!(run.output(), "done");
    let mut told = run.result("outer").clone();
    let schema = told["schema"].take();
    let nothing = Value::Null;
    let expect = json!({
        "tool": "probe.reflect", "reason": nothing, "instance": nothing, "scopes": nothing,
        "output_path": nothing, "output_method": nothing, "others": {}, "schema": nothing,
    });
    assert_eq!(told, expect);
    assert_eq!(
        schema["properties"]["_tool"]["const"], "probe.reflect",
        "{schema}"
    );
}

#[test]
fn without_a_run_a_module_knows_its_call() {
    let host = Host::new();
    reflecting(&host);
    let done = host.run(&["modules", "call", "probe.reflect", "{}", "--trust-all"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(
        (&told["tool"], &told["reason"], &told["others"]),
        (&json!("probe.reflect"), &Value::Null, &json!({}))
    );
    let properties = &told["schema"]["properties"];
    assert_eq!(properties["_tool"]["const"], "probe.reflect", "{told}");
    assert_eq!(
        properties["times"]["description"], "How often it asks.",
        "{told}"
    );
}

#[test]
fn a_module_returns_a_value_a_message_or_a_typed_error() {
    let host = Host::new();
    host.write("modules/witness.wasm", witness());
    let answer = |path: &str| json!({"type": "object", "properties": {"_module": {"const": "witness#answer"}, "_outputPath": {"const": path}}});
    let mut tools =
        json!({"free": {"type": "object", "properties": {"_module": {"const": "witness#answer"}}}});
    for name in ["value", "second", "elsewhere", "retryable", "fatal"] {
        let place = format!("†state.{name}.a || †state.{name}.b");
        tools[name] = answer(&place);
    }
    let context =
        json!([{"type": "state", "state": {"safe": true}}, {"type": "tool", "tool": tools}]);
    let endpoint = Endpoint::start(Scenario::new([
        calls([
            ("value", json!({"value": 1})),
            ("second", json!({"value": 2, "path": "††state.second.b"})),
            ("elsewhere", json!({"value": 3, "path": "††state.safe"})),
            ("retryable", json!({"class": "retryable"})),
            ("fatal", json!({"class": "fatal"})),
            ("free", json!({"value": 6, "path": "††state.safe"})),
        ]),
        answers("done"),
    ]));
    let run = run(&host, &endpoint, &context, &[]);
    assert_eq!(run.output(), "done");
    let written = |tool: &str| run.results(tool)[0]["written"].clone();
    assert_eq!(
        (run.result("value"), written("value")),
        (&json!(1), json!(["†state.value.a"]))
    );
    assert_eq!(
        (run.result("second"), written("second")),
        (&json!(2), json!(["†state.second.b"]))
    );
    let failure = run.failure("elsewhere");
    assert_eq!(failure["kind"], "output_path", "{failure}");
    assert!(
        failure["message"]
            .as_str()
            .unwrap()
            .contains("†state.elsewhere.a"),
        "{failure}"
    );
    for class in ["retryable", "fatal"] {
        assert_eq!(run.failure(class)["class"], class);
        assert_eq!(written(class), json!([format!("†state.{class}.b")]));
    }
    // Without a place of the call's there is none to pick.
    assert_eq!(
        (run.result("free"), written("free")),
        (&json!(6), Value::Null)
    );
    let shown = told(&endpoint, 1);
    assert!(shown.contains("\"safe\":true"), "{shown}");
}

/// The words of a message are what the model sees; the module was promised its own.
#[test]
fn a_module_is_never_called_with_arguments_that_its_schema_refuses() {
    let host = Host::new();
    host.ship("calculator");
    let properties = json!({"_module": {"const": "calculator"}, "sum": {"type": "string"}});
    let context =
        json!([{"type": "tool", "tool": {"add": {"type": "object", "properties": properties}}}]);
    let endpoint = Endpoint::start(Scenario::new([
        calls([("add", json!({"sum": "1+1"}))]),
        answers("done"),
    ]));
    let run = run(&host, &endpoint, &context, &[]);
    let failure = run.failure("add");
    assert_eq!(failure["kind"], "arguments", "{failure}");
    assert!(
        failure["message"]
            .as_str()
            .unwrap()
            .contains("\"expression\" is a required property"),
        "{failure}"
    );
}
