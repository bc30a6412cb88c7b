//! What bytes from outside cost: for each place where they make the host work, inputs of growing size that are made to
//! be dear are measured in processor time and memory, and both must grow no faster than the input.
//!
//! The places are those of `docs/security.md`: a place that one has and the other lacks fails.

mod cases;
mod measure;
mod shapes;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use toolhold_hostile::suite;

/// The places that a running guest, or a client that does not read, fills: they are attacks of the hostile suite, which
/// measures the process, or tests beside the code.
const ELSEWHERE: &[(&str, Proof)] = &[
    (
        "answers of a keyring",
        Proof::Tests(
            "tests/keyring/mod.rs",
            &[
                "a_keyring_that_does_not_answer_is_given_up_in_time",
                "what_is_no_secret_is_not_taken_for_one",
            ],
        ),
    ),
    (
        "compressed bodies of endpoints and MCP servers, which nothing asked for",
        Proof::Tests(
            "host/intake/src/encoding.rs",
            &["a_body_becomes_no_more_than_its_size_allows"],
        ),
    ),
    (
        "images of a context",
        Proof::Tests("host/protocol/src/image.rs", &["images_are_bounded"]),
    ),
    (
        "requests of MCP clients",
        Proof::Tests(
            "host/mcp/src/rpc.rs",
            &["arguments_that_no_tool_takes_are_refused_before_they_are_read"],
        ),
    ),
    (
        "clients of the HTTP API that do not read their answers",
        Proof::Tests(
            "tests/serve/unread.rs",
            &[
                "what_nobody_reads_is_bounded_and_no_other_key_waits",
                "an_answer_waits_for_room_and_comes_when_others_were_read",
            ],
        ),
    ),
    (
        "arguments of calls",
        Proof::Tests(
            "host/sandbox/src/registry/memory_tests.rs",
            &[
                "arguments_become_values_when_the_call_has_its_place_and_count_while_it_runs",
                "calls_that_wait_for_a_place_keep_nothing",
            ],
        ),
    ),
    (
        "HTTP fields that a guest fills, copies and holds",
        Proof::Attack("fields_in_a_loop"),
    ),
    (
        "pieces of a request body",
        Proof::Tests(
            "host/sandbox/src/egress/body.rs",
            &["what_goes_out_is_bounded_in_pieces_and_not_in_bytes_alone"],
        ),
    ),
    (
        "fields of one HTTP message",
        Proof::Tests(
            "host/sandbox/src/registry/limit_tests.rs",
            &["a_limit_of_one_host_call_is_named"],
        ),
    ),
    (
        "methods, authorities, paths and bodies of requests that are not sent",
        Proof::Tests(
            "host/sandbox/src/call/http_memory.rs",
            &["what_became_part_of_a_request_stays_counted"],
        ),
    ),
    (
        "a directory that a guest lists",
        Proof::Attack("listings_in_a_loop"),
    ),
    (
        "writes through streams to a slow disk",
        Proof::Tests(
            "host/sandbox/src/host/output.rs",
            &["what_waits_to_be_written_is_counted_until_it_is_written"],
        ),
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
        Proof::Tests(
            "host/sandbox/src/call/other_tools.rs",
            &["ungranted_and_too_deep_calls_are_never_executed"],
        ),
    ),
    (
        "calls of other tools that are refused",
        Proof::Tests(
            "host/agent/tests/scripted_runs/nested.rs",
            &["what_the_record_has_of_refused_nested_calls_is_bounded"],
        ),
    ),
    ("lists of pollables", Proof::Attack("wait_that_never_ends")),
    (
        "JSON: results, messages of MCP clients and servers, bodies of requests, answers of models",
        Proof::Tests(
            "host/json/src/bounded.rs",
            &["what_was_made_to_take_memory_is_refused_before_it_is_read"],
        ),
    ),
    (
        "bodies of requests to the HTTP API, and messages of MCP clients over HTTP",
        Proof::Tests(
            "host/connections/src/kept_body.rs",
            &["a_body_is_counted_while_it_is_read_and_kept"],
        ),
    ),
    (
        "components that are uploaded",
        Proof::Tests(
            "tests/serve/upload.rs",
            &["an_upload_without_memory_for_it_is_refused_before_it_is_kept"],
        ),
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
        Proof::Tests(
            "host/sandbox/src/call/other_tools.rs",
            &["a_result_is_counted_before_its_text_is_made_and_until_it_is_taken"],
        ),
    ),
    (
        "MCP clients that do not read their answers",
        Proof::Tests(
            "host/mcp/src/serve/unread.rs",
            &["what_is_not_read_is_bounded_and_said"],
        ),
    ),
    (
        "`tools/call` that MCP clients get refused before it is a call",
        Proof::Tests(
            "host/mcp/src/serve/refusals.rs",
            &["a_flood_of_refused_calls_leaves_a_bounded_number_of_rows_and_says_how_many_it_was"],
        ),
    ),
    (
        "saved Requests at addresses (`requests.http`)",
        Proof::Tests(
            "host/runtime/src/remote_requests_tests.rs",
            &["what_is_fetched_is_bounded_and_nothing_is_followed"],
        ),
    ),
    ("log lines, stdout, stderr", Proof::Attack("flood")),
    ("progress", Proof::Attack("flood")),
    (
        "jobs of calls",
        Proof::Tests(
            "host/agent/tests/scripted_runs/jobs.rs",
            &[
                "a_job_that_takes_too_long_fails_its_call_and_is_told_to_stop",
                "progress_without_end_is_recorded_a_hundred_times",
            ],
        ),
    ),
    (
        "keys of a namespace",
        Proof::Tests(
            "host/sandbox/src/disk/key_value.rs",
            &["a_namespace_holds_a_bounded_number_of_keys"],
        ),
    ),
    (
        "debug information of a module that crashes where its author works",
        Proof::Attack("debug_information_bombs"),
    ),
    (
        "samples of a call that is profiled",
        Proof::Tests(
            "host/sandbox/src/call/profiler.rs",
            &[
                "samples_and_their_time_are_bounded",
                "a_profile_has_a_largest_size",
            ],
        ),
    ),
    (
        "documents over HTTP (`/v1/knowledge`)",
        Proof::Tests(
            "tests/serve/knowledge.rs",
            &["what_is_no_document_and_no_question_is_refused_with_its_reason"],
        ),
    ),
    (
        // The bounds of one question are in the test of documents over HTTP.
        "searches over HTTP",
        Proof::Tests(
            "host/server/src/knowledge.rs",
            &[
                "documents_and_searches_at_the_same_time_are_bounded_by_key_and_in_all",
                "documents_and_searches_that_wait_are_bounded",
            ],
        ),
    ),
    (
        "collections that are exported",
        Proof::Tests(
            "host/knowledge/tests/knowledge/documents.rs",
            &["an_export_is_read_in_pages"],
        ),
    ),
    (
        "files that are imported",
        Proof::Tests(
            "tests/knowledge.rs",
            &["an_export_is_imported_with_the_same_passages"],
        ),
    ),
    (
        "documents at addresses (`knowledge add https://…`)",
        Proof::Tests(
            "host/runtime/src/document_addresses.rs",
            &[
                "a_document_comes_with_its_type_and_within_its_bounds",
                "this_machine_and_its_network_are_not_reached",
            ],
        ),
    ),
    (
        "documents of a task at addresses (`documents: [{content: \"https://…\"}]`)",
        Proof::Tests(
            "host/runtime/src/document_addresses.rs",
            &[
                "a_document_comes_with_its_type_and_within_its_bounds",
                "addresses_without_a_grant_are_refused",
            ],
        ),
    ),
    (
        "folders that are watched (`knowledge add --watch`)",
        Proof::Tests(
            "host/runtime/src/watch.rs",
            &["a_change_is_told_when_writes_stop_or_after_the_longest_wait"],
        ),
    ),
    (
        "files and folders of `toolhold knowledge add`",
        Proof::Tests(
            "host/cli/src/commands/knowledge/walk.rs",
            &["a_walk_ends_at_its_bounds"],
        ),
    ),
    (
        "documents that an extractor reads",
        Proof::Tests(
            "tests/knowledge.rs",
            &["a_hostile_document_is_refused_with_its_bound_and_stops_no_other"],
        ),
    ),
    (
        "questions of modules about documents and facts",
        Proof::Tests(
            "host/sandbox/src/host/knowledge_tests.rs",
            &[
                "a_question_is_within_its_bounds_before_it_is_asked",
                "an_answer_is_counted_and_nothing_is_told_after_a_revocation",
            ],
        ),
    ),
    (
        "tables on a terminal",
        Proof::Tests(
            "host/cli/src/terminal/columns.rs",
            &["a_long_cell_adds_its_own_length_only"],
        ),
    ),
    (
        "lines and text on a terminal",
        Proof::Tests(
            "host/cli/src/terminal/style.rs",
            &["a_long_text_takes_its_own_length_only"],
        ),
    ),
    (
        "rows of a terminal",
        Proof::Tests(
            "host/cli/src/terminal/rows.rs",
            &["rows_of_a_long_text_take_its_own_length_only"],
        ),
    ),
    (
        "results and arguments in the view of a run",
        Proof::Tests(
            "host/cli/src/terminal/view/words.rs",
            &["a_long_result_is_shown_by_its_beginning"],
        ),
    ),
    (
        "differences that `trust`, `modules approve` and `runs diff` show",
        Proof::Tests(
            "host/cli/src/terminal/output.rs",
            &["a_difference_takes_its_time_and_no_more"],
        ),
    ),
    (
        "keys of the configuration that do not exist",
        Proof::Tests(
            "host/cli/src/config/layers/tests.rs",
            &["a_key_of_any_length_is_refused_in_a_short_message"],
        ),
    ),
    (
        "connections of a call that has ended",
        Proof::Tests(
            "tests/https/mod.rs",
            &[
                "a_connection_that_stalls_is_not_used_by_later_calls",
                "floods_are_bounded_and_end_with_their_call",
            ],
        ),
    ),
    (
        "pieces of a model's reply",
        Proof::Tests(
            "host/agent/src/run/driver/heard.rs",
            &["many_pieces_are_joined_each_text_in_its_order"],
        ),
    ),
    (
        "pieces of a body that `--record` keeps",
        Proof::Tests(
            "host/model/src/replay_tests.rs",
            &["a_body_in_very_many_pieces_is_recorded_in_fewer"],
        ),
    ),
    (
        "pings and fragments of a WebSocket's client",
        Proof::Tests(
            "host/connections/src/websocket/tests.rs",
            &[
                "a_client_that_only_sends_ends_its_socket",
                "empty_fragments_without_end_end_their_socket",
            ],
        ),
    ),
    (
        "messages of an MCP server that answer nothing",
        Proof::Tests(
            "host/mcp/src/tests/calls.rs",
            &["notifications_without_end_are_no_server"],
        ),
    ),
    ("random numbers", Proof::Attack("loop_through_host_calls")),
    (
        "images and files in messages",
        Proof::Tests(
            "tests/serve/media.rs",
            &[
                "parts_that_cannot_be_shown_are_refused_with_words",
                "older_images_of_a_long_conversation_are_not_fetched",
            ],
        ),
    ),
    (
        "images and bytes of results that are kept with runs",
        Proof::Tests(
            "tests/serve/media.rs",
            &[
                "a_key_has_as_many_images_as_the_operator_says",
                "requests_at_the_same_time_do_not_pass_a_quota_together",
            ],
        ),
    ),
    (
        "bodies of endpoints and MCP servers in another charset than UTF-8",
        Proof::Tests(
            "host/intake/src/body.rs",
            &["bodies_are_read_by_the_charset_that_their_content_type_names"],
        ),
    ),
    (
        "images and documents that a request names by address, and images of earlier turns",
        Proof::Tests(
            "tests/serve/image_memory.rs",
            &[
                "images_of_earlier_turns_count_in_the_memory_of_a_request",
                "a_run_is_not_resumed_without_memory_for_its_images",
                "a_fetched_image_without_memory_for_it_is_refused",
            ],
        ),
    ),
];

