//! Where behaviours are found: the table of CONTRIBUTING.md.

use super::markdown::code_spans;
use super::read;
use std::fs;
use std::path::Path;
use support::sandbox::repository;

/// Each behaviour, and for each of its files a piece of the code that makes it so.
const BEHAVIOURS: [(&str, &[&str]); 12] = [
    ("where fuel is set", &[".set_fuel(", "fuel: 10_"]),
    (
        "where a retry waits",
        &["sleep(wait).await", "fn jittered("],
    ),
    (
        "private addresses are blocked",
        &["pub fn reach(", "reach("],
    ),
    (
        "a decision is bound to the argument hash",
        &["fn digest(", "decision.digest != pending.digest"],
    ),
    (
        "secrets are taken out of responses",
        &["pub fn stream(", "redactor.stream()"],
    ),
    ("`_scopes` is enforced", &["fn scoped(", "pub fn scoped("]),
    (
        "the idempotency key",
        &["pub async fn first_or_repeat(", "idempotency_key(headers)"],
    ),
    (
        "text is streamed to a chat client",
        &["pub fn push(", "AnswerStream::default()"],
    ),
    (
        "the run permit is released while a person is asked",
        &["fn ask_a_person(", "pub fn park("],
    ),
    ("`max_cost`", &["settings.max_cost"]),
    (
        "hot swap of a module",
        &["pub async fn load_file(", "pub enum Changed"],
    ),
    (
        "resume after a kill",
        &["fn resumed(", "pub async fn resume_all("],
    ),
];

#[test]
fn each_behaviour_is_where_the_table_says() {
    let text = read(Path::new("CONTRIBUTING.md"));
    for (behaviour, pieces) in BEHAVIOURS {
        let row = text
            .lines()
            .find(|line| line.starts_with(&format!("| {behaviour} |")))
            .unwrap_or_else(|| panic!("no row of CONTRIBUTING.md begins with {behaviour:?}"));
        let spans = code_spans(row).into_iter().map(|(_, span)| span);
        let files: Vec<String> = spans.filter(|span| span.starts_with("host/")).collect();
        assert_eq!(files.len(), pieces.len(), "{behaviour}: {files:?}");
        for (file, piece) in files.iter().zip(pieces) {
            let code = fs::read_to_string(repository().join(file)).expect("a file of the table");
            assert!(code.contains(piece), "{behaviour}: {file} has no {piece}");
        }
    }
}
