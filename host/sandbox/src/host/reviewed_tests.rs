//! Each function of WASI that a guest can call is either replaced by this host, or was reviewed and needs no meter.
//!
//! The names come from the WIT files of the linked wasmtime. A patch of WASI that brings a new function fails here, until
//! the function is replaced or its reason stands in the list below.

use super::make_linker;
use super::replaced::replaced_here;
use crate::engine::{Engine, EngineConfig};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use wit_parser::{SourceMap, UnresolvedPackage};

/// Interface, functions, and the reason why they need no meter.
type ReviewedFunctions = (&'static str, &'static [&'static str], &'static str);

const REVIEWED: [ReviewedFunctions; 24] = [
    (
        "wasi:cli/environment",
        &["get-arguments", "initial-cwd"],
        "the answers are empty: no call has arguments or a folder",
    ),
    (
        "wasi:cli/exit",
        &["exit", "exit-with-code"],
        "ends the call",
    ),
    (
        "wasi:cli/stdin",
        &["get-stdin"],
        "a handle of an empty stream; handles are counted",
    ),
    (
        "wasi:cli/terminal-stdin",
        &["get-terminal-stdin"],
        "there is no terminal",
    ),
    (
        "wasi:cli/terminal-stdout",
        &["get-terminal-stdout"],
        "there is no terminal",
    ),
    (
        "wasi:cli/terminal-stderr",
        &["get-terminal-stderr"],
        "there is no terminal",
    ),
    (
        "wasi:clocks/monotonic-clock",
        &[
            "now",
            "resolution",
            "subscribe-instant",
            "subscribe-duration",
        ],
        "a number, or a handle; handles are counted, and waits end with the deadline",
    ),
    (
        "wasi:clocks/wall-clock",
        &["now", "resolution"],
        "a few numbers",
    ),
    (
        "wasi:filesystem/types",
        &["filesystem-error-code"],
        "reads the code of an error that the guest has",
    ),
    (
        "wasi:io/poll",
        &["[method]pollable.ready", "[method]pollable.block", "poll"],
        "lists are charged as they are lifted, handles are counted, and waits end with the deadline",
    ),
    (
        "wasi:io/streams",
        &[
            "[method]input-stream.read",
            "[method]input-stream.blocking-read",
            "[method]input-stream.skip",
            "[method]input-stream.blocking-skip",
            "[method]input-stream.subscribe",
            "[method]output-stream.check-write",
            "[method]output-stream.write",
            "[method]output-stream.blocking-write-and-flush",
            "[method]output-stream.flush",
            "[method]output-stream.blocking-flush",
            "[method]output-stream.subscribe",
            "[method]output-stream.write-zeroes",
            "[method]output-stream.blocking-write-zeroes-and-flush",
            "[method]output-stream.splice",
            "[method]output-stream.blocking-splice",
        ],
        "the streams count: those of files and of output are this host's, and those of HTTP bodies take what egress gives",
    ),
    (
        "wasi:random/insecure-seed",
        &["insecure-seed"],
        "two numbers",
    ),
    (
        "wasi:random/insecure",
        &["get-insecure-random-u64"],
        "a number",
    ),
    ("wasi:random/random", &["get-random-u64"], "a number"),
    (
        "wasi:sockets/instance-network",
        &["instance-network"],
        "a handle, with which nothing can be reached; handles are counted",
    ),
    (
        "wasi:sockets/ip-name-lookup",
        &[
            "[method]resolve-address-stream.resolve-next-address",
            "[method]resolve-address-stream.subscribe",
        ],
        "no lookup begins, so there is no such stream",
    ),
    (
        "wasi:sockets/tcp",
        &[
            "[method]tcp-socket.start-bind",
            "[method]tcp-socket.finish-bind",
            "[method]tcp-socket.start-connect",
            "[method]tcp-socket.finish-connect",
            "[method]tcp-socket.start-listen",
            "[method]tcp-socket.finish-listen",
            "[method]tcp-socket.accept",
            "[method]tcp-socket.local-address",
            "[method]tcp-socket.remote-address",
            "[method]tcp-socket.is-listening",
            "[method]tcp-socket.address-family",
            "[method]tcp-socket.set-listen-backlog-size",
            "[method]tcp-socket.keep-alive-enabled",
            "[method]tcp-socket.set-keep-alive-enabled",
            "[method]tcp-socket.keep-alive-idle-time",
            "[method]tcp-socket.set-keep-alive-idle-time",
            "[method]tcp-socket.keep-alive-interval",
            "[method]tcp-socket.set-keep-alive-interval",
            "[method]tcp-socket.keep-alive-count",
            "[method]tcp-socket.set-keep-alive-count",
            "[method]tcp-socket.hop-limit",
            "[method]tcp-socket.set-hop-limit",
            "[method]tcp-socket.receive-buffer-size",
            "[method]tcp-socket.set-receive-buffer-size",
            "[method]tcp-socket.send-buffer-size",
            "[method]tcp-socket.set-send-buffer-size",
            "[method]tcp-socket.subscribe",
            "[method]tcp-socket.shutdown",
        ],
        "no socket is made, so there is none to call them with",
    ),
    (
        "wasi:sockets/udp",
        &[
            "[method]udp-socket.start-bind",
            "[method]udp-socket.finish-bind",
            "[method]udp-socket.stream",
            "[method]udp-socket.local-address",
            "[method]udp-socket.remote-address",
            "[method]udp-socket.address-family",
            "[method]udp-socket.unicast-hop-limit",
            "[method]udp-socket.set-unicast-hop-limit",
            "[method]udp-socket.receive-buffer-size",
            "[method]udp-socket.set-receive-buffer-size",
            "[method]udp-socket.send-buffer-size",
            "[method]udp-socket.set-send-buffer-size",
            "[method]udp-socket.subscribe",
            "[method]incoming-datagram-stream.receive",
            "[method]incoming-datagram-stream.subscribe",
            "[method]outgoing-datagram-stream.check-send",
            "[method]outgoing-datagram-stream.send",
            "[method]outgoing-datagram-stream.subscribe",
        ],
        "no socket is made, so there is none to call them with",
    ),
    (
        "wasi:http/types",
        &[
            "[method]fields.get",
            "[method]fields.has",
            "[method]fields.delete",
            "[method]fields.entries",
        ],
        "they read or remove what was counted when it was put there",
    ),
    (
        "wasi:http/types",
        &[
            "[constructor]outgoing-request",
            "[method]outgoing-request.method",
            "[method]outgoing-request.path-with-query",
            "[method]outgoing-request.scheme",
            "[method]outgoing-request.set-scheme",
            "[method]outgoing-request.authority",
            "[method]outgoing-request.headers",
            "[constructor]request-options",
            "[method]request-options.connect-timeout",
            "[method]request-options.set-connect-timeout",
            "[method]request-options.first-byte-timeout",
            "[method]request-options.set-first-byte-timeout",
            "[method]request-options.between-bytes-timeout",
            "[method]request-options.set-between-bytes-timeout",
            "[constructor]outgoing-response",
            "[method]outgoing-response.status-code",
            "[method]outgoing-response.set-status-code",
            "[method]outgoing-response.headers",
            "[method]outgoing-body.write",
            "[static]outgoing-body.finish",
        ],
        "handles are counted, a scheme has at most 64 bytes, headers of a request share memory, and bodies were counted \
         when they were made",
    ),
    (
        "wasi:http/types",
        &[
            "[method]incoming-request.method",
            "[method]incoming-request.path-with-query",
            "[method]incoming-request.scheme",
            "[method]incoming-request.authority",
            "[method]incoming-request.headers",
            "[method]incoming-request.consume",
            "[static]response-outparam.set",
        ],
        "no guest serves HTTP, so there is no such handle",
    ),
    (
        "wasi:http/types",
        &[
            "[method]incoming-response.status",
            "[method]incoming-response.headers",
            "[method]incoming-response.consume",
            "[method]incoming-body.stream",
            "[static]incoming-body.finish",
            "[method]future-incoming-response.subscribe",
            "[method]future-incoming-response.get",
        ],
        "egress bounds the head and the body of a response; handles are counted",
    ),
    (
        "wasi:http/types",
        &[
            "[method]future-trailers.subscribe",
            "[method]future-trailers.get",
        ],
        "egress bounds trailers; handles are counted",
    ),
    (
        "wasi:http/outgoing-handler",
        &["handle"],
        "wasmtime gives the request to egress, which counts",
    ),
];

/// The folders of wasmtime's sources that hold the WIT files of what is linked.
fn wit_folders() -> Vec<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let told = Command::new(&cargo).arg("-vV").output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let platform = told.lines().find_map(|line| line.strip_prefix("host: "));
    // Only this platform: packages of others may not be there, and are not needed.
    let described = Command::new(&cargo)
        .args(["metadata", "--locked", "--format-version", "1"])
        .args(["--filter-platform", platform.unwrap()])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let described: Value = serde_json::from_slice(&described.stdout).unwrap();
    let packages = described["packages"].as_array().unwrap();
    let folder = |name: &str| {
        let package = packages.iter().find(|package| package["name"] == name);
        let manifest = package.unwrap()["manifest_path"].as_str().unwrap();
        Path::new(manifest).parent().unwrap().to_owned()
    };
    vec![
        folder("wasmtime-wasi").join("src/p2/wit/deps"),
        folder("wasmtime-wasi-http").join("wit/deps"),
    ]
}

