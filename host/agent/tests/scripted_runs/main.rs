//! The rules of docs/protocol.md, a file a section: runs in this process, with a scripted model and tools
//! that are functions.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say so"
)]

mod advisors;
mod blobs;
mod borders;
mod branches;
mod cached_results;
mod call_depth;
mod cancelled_records;
mod client_calls;
mod conversations;
mod costs;
mod council;
mod decisions;
mod demanded;
mod ends;
mod fallback;
mod fallback_causes;
mod fetches;
mod freed_places;
mod instances;
mod jobs;
mod leaks;
mod long_checks;
mod messages;
mod meta;
mod names;
mod nested;
mod placeholders;
mod plans;
mod prompt_texts;
mod quoted;
mod record;
mod retrieval;
mod rules_of_format_3;
mod rules_of_format_4;
mod run_loop;
mod scheduling;
mod schema;
mod shields;
mod stalls;
mod support;
mod tool_retries;
mod tools;
mod variables;
mod window;
