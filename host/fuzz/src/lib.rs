//! What must hold for any input, each as a function of bytes.
//!
//! `fuzz_targets/` hands them to libFuzzer (`cargo xtask fuzz`); `tests/bounds/seeds.rs` runs them
//! over the seeds on every machine, without it. A target panics where its promise is broken, and only there:
//! refusing an input is always right. [`types`] and [`json`] make structured input out of bytes.
//!
//! [`soak`] is another kind of proof (`cargo xtask soak`): random hostile components in one process for minutes,
//! beside benign callers.

pub mod archive;
pub mod cache;
pub mod docs;
pub mod egress;
pub mod intake;
pub mod json;
pub mod leak;
pub mod links;
pub mod load;
pub mod manifest;
pub mod mend;
pub mod names;
pub mod redaction;
pub mod reply;
pub mod scan;
pub mod schema;
pub mod schema_cost;
pub mod soak;
pub mod sse;
pub mod types;
pub mod value;

mod sandbox;

/// A target: panics where the bytes break its promise.
pub type FuzzTarget = fn(&[u8]);

/// All targets, by the names of their folders under `seeds/`.
pub const TARGETS: &[(&str, FuzzTarget)] = &[
    ("archive", archive::run),
    ("cache", cache::run),
    ("docs", docs::run),
    ("egress", egress::run),
    ("intake", intake::run),
    ("leak", leak::run),
    ("links", links::run),
    ("load", load::run),
    ("manifest", manifest::run),
    ("mend", mend::run),
    ("names", names::run),
    ("redaction", redaction::run),
    ("reply", reply::run),
    ("scan", scan::run),
    ("schema", schema::run),
    ("schema_cost", schema_cost::run),
    ("sse", sse::run),
    ("value", value::run),
];
