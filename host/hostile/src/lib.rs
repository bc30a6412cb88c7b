//! The hostile suite of docs/security.md: attacks on the sandbox through its public door, as one definition
//! with two users. `toolhold selftest` runs it on a user's machine and prints the table; the tests
//! run each attack under its own name. There is no product code here.
//!
//! Read it in this order: [`attack`] (what an attack is, and how one is judged), [`lab`] (where they
//! run: engines, modules, temporary folders, and what "ends" means), then the attacks by family:
//! `compute`, `memory`, `output`, `arguments`, `files`, `disk`, `network`, `egress`, `responses`,
//! `secrets`, `loader`, `compiler`, `trust`, `names`, `cache`, `isolation`, `tenants`, `endurance`, `swaps`,
//! `pipes`, `costs`, `deep`, `loading`, `weight`, `descriptors`, `shown`, `decided`, `found`, `crowds`, `killed`, `values`, `documents`, `reserved`,
//! `quoted`, `locks`, `databases`, `keys`, `shipped`, `pool`, `foreign`, `offers`, `granted`, `forged`, `revoked`,
//! `retried`, `blocked`, `leaving`, `swept`, `queued`, `votes`, `fenced`, `forgotten`, `freed`, `resumed`, `jobs`, `left`, `bodies`,
//! `reduced`, `alike`, `pictures`, `options`, `parents`, `poured`, `unread`, `beside`, `reloaded`, `awaited`, `borders`, `stale`;
//! [`apart`] runs each attack in a process of its own, several at a time; `measure` bounds what an attack takes,
//! `command` is this host as a person runs it, `serving` a server of it, `runs` a client of that, `scripted` a model, `far` an MCP server, `effects` what tools ask, `page` the scripts of its page, `trees` makes and removes deep folders; [`web`] is the server and the resolver of the three about HTTP, `fetcher` the guest that is sent
//! there. Hostile components are WAT in [`components`], or the guest in `attacker/`, which follows the
//! attack's orders; [`liar`] makes modules with arbitrary descriptions of themselves.
//!
//! A new row is one entry in [`suite`]: the row's number, a name, what is attacked, what must happen,
//! and a function that tries it.
#![forbid(unsafe_code)]

pub mod apart;
pub mod attack;
pub mod components;
pub mod fault;
pub mod lab;
pub mod liar;
pub mod web;

mod alike;
mod arguments;
mod awaited;
mod beside;
mod blocked;
mod bodies;
mod borders;
mod cache;
mod command;
mod compiler;
mod compute;
mod costs;
mod crowds;
mod databases;
mod decided;
mod deep;
mod descriptors;
mod disk;
mod documents;
mod effects;
mod egress;
mod encodings;
mod endurance;
mod far;
mod fenced;
mod fetcher;
mod files;
mod foreign;
mod forged;
mod forgotten;
mod found;
mod freed;
mod granted;
mod ground;
mod isolation;
mod jobs;
mod keys;
mod killed;
mod leaving;
mod left;
mod loader;
mod loading;
mod locks;
mod measure;
mod memory;
mod names;
mod network;
mod offers;
mod options;
mod output;
mod page;
mod parents;
mod pictures;
mod pipes;
mod pool;
mod poured;
mod process;
mod queued;
mod quoted;
mod reduced;
mod reloaded;
mod reserved;
mod responses;
mod resumed;
mod retried;
mod revoked;
mod runs;
mod scripted;
mod secrets;
mod serving;
mod shipped;
mod shown;
mod stale;
mod swaps;
mod swept;
mod tenants;
mod trees;
mod trust;
mod unread;
mod values;
mod votes;
mod weight;

pub use apart::{SuiteProgress, run_all, run_apart, share_compiled};
pub use attack::{Attack, AttackOutcome, AttackVerdict, Company, run};
pub use fault::AttackFailure;
pub use lab::{Lab, Scale};
pub use process::processor_time_of;

/// A row that tries another part of Toolhold than the sandbox: it is a test, and no part of [`suite`].
#[derive(Debug, Clone, Copy)]
pub struct OutsideRow {
    pub row: u8,
    /// What is tried, in a few words.
    pub attack: &'static str,
    /// What must happen, in a few words.
    pub must: &'static str,
    /// What is attacked, and the files of its tests.
    pub place: &'static str,
}

