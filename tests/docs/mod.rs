//! The documents hold: the README is short, links lead somewhere, comments cite sections that exist, generated
//! parts are fresh, and commands run as they are printed.
//!
//! A fenced block says after its language what happens to it here:
//! - `sh (run)`: it runs in the document's own folder, which is empty at first, with a home folder that is empty, after
//!   the blocks before it. `http://gpu:8000/v1` is
//!   the scripted endpoint.
//! - `sh (server)`: the same beside a `toolhold serve` that takes uploads; `$KEY` is a key with the scope `admin`, and
//!   `127.0.0.1:8700` its address.
//! - `sh (starts)`: its last command serves until it is stopped; it must say where.
//! - `sh (no test: REASON)`: it does not run, but its subcommands and flags exist; [`REASONS`] lists the reasons that
//!   count.
//! - `json (file: NAME)`, with any language: the file that later commands read.

mod commands;
mod generated;
mod links;
mod markdown;
mod places;
mod understood;

use std::path::{Path, PathBuf};
use support::sandbox::repository;

/// Why a command is not run here. A new reason is added only where no scripted run is possible.
const REASONS: [&str; 13] = [
    "deletes files",
    "needs a cluster",
    "needs a component of yours",
    "needs a keyring",
    "needs a killed run",
    "needs a registry",
    "needs a server of yours",
    "needs a toolchain",
    "needs a waiting call",
    "needs docker",
    "needs nightly",
    "needs the network",
    "takes minutes",
];

/// The documents at the root and in `docs/`, and the map of the code, relative to the repository.
fn documents() -> Vec<PathBuf> {
    let root = repository();
    let mut found = vec![PathBuf::from("host/ARCHITECTURE.md")];
    for folder in ["", "docs"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("a folder");
        for entry in entries {
            let name = PathBuf::from(entry.expect("an entry").file_name());
            if name.extension().is_some_and(|end| end == "md") {
                found.push(Path::new(folder).join(name));
            }
        }
    }
    found.sort();
    assert!(found.len() > 12, "{found:?}");
    found
}

fn read(document: &Path) -> String {
    let path = repository().join(document);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_readme_is_read_in_a_minute() {
    let lines = read(Path::new("README.md")).lines().count();
    assert!(lines <= 150, "{lines} lines: move what is more to docs/");
}

/// A block of shell commands without a mark would silently not be run.
#[test]
fn every_shell_block_says_whether_it_runs() {
    let mut faults = Vec::new();
    for document in documents() {
        for block in markdown::blocks(&read(&document)) {
            let place = format!("{}:{}", document.display(), block.line);
            if let Err(fault) = block.mark() {
                faults.push(format!("{place}: {fault}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
