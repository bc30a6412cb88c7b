//! Files that lost what they are for: by a full disk, by a shell's `>`, by an editor for a moment, or by an edit. A reload
//! that takes everything, the endpoint of agents, all grants or all shields away is not believed: what was lost stays in use
//! until the files have such again, or a person says that it is meant. Other changes of the edit hold at once, so that nothing is
//! given back that a person takes away; but a file without endpoints and grants is held back as a whole, as one that was cut.

mod protection;

use super::files::{ConfigFiles, flatten};
use super::found::FoundLayer;
use super::layers::Merged;
use super::{known, presets};
use protection::Protection;
use std::collections::BTreeSet;
use std::{fmt, mem};
use toml::{Table, Value};
use toolhold_runtime::file_pins::FilePinState;

/// The content of the files that is in use, by which one is recognised that lost it.
#[derive(Debug, Clone, Default)]
pub struct ContentInUse {
    grants: Option<(String, Table)>,
    own: Option<(String, Table)>,
    /// The found file, where it is trusted.
    found: Option<(String, Table)>,
}

/// A file that lost its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmptiedFile {
    origin: String,
    lost: LostContent,
}

/// A part of the configuration that a reload would take away.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LostContent {
    Everything,
    /// Both, as a cut leaves it: settings beside them, such as those of approval, are gone with them.
    EndpointsAndGrants,
    Endpoints,
    /// The endpoint of this name, which agents use.
    EndpointInUse(String),
    Grants,
    Protection(Protection),
}

impl fmt::Display for EmptiedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lost, until) = match &self.lost {
            LostContent::Everything => ("sets nothing any more".to_owned(), "sets something"),
            LostContent::EndpointsAndGrants => (
                "names no endpoint and grants nothing any more".to_owned(),
                "names an endpoint or grants something",
            ),
            LostContent::Endpoints => ("names no endpoint any more".to_owned(), "names one"),
            LostContent::EndpointInUse(name) => (
                format!(
                    "has the endpoint {:?}, which agents use, no more",
                    known::named(name)
                ),
                "has it",
            ),
            LostContent::Grants => (
                "grants nothing any more, nor does another file".to_owned(),
                "grants something",
            ),
            LostContent::Protection(protection) => (
                format!(
                    "sets nothing of {:?} any more",
                    known::named(&protection.key())
                ),
                "sets some of it",
            ),
        };
        write!(
            f,
            "{} {lost}; what it lost stays in use until it {until} again, or until `toolhold serve --reload` or SIGHUP (kill -HUP {}) says that it is meant",
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
            grants: files.grants.clone(),
            own: files.own.clone(),
            found: found.map(|found| (found.origin.clone(), found.table.clone())),
        }
    }

    /// Gives files that lost everything, the endpoint of agents, or shields and rules of calls that wait for a person, what
    /// they lost. `merged`: all layers as they are now, where they hold together.
    pub fn restore(&self, files: &mut ConfigFiles, merged: Option<&Merged>) -> Option<EmptiedFile> {
        let now = EndpointsNow::of(files, merged);
        let mut emptied = None;
        if let Some(then) = &self.own {
            let own = files.own.as_ref().map(|(_, table)| table);
            if let Some(lost) = now.lost(&then.1, own) {
                lost.put_back(&then.1, table_of(&mut files.own, then));
                emptied = Some(EmptiedFile::new(then, lost));
            }
        }
        if let (Some(then), Some(found)) = (&self.found, &mut files.found)
            && let Some(lost) = now.lost(&then.1, Some(&found.table))
        {
            lost.put_back_found(&then.1, found);
            emptied = Some(EmptiedFile::new(then, lost));
        }
        let unprotected = self.restore_protections(files);
        emptied.or(unprotected)
    }

    /// Gives files shields and rules of calls that wait for a person, where no file has any more.
    fn restore_protections(&self, files: &mut ConfigFiles) -> Option<EmptiedFile> {
        let mut emptied = None;
        if let Some(then) = &self.own {
            for protection in Protection::all_in(&then.1) {
                let own = files.own.as_ref().map(|(_, table)| table);
                if protection.is_gone(files, own) {
                    let lost = LostContent::Protection(protection);
                    lost.put_back(&then.1, table_of(&mut files.own, then));
                    emptied.get_or_insert_with(|| EmptiedFile::new(then, lost));
                }
            }
        }
        if let Some(then) = &self.found {
            for protection in Protection::all_in(&then.1) {
                let found = files.found.as_ref().map(|found| &found.table);
                if protection.is_gone(files, found)
                    && let Some(found) = &mut files.found
                {
                    let lost = LostContent::Protection(protection);
                    lost.put_back_found(&then.1, found);
                    emptied.get_or_insert_with(|| EmptiedFile::new(then, lost));
                }
            }
        }
        emptied
    }

    /// Gives files that lost all grants those that are in use, once the file of `toolhold modules grant` is read: where
    /// that file is empty, and where all grants that there were are gone. `toolhold modules revoke` leaves an empty table in it, and means what it does.
    pub fn restore_grants(&self, files: &mut ConfigFiles) -> Option<EmptiedFile> {
        let now = files.grants.as_ref().map(|(_, table)| table);
        let (is_empty, is_revoked) = (sets_nothing(now), now.is_some_and(is_left_by_revocation));
        let given = granting(self.grants.as_ref());
        let mut emptied = None;
        if let Some(then) = given.filter(|_| is_empty) {
            files.grants = Some(then.clone());
            emptied = Some(EmptiedFile::new(then, LostContent::Everything));
        }
        if files.tables().any(grants_something) {
            return emptied;
        }
        if let Some(then) = given.filter(|_| !is_revoked) {
            LostContent::Grants.put_back(&then.1, table_of(&mut files.grants, then));
            emptied = Some(EmptiedFile::new(then, LostContent::Grants));
        }
        if let Some(then) = granting(self.own.as_ref()) {
            LostContent::Grants.put_back(&then.1, table_of(&mut files.own, then));
            emptied = Some(EmptiedFile::new(then, LostContent::Grants));
        }
        if let (Some(then), Some(found)) = (granting(self.found.as_ref()), &mut files.found) {
            LostContent::Grants.put_back_found(&then.1, found);
            emptied = Some(EmptiedFile::new(then, LostContent::Grants));
        }
        emptied
    }
}

