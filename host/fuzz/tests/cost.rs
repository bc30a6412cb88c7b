//! What bytes from outside cost: for each place where they make the host work, inputs of growing size that are made to
//! be dear are measured in processor time and memory, and both must grow no faster than the input.
//!
//! The places are those of `docs/security.md`: a place that one has and the other lacks fails.

#[path = "cost/cases.rs"]
mod cases;
#[path = "cost/measure.rs"]
mod measure;
#[path = "cost/shapes.rs"]
mod shapes;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use toolhold_hostile::suite;

/// The places that a running guest, or a client that does not read, fills: they are attacks of the hostile suite, which
/// measures the process, or tests beside the code.
const ELSEWHERE: &[(&str, Proof)] = &[
    ("answers of a keyring", Proof::File("tests/keyring.rs")),
    (
        "images of a context",
        Proof::File("host/protocol/src/image.rs"),
    ),
    (
        "requests of MCP clients",
        Proof::File("host/mcp/src/rpc.rs"),
    ),
    (
        "HTTP fields that a guest fills, copies and holds",
        Proof::Attack("fields_in_a_loop"),
    ),
    (
        "fields of one HTTP message",
        Proof::File("host/sandbox/src/registry/limit_tests.rs"),
    ),
    (
        "methods, authorities, paths and bodies of requests that are not sent",
        Proof::File("host/sandbox/src/call/http_memory.rs"),
    ),
    (
        "a directory that a guest lists",
        Proof::Attack("listings_in_a_loop"),
    ),
    (
        "writes through streams to a slow disk",
        Proof::File("host/sandbox/src/host/output.rs"),
    ),
    (
        "all calls at the same time",
        Proof::Attack("weight_of_all_places"),
    ),
    (
        "a component value that a guest returns",
        Proof::Attack("results_of_many_values"),
    ),
    (
        "strings between a guest and the host, in UTF-16 or Latin-1",
        Proof::Attack("results_of_many_values"),
    ),
    (
        "`memory.fill`, `memory.copy`, strings between the components of one module",
        Proof::Attack("memory_filled"),
    ),
    (
        "arguments of nested calls",
        Proof::File("host/sandbox/src/call/other_tools.rs"),
    ),
    (
        "calls of other tools that are refused",
        Proof::File("host/agent/tests/protocol/nested.rs"),
    ),
    ("lists of pollables", Proof::Attack("wait_that_never_ends")),
    (
        "JSON: results, messages of MCP clients and servers, bodies of requests, answers of models",
        Proof::File("host/json/src/bounded.rs"),
    ),
    (
        "bodies of requests to the HTTP API, and messages of MCP clients over HTTP",
        Proof::File("host/connections/src/kept_body.rs"),
    ),
    (
        "components that are uploaded",
        Proof::File("host/connections/src/kept_body.rs"),
    ),
    (
        "values and keys that a module reads from its namespace",
        Proof::Attack("value_larger_than_is_kept"),
    ),
    (
        "values and bytes of files that a module writes",
        Proof::Attack("writes_larger_than_is_kept"),
    ),
    (
        "results of nested calls, the call's own properties and schema",
        Proof::File("host/sandbox/src/call/other_tools.rs"),
    ),
    (
        "MCP clients that do not read their answers",
        Proof::File("host/mcp/src/serve/unread.rs"),
    ),
    (
        "`tools/call` that MCP clients get refused before it is a call",
        Proof::File("host/mcp/src/serve/refusals.rs"),
    ),
    (
        "saved Requests at addresses (`requests.http`)",
        Proof::File("host/runtime/src/remote_requests_tests.rs"),
    ),
    ("log lines, stdout, stderr", Proof::Attack("flood")),
    ("progress", Proof::Attack("flood")),
    (
        "keys of a namespace",
        Proof::File("host/sandbox/src/disk/key_value.rs"),
    ),
    (
        "debug information of a module that crashes where its author works",
        Proof::Attack("debug_information_bombs"),
    ),
    (
        "samples of a call that is profiled",
        Proof::File("host/sandbox/src/call/profiler.rs"),
    ),
    (
        "documents over HTTP (`/v1/knowledge`)",
        Proof::File("tests/serve/knowledge.rs"),
    ),
    (
        "searches over HTTP",
        Proof::File("tests/serve/knowledge.rs"),
    ),
    (
        "collections that are exported",
        Proof::File("tests/knowledge.rs"),
    ),
    ("files that are imported", Proof::File("tests/knowledge.rs")),
    (
        "documents at addresses (`knowledge add https://…`)",
        Proof::File("host/cli/src/commands/knowledge/fetch.rs"),
    ),
    (
        "folders that are watched (`knowledge add --watch`)",
        Proof::File("tests/knowledge.rs"),
    ),
    (
        "files and folders of `toolhold knowledge add`",
        Proof::File("host/cli/src/commands/knowledge/walk.rs"),
    ),
    (
        "documents that an extractor reads",
        Proof::File("tests/knowledge.rs"),
    ),
    (
        "questions of modules about documents and facts",
        Proof::File("host/sandbox/src/host/knowledge_tests.rs"),
    ),
    ("random numbers", Proof::Attack("loop_through_host_calls")),
];

enum Proof {
    /// An attack of the hostile suite.
    Attack(&'static str),
    /// A file with a test of the bound.
    File(&'static str),
}

/// The first column of the tables under `heading`.
fn places(heading: &str) -> BTreeSet<String> {
    let document = fs::read_to_string(repository().join("docs/security.md")).unwrap_or_default();
    let section = document
        .split("\n## ")
        .find(|section| section.starts_with(heading));
    let lines = section.unwrap_or_default().lines();
    let cells = lines.filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells
        .filter(|cell| !cell.starts_with("what "))
        .map(str::to_owned)
        .collect()
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .and_then(Path::parent)
        .unwrap_or(Path::new("."))
}

#[test]
fn the_places_are_those_of_the_document() {
    let documented = places("Bounds of the host");
    let known: BTreeSet<String> = ELSEWHERE
        .iter()
        .map(|(place, _)| *place)
        .chain(cases::PLACES.iter().copied())
        .map(str::to_owned)
        .collect();
    let untested: Vec<_> = documented.difference(&known).collect();
    let unsaid: Vec<_> = known.difference(&documented).collect();
    assert!(
        untested.is_empty(),
        "docs/security.md names places that nothing measures: {untested:#?}"
    );
    assert!(
        unsaid.is_empty(),
        "these are measured, and docs/security.md does not name them: {unsaid:#?}"
    );
    assert_eq!(
        cases::PLACES.len() + ELSEWHERE.len(),
        known.len(),
        "a place is there twice"
    );
}

#[test]
fn what_is_proved_elsewhere_is() {
    let attacks: BTreeSet<_> = suite().iter().map(|attack| attack.name).collect();
    for (place, proof) in ELSEWHERE {
        match proof {
            Proof::Attack(name) => {
                assert!(attacks.contains(name), "{place}: there is no attack {name}");
            }
            Proof::File(file) => {
                let text = fs::read_to_string(repository().join(file)).unwrap_or_default();
                assert!(
                    text.contains("#[test]") || text.contains("#[tokio::test"),
                    "{place}: {file} has no test"
                );
            }
        }
    }
}