enum Proof {
    /// An attack of the hostile suite.
    Attack(&'static str),
    /// A file, and its tests of the bound.
    Tests(&'static str, &'static [&'static str]),
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
            Proof::Tests(file, tests) => {
                let text = fs::read_to_string(repository().join(file)).unwrap_or_default();
                assert!(!tests.is_empty(), "{place}: no test of {file} is named");
                for test in *tests {
                    assert!(
                        runs(&text, test),
                        "{place}: {file} has no test {test} that runs"
                    );
                }
            }
        }
    }
}

/// Whether `text` has this function, marked as a test and not as one that is left out.
fn runs(text: &str, test: &str) -> bool {
    let is_it = |line: &str| {
        let name = line.trim_start().trim_start_matches("async ");
        name.strip_prefix("fn ")
            .and_then(|rest| rest.strip_prefix(test))
            .is_some_and(|rest| rest.starts_with('('))
    };
    let Some(at) = text.lines().position(is_it) else {
        return false;
    };
    let lines: Vec<&str> = text.lines().take(at).collect();
    let mut marks = lines
        .iter()
        .rev()
        .map(|line| line.trim_start())
        .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
        .filter(|line| line.starts_with("#["));
    let is_test = marks
        .clone()
        .any(|mark| mark.starts_with("#[test]") || mark.starts_with("#[tokio::test"));
    is_test && !marks.any(|mark| mark.starts_with("#[ignore"))
}

#[test]
fn a_test_is_one_that_runs() {
    let text = "#[test]\nfn one() {}\n\n    /// Text.\n    #[tokio::test(start_paused = true)]\n    \
        async fn two() {}\n#[test]\n#[ignore = \"slow\"]\nfn three() {}\nfn four() {}\n// fn five() {}\n";
    let names = ["one", "two", "three", "four", "five", "six", "on"];
    let run: Vec<_> = names.into_iter().filter(|name| runs(text, name)).collect();
    assert_eq!(run, ["one", "two"]);
}