impl LostContent {
    /// Puts what was lost of the content of `then` into that of `now`, and leaves the rest as it is.
    fn put_back(&self, then: &Table, now: &mut Table) {
        match self {
            Self::Everything | Self::EndpointsAndGrants => now.clone_from(then),
            Self::Endpoints | Self::EndpointInUse(_) => put_endpoints_back(then, now),
            Self::Grants => put_grants_back(then, now),
            Self::Protection(protection) => protection.put_back(then, now),
        }
    }

    /// Puts it into a found file. A changed one keeps its trusted content, without grants and MCP servers that it lost.
    fn put_back_found(&self, then: &Table, found: &mut FoundLayer) {
        if found.trust != FilePinState::Pinned {
            let now = mem::replace(&mut found.table, then.clone());
            take_away(&mut found.table, &now);
            found.trust = FilePinState::Pinned;
        }
        self.put_back(then, &mut found.table);
    }
}

/// The table of a file, which is made where there is none.
fn table_of<'f>(
    file: &'f mut Option<(String, Table)>,
    (origin, _): &(String, Table),
) -> &'f mut Table {
    let (_, table) = file.get_or_insert_with(|| (origin.clone(), Table::new()));
    table
}

/// The table at a key, which is made where there is none.
fn table_at<'t>(table: &'t mut Table, key: &str) -> Option<&'t mut Table> {
    let inner = table.entry(key).or_insert_with(|| Table::new().into());
    inner.as_table_mut()
}

/// The tables of a kind, such as those of agents, with their names.
fn tables<'t>(table: &'t Table, kind: &str) -> impl Iterator<Item = (&'t String, &'t Table)> {
    let tables = table.get(kind).and_then(Value::as_table);
    let tables = tables.into_iter().flatten();
    tables.filter_map(|(name, table)| Some((name, table.as_table()?)))
}

