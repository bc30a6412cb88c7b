//! Grants, pins and their diffs, from the command line.

use serde_json::Value;
use support::endpoint::{Endpoint, Scenario};
use support::host::Host;
use support::sandbox::component;

/// A component whose one tool returns `number`.
fn answers(number: u32) -> Vec<u8> {
    component(&format!(
        r#"(component
          (core module $m (func (export "f") (result i32) (i32.const {number})))
          (core instance $i (instantiate $m))
          (func (export "answer") (result u32) (canon lift (core func $i "f"))))"#
    ))
}

#[test]
fn a_changed_module_is_disabled_shown_and_approved() {
    let host = Host::new();
    host.write("modules/m.wasm", answers(1));
    let call = || host.run(&["modules", "call", "m.answer"]);
    assert_eq!(call().stdout.trim(), "1");

    host.write("modules/m.wasm", answers(2));
    let refused = call();
    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert!(refused.stderr.contains("not_approved: "), "{refused:?}");
    let listed = host.run(&["modules", "list"]);
    assert!(listed.stdout.contains("disabled:"), "{listed:?}");

    let diff = host.run(&["modules", "diff", "m"]);
    assert_eq!(diff.code, Some(1), "{diff:?}");
    assert!(diff.stdout.contains("the component changed"), "{diff:?}");
    assert!(diff.stdout.contains("+ sha256:"), "{diff:?}");

    // Silence is no consent.
    let silent = host.run(&["modules", "approve", "m"]);
    assert_eq!(silent.code, Some(1), "{silent:?}");
    assert!(silent.stderr.contains("--yes"), "{silent:?}");
    let approved = host.run(&["modules", "approve", "m", "--yes"]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    assert_eq!(call().stdout.trim(), "2");
    assert_eq!(host.run(&["modules", "diff", "m"]).code, Some(0));
}

#[test]
fn for_authors_everything_is_trusted() {
    let host = Host::new();
    for number in [1, 2] {
        host.write("modules/m.wasm", answers(number));
        let done = host.run(&["modules", "call", "m.answer", "--trust-all"]);
        assert_eq!(done.stdout.trim(), number.to_string(), "{done:?}");
    }
}

#[test]
fn a_grant_is_given_in_words_approved_with_it_and_taken_back() {
    let host = Host::new();
    host.ship("files").write("notes/a.txt", "hello");
    let read = || host.run(&["modules", "call", "files.read", r#"{"path":"a.txt"}"#]);
    assert_eq!(read().code, Some(5));

    let granted = host.run(&[
        "modules",
        "grant",
        "files",
        "--with-dir",
        "notes:/data:rw",
        "--quota",
        "100000",
    ]);
    assert_eq!(granted.code, Some(0), "{granted:?}");
    for part in [
        "read, write and delete files in",
        "/data",
        "100000 bytes",
        "approved with this grant",
    ] {
        assert!(granted.stdout.contains(part), "{part}: {granted:?}");
    }
    let done = read();
    assert!(done.stdout.contains("hello"), "{done:?}");
    let inspected = host.run(&["modules", "inspect", "files"]);
    assert!(inspected.stdout.contains("what it may do"), "{inspected:?}");

    let revoked = host.run(&["modules", "revoke", "files"]);
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    let refused = read();
    assert!(
        refused.stderr.contains("its pin was revoked"),
        "{refused:?}"
    );
    let log = host.run(&["audit", "search", "--json"]).stdout;
    let entries = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_module: Vec<Value> = entries.filter(|entry| entry["module"] == "files").collect();
    let actions: Vec<&Value> = of_module.iter().map(|entry| &entry["action"]).collect();
    assert_eq!(
        actions,
        ["module_granted", "module_approved", "module_revoked"]
    );
    assert!(of_module[0]["may"].to_string().contains("/data"), "{log}");
}

#[test]
fn the_log_names_the_variables_of_a_module_and_not_their_values() {
    let host = Host::new();
    host.ship("files");
    let variable = ["--with-env", "CRM_TOKEN=tok-5ecre7"];
    let granted = host.run(&[&["modules", "grant", "files"], &variable[..]].concat());
    assert_eq!(granted.code, Some(0), "{granted:?}");
    assert!(
        granted.stdout.contains("CRM_TOKEN=tok-5ecre7"),
        "{granted:?}"
    );
    let log = host.run(&["audit", "search", "--json"]).stdout;
    assert!(log.contains("see the variable CRM_TOKEN"), "{log}");
    assert!(!log.contains("5ecre7"), "{log}");
}

#[test]
fn every_authority_is_in_the_audit_log() {
    let host = Host::new();
    host.ship("files").write("notes/a.txt", "hello");
    let given = ["modules", "grant", "files", "--with-dir", "notes:/data"];
    let call = ["modules", "call", "files.read", r#"{"path":"a.txt"}"#];
    let away = |arguments: &[&str]| {
        let mut command = host.command(arguments);
        // There is no server at this address.
        command.env(
            "TOOLHOLD_DATABASE_URL",
            "postgres://ann@127.0.0.1:1/toolhold",
        );
        command.output().expect("the binary runs").status.code()
    };
    assert_eq!(away(&given), Some(1));
    assert_eq!(host.run(&call).code, Some(5), "it was given nothing");
    assert_eq!(host.run(&given).code, Some(0));
    // Less may be had at any time.
    assert_eq!(away(&["modules", "revoke", "files"]), Some(1));
    assert_eq!(host.run(&call).code, Some(5), "it was taken away");
}

#[test]
fn configured_grants_need_a_person_and_a_flag_approves() {
    let host = Host::new();
    host.ship("files").write("notes/a.txt", "hello").write(
        "toolhold.toml",
        "[module.files]\ndirectories = [{ host = \"notes\", guest = \"/data\" }]\n",
    );
    let arguments = r#"{"path":"a.txt"}"#;
    let waits = host.run(&["modules", "call", "files.read", arguments]);
    assert!(
        waits.stderr.contains("it has not been approved yet"),
        "{waits:?}"
    );
    let flag = host.run(&[
        "modules",
        "call",
        "files.read",
        arguments,
        "--dir",
        "files=notes",
    ]);
    assert!(flag.stdout.contains("hello"), "{flag:?}");
    // The flag was for that command alone.
    let waits = host.run(&["modules", "call", "files.read", arguments]);
    assert!(
        waits.stderr.contains("disabled until a person approves it"),
        "{waits:?}"
    );
    assert_eq!(host.run(&["modules", "approve", "-y"]).code, Some(0));
    let done = host.run(&["modules", "call", "files.read", arguments]);
    assert!(done.stdout.contains("hello"), "{done:?}");
}

#[test]
fn a_wrong_grant_says_what_is_wrong() {
    let host = Host::new();
    host.ship("files");
    for (arguments, expect) in [
        (vec![], "nothing to grant"),
        (vec!["--with-env", "TZ"], "expected NAME=VALUE"),
        (vec!["--with-dir", "missing:/data"], "cannot be opened"),
        (
            vec!["--with-http", "example.com"],
            "expected [METHODS ]ORIGIN",
        ),
        (vec!["--with-http", "http://127.0.0.1:1"], "private"),
        (
            vec!["--with-secret", "a b"],
            "expected 'NAME=VARIABLE ORIGIN HEADER'",
        ),
    ] {
        let done = host.run(&[&["modules", "grant", "files"], arguments.as_slice()].concat());
        assert_eq!(done.code, Some(1), "{arguments:?}: {done:?}");
        assert!(done.stderr.contains(expect), "{arguments:?}: {done:?}");
        // A grant that cannot be given is not kept.
        assert_eq!(host.run(&["modules", "inspect", "files"]).code, Some(0));
    }
}

/// `--private` is what the message about an address of the own network asks for.
#[test]
fn requests_to_the_own_network_are_granted_when_that_is_said() {
    let host = Host::new();
    host.ship("files");
    let grant = [
        "modules",
        "grant",
        "files",
        "--with-http",
        "http://127.0.0.1:1",
    ];
    let refused = host.run(&grant);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let given = host.run(&[&grant[..], &["--private"]].concat());
    assert_eq!(given.code, Some(0), "{given:?}");
    assert!(given.stdout.contains("127.0.0.1:1"), "{given:?}");
    let without = host.run(&["modules", "grant", "files", "--scratch", "--private"]);
    assert_eq!(without.code, Some(2), "{without:?}");
}

/// A grant on the command line that cannot be given ends the command before a model is asked.
#[test]
fn a_grant_on_the_command_line_that_cannot_be_given_ends_a_run_before_it_costs() {
    let endpoint = Endpoint::start(Scenario::new([]));
    let url = endpoint.base_url();
    let host = Host::new();
    host.ship("files").ship("text").write("notes/a.txt", "a");
    for (grant, expect) in [
        (
            "files=./missing",
            "the directory ./missing cannot be opened",
        ),
        ("fiels=./notes", "did you mean \"files\"?"),
    ] {
        for tools in [&[][..], &["--tools", "files.read"]] {
            let run = ["run", "list my notes", "--base-url", &url, "--dir", grant];
            let done = host.run(&[&run[..], tools].concat());
            assert_eq!(done.code, Some(1), "{grant} {tools:?}: {done:?}");
            assert!(done.stderr.contains(expect), "{grant} {tools:?}: {done:?}");
        }
    }
    assert_eq!(endpoint.requests().len(), 0);
}

/// A module may be added later, so its table is no error; of one that seems mistyped a person is told.
#[test]
fn a_mistyped_table_of_a_module_is_a_note() {
    let host = Host::new();
    host.ship("files").write(
        "toolhold.toml",
        "[module.fiels]\nlog_level = \"debug\"\n[module.later]\nlog_level = \"debug\"\n",
    );
    let note = "[module.fiels] is about no module; did you mean \"files\"?";
    for arguments in [
        &["modules", "list"][..],
        &["modules", "call", "files.list", "{}"],
    ] {
        let done = host.run(arguments);
        assert!(done.stderr.contains(note), "{arguments:?}: {done:?}");
        assert!(!done.stderr.contains("later"), "{arguments:?}: {done:?}");
    }
    assert_eq!(host.run(&["modules", "list"]).code, Some(0));
}

#[test]
fn a_mistyped_module_is_answered_with_the_one_that_is_meant() {
    let host = Host::new();
    host.ship("files");
    for arguments in [
        vec!["modules", "grant", "fiels", "--scratch"],
        vec!["modules", "inspect", "file"],
        vec!["modules", "call", "fils.read"],
        vec!["modules", "test", "flies"],
    ] {
        let done = host.run(&arguments);
        assert_eq!(done.code, Some(1), "{arguments:?}: {done:?}");
        assert!(
            done.stderr.contains("did you mean \"files\"?"),
            "{arguments:?}: {done:?}"
        );
    }
}

/// One module whose secret is not there does not take the others with it.
#[test]
fn a_secret_that_is_missing_is_its_modules_fault_alone() {
    let host = Host::new();
    host.ship("calculator").ship("files").write(
        "toolhold.toml",
        "[module.files]\nsecrets = [{ name = \"key\", origin = \"https://api.example.com\", \
         place = { header = { name = \"Authorization\" } }, env = \"NOBODY_SET_THIS\" }]\n",
    );
    let listed = host.run(&["modules", "list"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.stdout.contains("calculator.evaluate"), "{listed:?}");
    assert!(!listed.stdout.contains("files.read"), "{listed:?}");
    assert!(
        listed.stderr.contains("NOBODY_SET_THIS is not set"),
        "{listed:?}"
    );
}
