//! Files that were left empty, or cut: by a full disk, by a shell's `>`, by an editor for a moment. Such a file is no
//! configuration, so its content of before stays in use until it has one again, or a person says that it is meant.

use super::files::{ConfigFiles, flatten};
use std::collections::BTreeMap;
use std::fmt;
use toml::{Table, Value};
use toolhold_runtime::file_pins::FilePinState;

/// The content of the files that is in use, by which one is recognised that lost it.
#[derive(Debug, Clone, Default)]
pub struct ContentInUse {
    own: Option<(String, Table)>,
    /// The found file, where it is trusted.
    found: Option<(String, Table)>,
}

/// A file that lost its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmptiedFile {
    origin: String,
    is_empty: bool,
}

impl fmt::Display for EmptiedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lost, until) = if self.is_empty {
            ("sets nothing any more", "sets something")
        } else {
            ("names no endpoint any more", "names one")
        };
        write!(
            f,
            "{} {lost}; what it set stays in use until it {until} again, or until `toolhold serve --reload` or SIGHUP (kill -HUP {}) says that it is meant",
            self.origin,
            std::process::id()
        )
    }
}

impl ContentInUse {
    pub fn of(files: &ConfigFiles) -> Self {
        let found = files.found.as_ref();
        let found = found.filter(|found| found.trust == FilePinState::Pinned);
        Self {
            own: files.own.clone(),
            found: found.map(|found| (found.origin.clone(), found.table.clone())),
        }
    }

    /// Gives files that lost their content the one that is in use.
    pub fn restore(&self, files: &mut ConfigFiles) -> Option<EmptiedFile> {
        let mut emptied = None;
        if let Some(own) = &self.own {
            let now = files.own.as_ref().map(|(_, table)| table);
            if let Some(file) = lost(own, now) {
                files.own = Some(own.clone());
                emptied = Some(file);
            }
        }
        if let (Some(then), Some(found)) = (&self.found, &mut files.found)
            && let Some(file) = lost(then, Some(&found.table))
        {
            found.table = then.1.clone();
            found.trust = FilePinState::Pinned;
            emptied = Some(file);
        }
        emptied
    }
}

/// Whether a file that named endpoints, or granted something, is empty, or only lost its endpoints.
fn lost((origin, then): &(String, Table), now: Option<&Table>) -> Option<EmptiedFile> {
    let then: BTreeMap<String, Value> = flatten(then).into_iter().collect();
    let left: BTreeMap<String, Value> = now.map(flatten).into_iter().flatten().collect();
    let sets =
        |set: &BTreeMap<String, Value>, table: &str| set.keys().any(|key| key.starts_with(table));
    let is_empty = left.is_empty() && (sets(&then, "endpoints.") || sets(&then, "module."));
    let is_part = left.iter().all(|(key, value)| then.get(key) == Some(value));
    let is_cut = is_part && sets(&then, "endpoints.") && !sets(&left, "endpoints.");
    (is_empty || is_cut).then(|| EmptiedFile {
        origin: origin.clone(),
        is_empty: left.is_empty(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_lost_what_it_is_for_is_told_from_an_edit() {
        let whole =
            "[run]\nmax_steps = 7\n[module.m]\nkey_value = {}\n[endpoints.e]\nmodel = \"a\"\n";
        let grants = "[run]\nmax_steps = 7\n[module.m]\nkey_value = {}\n";
        for (then, now, emptied) in [
            (whole, "", Some(true)),
            (whole, "# nothing\n", Some(true)),
            (whole, grants, Some(false)),
            (whole, "[run]\nmax_steps = 7\n", Some(false)),
            (grants, "", Some(true)),
            // A person wrote something else, took a grant back, or took an endpoint away beside others.
            (whole, "[run]\nmax_steps = 8\n", None),
            (whole, "[endpoints.f]\nmodel = \"b\"\n", None),
            (grants, "[run]\nmax_steps = 7\n", None),
            (whole, whole, None),
            ("[run]\nmax_steps = 7\n", "", None),
            ("", "", None),
        ] {
            let then = ("file a".to_owned(), then.parse::<Table>().unwrap());
            let found = lost(&then, Some(&now.parse().unwrap()));
            assert_eq!(found.map(|it| it.is_empty), emptied, "{} {now}", then.1);
        }
    }
}
