//! Behaviour through public doors: one file a behaviour.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test that cannot go on, or is left out, should say so"
)]

mod call_pipeline;
mod capacity;
mod chat;
mod cli;
mod cli_snapshots;
mod costs;
mod crashes;
mod denials;
mod dev_build;
mod dialects;
mod docs;
mod egress;
mod ends;
mod eval;
mod example_modules;
mod fallback;
mod faults;
mod grants;
mod host_files;
mod http_languages;
mod http_modules;
#[cfg(target_os = "linux")]
mod https;
mod images;
mod installed;
mod interpreters;
mod key_addresses;
#[cfg(target_os = "linux")]
mod keyring;
mod knowledge;
mod knowledge_module;
mod many_runs;
mod markdown;
mod mcp;
mod mcp_server;
mod misbehaviours;
mod mission;
mod model;
mod module_pins;
mod module_runs;
mod module_test;
mod modules;
mod monitoring;
mod new_module;
mod oci;
mod older_state;
mod packaged_formats;
mod packaging;
mod page;
mod pinning;
mod plans;
mod policy;
mod portable_components;
mod portable_scripts;
mod proxies;
mod real_model;
mod recompile;
mod requests;
mod result_cache;
mod routes;
mod run;
mod secrets;
mod serve;
mod shields;
mod sqlite;
mod stats;
mod stopped_builds;
mod streamed_replies;
mod telemetry;
mod terminal;
mod trust;
mod typed;
mod typed_docs;
mod untrusted_text;