fn packages() -> Vec<UnresolvedPackage> {
    let mut packages = Vec::new();
    for folder in wit_folders() {
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let mut sources = SourceMap::new();
            sources.push_str("wit", std::fs::read_to_string(path).unwrap());
            let parsed = sources
                .parse()
                .unwrap_or_else(|(_, error)| panic!("{error}"));
            packages.push(parsed.main);
        }
    }
    packages
}

/// Interface with its version, and function.
type NamedFunction = (String, String);

/// The functions of the WIT files that a guest of this host is linked to.
fn linked() -> BTreeSet<NamedFunction> {
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let mut linker = make_linker(engine.wasmtime()).unwrap();
    // Both crates have the packages that both need. Each name is tried once, because the trial defines it.
    let mut linked = named();
    linked.retain(|(of, function)| {
        // Without shadowing, a name that has something cannot be defined.
        let mut place = linker.instance(of).unwrap();
        place.func_wrap(function, |_, (): ()| Ok(())).is_err()
    });
    linked
}

/// All functions of the WIT files.
fn named() -> BTreeSet<NamedFunction> {
    let mut named = BTreeSet::new();
    for package in packages() {
        for (_, interface) in &package.interfaces {
            let Some(name) = &interface.name else {
                continue;
            };
            let of = package.name.interface_id(name);
            let functions = interface.functions.keys();
            named.extend(functions.map(|function| (of.clone(), function.clone())));
        }
    }
    named
}