/// Endpoints, and which of them runs and agents use where nothing else is said about it.
fn put_endpoints_back(then: &Table, now: &mut Table) {
    if let Some(left) = table_at(now, "endpoints") {
        for (name, endpoint) in tables(then, "endpoints") {
            left.insert(name.clone(), endpoint.clone().into());
        }
    }
    if let (Some(used), None) = (endpoint(then), endpoint(now)) {
        now.insert("endpoint".to_owned(), used.into());
    }
    for (name, agent) in tables(then, "agents") {
        let left = now
            .get_mut("agents")
            .and_then(|agents| agents.get_mut(name.as_str()))
            .and_then(Value::as_table_mut);
        if let (Some(used), Some(left)) = (endpoint(agent), left)
            && endpoint(left).is_none()
        {
            left.insert("endpoint".to_owned(), used.into());
        }
    }
}

/// The grants of modules, with where the module is that has them.
fn put_grants_back(then: &Table, now: &mut Table) {
    for (name, module) in tables(then, "module") {
        let grants = module
            .iter()
            .filter(|(key, value)| known::is_grant_of_module(key) && gives(key, value));
        let mut grants = grants.peekable();
        if grants.peek().is_none() {
            continue;
        }
        let left = table_at(now, "module").and_then(|modules| table_at(modules, name));
        let Some(left) = left else {
            continue;
        };
        for (key, value) in grants {
            left.insert(key.clone(), value.clone());
        }
        if let (Some(source), None) = (module.get("source"), left.get("source")) {
            left.insert("source".to_owned(), source.clone());
        }
    }
}

/// Takes the grants and the MCP servers out of a table that are not the same in another.
fn take_away(table: &mut Table, left: &Table) {
    let is_left = |kind: &str, name: &str, key: &str, value: &Value| {
        let table = left.get(kind).and_then(|tables| tables.get(name));
        table.and_then(|table| table.get(key)) == Some(value)
    };
    if let Some(modules) = table.get_mut("module").and_then(Value::as_table_mut) {
        for (name, module) in modules {
            if let Some(module) = module.as_table_mut() {
                module.retain(|key, value| {
                    !known::is_grant_of_module(key) || is_left("module", name, key, value)
                });
            }
        }
    }
    if let Some(servers) = table.get_mut("mcp").and_then(Value::as_table_mut) {
        let left = left.get("mcp").and_then(Value::as_table);
        servers.retain(|name, server| left.and_then(|left| left.get(name)) == Some(&*server));
    }
}

impl EmptiedFile {
    fn new((origin, _): &(String, Table), lost: LostContent) -> Self {
        Self {
            origin: origin.clone(),
            lost,
        }
    }
}

/// Endpoints that the files name, and those in use.
struct EndpointsNow {
    /// Whether there is a table of an endpoint.
    has_some: bool,
    /// Endpoints, and what may stand in for one of the same name: a pool, or one that is used and needs no table.
    named: BTreeSet<String>,
    /// The endpoint of runs.
    of_runs: String,
    /// Whether a file, a variable or a flag says so.
    is_chosen: bool,
    /// The endpoints of runs and agents.
    used: BTreeSet<String>,
}

impl EndpointsNow {
    fn of(files: &ConfigFiles, merged: Option<&Merged>) -> Self {
        let table = merged.map(Merged::table);
        let tables: Vec<&Table> = match &table {
            Some(table) => vec![table],
            None => files.tables().collect(),
        };
        let chosen = match merged {
            Some(merged) if merged.origin("endpoint") == "default" => None,
            _ => tables.iter().rev().find_map(|table| endpoint(table)),
        };
        let of_runs = chosen.unwrap_or(USUAL_ENDPOINT);
        let agents = tables
            .iter()
            .flat_map(|table| self::tables(table, "agents"));
        let of_agents = agents.filter_map(|(_, agent)| endpoint(agent));
        let used: BTreeSet<String> = of_agents.chain([of_runs]).map(str::to_owned).collect();
        let needs_no_table = |name: &&String| {
            let has_address = merged.is_some_and(|merged| has_address(merged, name));
            has_address || presets::is_preset(name)
        };
        let named = |kind: &'static str| files.tables().flat_map(move |table| names(table, kind));
        Self {
            has_some: named("endpoints").next().is_some(),
            named: named("endpoints")
                .chain(named("pools"))
                .map(str::to_owned)
                .chain(used.iter().filter(needs_no_table).cloned())
                .collect(),
            of_runs: of_runs.to_owned(),
            is_chosen: chosen.is_some(),
            used,
        }
    }