/// The rows that are no part of [`suite`].
pub const ELSEWHERE: [OutsideRow; 4] = [
    OutsideRow {
        row: 24,
        attack: "output that pretends to be a system message or another tool's result",
        must: "fenced; nothing granted",
        place: "the loop: host/agent/tests/scripted_runs/run_loop.rs",
    },
    OutsideRow {
        row: 28,
        attack: "the model repeats the same call without end",
        must: "one that only reads is refused from the third on; of one that may change something, each third is held back for a step; `run.max_tool_calls` ends them",
        place: "the loop: tests/run.rs",
    },
    OutsideRow {
        row: 29,
        attack: "a tool outside the allow-list; arguments that break the schema; a reference into another instance",
        must: "refused before execution; audited",
        place: "the loop: tests/run.rs, host/agent/tests/scripted_runs/instances.rs",
    },
    OutsideRow {
        row: 30,
        attack: "truncated streams, invalid UTF-8, 1 GB replies, endless streams, HTML pages, unknown tools, no `[DONE]`",
        must: "typed error or recovery; memory bounded",
        place: "the endpoint: tests/model.rs",
    },
];

/// The rows are numbered from 1 to this one.
pub const ROWS: u8 = 81;

/// Every attack, in the order of the rows.
pub fn suite() -> Vec<Attack> {
    let mut suite: Vec<_> = [
        compute::ATTACKS,
        memory::ATTACKS,
        output::ATTACKS,
        arguments::ATTACKS,
        files::ATTACKS,
        disk::ATTACKS,
        network::ATTACKS,
        egress::ATTACKS,
        responses::ATTACKS,
        secrets::ATTACKS,
        loader::ATTACKS,
        compiler::ATTACKS,
        trust::ATTACKS,
        names::ATTACKS,
        cache::ATTACKS,
        isolation::ATTACKS,
        tenants::ATTACKS,
        endurance::ATTACKS,
        swaps::ATTACKS,
        pipes::ATTACKS,
        costs::ATTACKS,
        deep::ATTACKS,
        loading::ATTACKS,
        weight::ATTACKS,
        descriptors::ATTACKS,
        shown::ATTACKS,
        decided::ATTACKS,
        found::ATTACKS,
        crowds::ATTACKS,
        killed::ATTACKS,
        values::ATTACKS,
        documents::ATTACKS,
        reserved::names::ATTACKS,
        reserved::bytes::ATTACKS,
        reserved::grants::ATTACKS,
        quoted::ATTACKS,
        locks::ATTACKS,
        databases::ATTACKS,
        keys::ATTACKS,
        shipped::ATTACKS,
        pool::ATTACKS,
        foreign::ATTACKS,
        offers::ATTACKS,
        granted::ATTACKS,
        forged::ATTACKS,
        forged::later::ATTACKS,
        forged::servers::ATTACKS,
        forged::schemas::ATTACKS,
        revoked::ATTACKS,
        retried::ATTACKS,
        blocked::ATTACKS,
        leaving::ATTACKS,
        swept::ATTACKS,
        queued::ATTACKS,
        votes::ATTACKS,
        fenced::ATTACKS,
        forgotten::ATTACKS,
        forgotten::tombstones::ATTACKS,
        forgotten::composed::ATTACKS,
        freed::ATTACKS,
        resumed::ATTACKS,
        jobs::ATTACKS,
        left::ATTACKS,
        bodies::ATTACKS,
        reduced::ATTACKS,
        alike::ATTACKS,
        pictures::ATTACKS,
        options::ATTACKS,
        parents::ATTACKS,
        poured::ATTACKS,
        unread::ATTACKS,
        beside::ATTACKS,
        reloaded::ATTACKS,
        awaited::ATTACKS,
        borders::ATTACKS,
        stale::ATTACKS,
    ]
    .concat();
    // Stable: attacks of one row stay in their family's order.
    suite.sort_by_key(|attack| attack.row);
    suite
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_here_or_elsewhere_and_names_are_unique() {
        let suite = suite();
        for row in 1..=ROWS {
            let here = suite.iter().any(|attack| attack.row == row);
            let elsewhere = ELSEWHERE.iter().any(|other| other.row == row);
            assert!(here != elsewhere, "row {row}");
        }
        let mut names: Vec<_> = suite.iter().map(|attack| attack.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), suite.len());
    }
}