#[test]
fn each_function_of_wasi_is_replaced_or_needs_no_meter() {
    let linked = linked();
    let replaced = replaced_here();
    assert!(replaced.len() > 40, "{replaced:?}");
    let reviewed: BTreeSet<(&str, &str)> = REVIEWED
        .iter()
        .flat_map(|(of, functions, _)| functions.iter().map(|function| (*of, *function)))
        .collect();
    let is_reviewed = |(of, function): &NamedFunction| {
        let of = of.split('@').next().unwrap_or_default();
        reviewed.contains(&(of, function.as_str()))
    };
    let open = linked.difference(&replaced).filter(|&it| !is_reviewed(it));
    let open: Vec<_> = open.collect();
    assert!(
        open.is_empty(),
        "wasmtime has functions without a meter: replace them in host/sandbox/src/host, or review them and give the \
         reason here: {open:?}"
    );
    let is_current = |(of, function): &(&str, &str)| {
        let mut all = linked.difference(&replaced);
        all.any(|(linked, name)| linked.split('@').next() == Some(*of) && name == function)
    };
    let old: Vec<_> = reviewed.iter().filter(|&it| !is_current(it)).collect();
    assert!(
        old.is_empty(),
        "they are replaced, or wasmtime has them no more: {old:?}"
    );
}
