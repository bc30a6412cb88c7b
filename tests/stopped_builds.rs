//! Builds that would never end: what stops them, and that nothing of them goes on.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use support::host::{Host, finish, signal};
use support::until;

/// A module in Rust, and a compiler that waits for a process which it started.
fn host() -> Host {
    let host = Host::new();
    host.write(
        "modules/words/module.toml",
        "name = \"words\"\n[build]\nlanguage = \"rust\"\n",
    )
    .write("modules/words/Cargo.toml", "[package]\nname = \"words\"\n")
    .write(
        "tools/rustc",
        "#!/bin/sh\nsleep 600 &\necho $! >> \"$HOME/started\"\nwait\n",
    );
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(host.path().join("tools/rustc"), executable).unwrap();
    host
}

fn command(host: &Host, arguments: &[&str]) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let tools = host.path().join("tools");
    let mut command = host.command(arguments);
    command
        .env("PATH", format!("{}:{path}", tools.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The number of the process that the `nth` compiler started, as soon as there is one.
fn started(host: &Host, nth: usize) -> u32 {
    until("a compiler", || {
        let text = fs::read_to_string(host.path().join("started")).ok()?;
        let whole = text.rsplit_once('\n')?.0;
        whole.lines().nth(nth)?.parse().ok()
    })
}

fn is_running(process: u32) -> bool {
    // One that ended and that nothing waited for is none.
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn assert_ended(process: u32) {
    until("the end of what a build started", || {
        (!is_running(process)).then_some(())
    });
}

fn code(child: Child) -> Option<i32> {
    finish(child.wait_with_output().expect("it ends")).code
}

#[test]
fn a_build_ends_at_its_deadline_with_all_that_it_started() {
    let host = host();
    let arguments = ["build", "words", "--timeout", "2"];
    let built = finish(command(&host, &arguments).output().expect("it runs"));
    assert_eq!(built.code, Some(1), "{built:?}");
    assert!(
        built.stderr.contains("stopped after 2 s") && built.stderr.contains("rustc"),
        "{built:?}"
    );
    assert_ended(started(&host, 0));
}

#[test]
fn a_signal_ends_a_build_with_all_that_it_started() {
    for (name, arguments) in [
        ("INT", ["build", "words"].as_slice()),
        ("HUP", &["build", "words"]),
        ("TERM", &["modules", "watch", "words"]),
    ] {
        let host = host();
        let build = command(&host, arguments).spawn().expect("the binary runs");
        let compiler = started(&host, 0);
        assert!(is_running(compiler));
        signal(build.id(), name);
        assert_eq!(code(build), Some(130), "{name}");
        assert_ended(compiler);
    }
}

#[test]
fn a_newer_edit_ends_a_build_and_begins_another() {
    let host = host();
    let watch = command(&host, &["modules", "watch", "words"])
        .spawn()
        .expect("the binary runs");
    let first = started(&host, 0);
    host.write("modules/words/src/lib.rs", "// edited");
    let second = started(&host, 1);
    assert_ended(first);
    assert!(is_running(second));
    signal(watch.id(), "INT");
    assert_eq!(code(watch), Some(130));
    assert_ended(second);
}

/// Nothing of the host is left that could end them.
#[test]
fn what_a_build_started_ends_with_a_host_that_is_killed() {
    for arguments in [&["build", "words"][..], &["modules", "watch", "words"]] {
        let host = host();
        let build = command(&host, arguments).spawn().expect("the binary runs");
        let compiler = started(&host, 0);
        assert!(is_running(compiler));
        signal(build.id(), "KILL");
        assert_eq!(code(build), None, "{arguments:?}");
        assert_ended(compiler);
    }
}

/// Under its supervisor, too.
#[test]
fn a_build_says_which_program_is_missing_and_which_signal_ended_one() {
    let host = host();
    let tools = host.path().join("tools");
    let built = |path: &str| {
        let mut command = command(&host, &["build", "words"]);
        command.env("PATH", path);
        finish(command.output().expect("it runs"))
    };
    let missing = built("/nonexistent");
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.stderr.contains("install Rust"), "{missing:?}");
    fs::write(tools.join("rustc"), "#!/bin/sh\nkill -s KILL $$\n").unwrap();
    let killed = built(&format!("{}:/usr/bin:/bin", tools.display()));
    assert_eq!(killed.code, Some(1), "{killed:?}");
    assert!(killed.stderr.contains("signal: 9"), "{killed:?}");
}

/// The group that it would end is the shell's.
#[test]
fn the_supervisor_of_builds_is_not_for_people() {
    let host = host();
    for arguments in [
        &["supervise-build"][..],
        &["supervise-build", "--", "echo", "ran"],
    ] {
        let done = finish(command(&host, arguments).output().expect("it runs"));
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(done.stderr.contains("not for people"), "{done:?}");
        assert!(done.stdout.is_empty(), "{done:?}");
    }
}