    /// Tells what a file lost of its content of `then`.
    fn lost(&self, then: &Table, now: Option<&Table>) -> Option<LostContent> {
        let named_some = ["endpoints", "module"].map(|kind| names(then, kind).next().is_some());
        if sets_nothing(now) && named_some.contains(&true) {
            return Some(LostContent::Everything);
        }
        let gone = names(then, "endpoints").filter(|name| !self.named.contains(*name));
        let gone: BTreeSet<&str> = gone.collect();
        // Runs may use one that is built in, or that variables and flags describe.
        let is_there = self.is_chosen || self.named.contains(&self.of_runs);
        let has_other = is_there && !gone.contains(self.of_runs.as_str());
        if let Some(used) = self.used.iter().find(|name| gone.contains(name.as_str()))
            && (self.has_some || has_other)
        {
            return Some(LostContent::EndpointInUse(used.clone()));
        }
        let has_grants = now.is_some_and(grants_something);
        let lost = if grants_something(then) && !has_grants {
            LostContent::EndpointsAndGrants
        } else {
            LostContent::Endpoints
        };
        (!gone.is_empty() && !self.has_some && !has_other).then_some(lost)
    }
}

/// Whether a variable or a flag says where the endpoint of this name is.
fn has_address(merged: &Merged, name: &str) -> bool {
    let key = format!("endpoints.{name}.base_url");
    let origin = merged.origin(&key);
    merged.text(&key).is_some() && (origin.starts_with("flag ") || origin.starts_with("variable "))
}

/// The endpoint that runs use, by the default file.
const USUAL_ENDPOINT: &str = "default";

/// The endpoint that runs, or those of an agent, use by this table.
fn endpoint(table: &Table) -> Option<&str> {
    table.get("endpoint").and_then(Value::as_str)
}

/// The names of tables of a kind, such as those of endpoints.
fn names<'t>(table: &'t Table, kind: &str) -> impl Iterator<Item = &'t str> + use<'t> {
    let tables = table.get(kind).and_then(Value::as_table);
    tables.into_iter().flat_map(Table::keys).map(String::as_str)
}

fn sets_nothing(table: Option<&Table>) -> bool {
    table.is_none_or(|table| flatten(table).is_empty())
}

fn grants_something(table: &Table) -> bool {
    let leaves = flatten(table);
    leaves
        .iter()
        .any(|(key, value)| known::is_grant(key) && gives(key, value))
}

/// Whether the value of a grant gives something.
fn gives(key: &str, value: &Value) -> bool {
    match value {
        Value::Array(list) => !list.is_empty(),
        // Without members, these two have the usual sizes.
        Value::Table(table) => {
            !table.is_empty() || key.ends_with("key_value") || key.ends_with("scratch")
        }
        _ => true,
    }
}

/// Whether the file of `toolhold modules grant` says that nothing is granted: `toolhold modules revoke` leaves an empty
/// table of modules, and a file that was cut has none.
fn is_left_by_revocation(table: &Table) -> bool {
    let modules = table.get("module").and_then(Value::as_table);
    table.len() == 1 && modules.is_some_and(Table::is_empty)
}

/// The file, if it grants something.
fn granting(file: Option<&(String, Table)>) -> Option<&(String, Table)> {
    file.filter(|(_, table)| grants_something(table))
}

#[cfg(test)]
mod tests;
