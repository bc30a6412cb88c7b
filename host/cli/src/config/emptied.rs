//! Files that lost what they are for: by a full disk, by a shell's `>`, by an editor for a moment, or by an edit. A reload
//! that takes everything, the endpoint of agents or all grants away is not believed: the content of before stays in use
//! until the files have such again, or a person says that it is meant.

use super::files::{ConfigFiles, flatten};
use super::known;
use std::collections::BTreeSet;
use std::fmt;
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
    Endpoints,
    /// The endpoint of this name, which agents use.
    EndpointInUse(String),
    Grants,
}

impl fmt::Display for EmptiedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lost, until) = match &self.lost {
            LostContent::Everything => ("sets nothing any more".to_owned(), "sets something"),
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
            grants: files.grants.clone(),
            own: files.own.clone(),
            found: found.map(|found| (found.origin.clone(), found.table.clone())),
        }
    }

    /// Gives files that lost everything, or the endpoint of agents, the content that is in use.
    pub fn restore(&self, files: &mut ConfigFiles) -> Option<EmptiedFile> {
        let now = EndpointsNow::of(files);
        let mut emptied = None;
        if let Some(then) = &self.own {
            let own = files.own.as_ref().map(|(_, table)| table);
            if let Some(lost) = now.lost(&then.1, own) {
                files.own = Some(then.clone());
                emptied = Some(EmptiedFile::new(then, lost));
            }
        }
        if let (Some(then), Some(found)) = (&self.found, &mut files.found)
            && let Some(lost) = now.lost(&then.1, Some(&found.table))
        {
            found.table = then.1.clone();
            found.trust = FilePinState::Pinned;
            emptied = Some(EmptiedFile::new(then, lost));
        }
        emptied
    }

    /// Gives files that lost all grants the content that is in use, once the file of `toolhold modules grant` is read: where
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
            files.grants = Some(then.clone());
            emptied = Some(EmptiedFile::new(then, LostContent::Grants));
        }
        if let Some(then) = granting(self.own.as_ref()) {
            files.own = Some(then.clone());
            emptied = Some(EmptiedFile::new(then, LostContent::Grants));
        }
        if let (Some(then), Some(found)) = (granting(self.found.as_ref()), &mut files.found) {
            found.table = then.1.clone();
            found.trust = FilePinState::Pinned;
            emptied = Some(EmptiedFile::new(then, LostContent::Grants));
        }
        emptied
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
    /// Endpoints, and pools, which may stand in for one of the same name.
    named: BTreeSet<String>,
    /// The endpoint of runs, where a file names one.
    chosen: Option<String>,
    /// The endpoints of runs and agents.
    used: BTreeSet<String>,
}

impl EndpointsNow {
    fn of(files: &ConfigFiles) -> Self {
        let chosen = files.tables().filter_map(endpoint).last();
        let agents = files.tables().filter_map(|table| table.get("agents"));
        let agents = agents.filter_map(Value::as_table).flat_map(Table::values);
        let of_agents = agents.filter_map(|agent| agent.as_table().and_then(endpoint));
        let named = |kind: &'static str| files.tables().flat_map(move |table| names(table, kind));
        Self {
            has_some: named("endpoints").next().is_some(),
            named: named("endpoints")
                .chain(named("pools"))
                .map(str::to_owned)
                .collect(),
            chosen: chosen.map(str::to_owned),
            used: of_agents
                .chain([chosen.unwrap_or(USUAL_ENDPOINT)])
                .map(str::to_owned)
                .collect(),
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
        if let Some(used) = self.used.iter().find(|name| gone.contains(name.as_str()))
            && self.has_some
        {
            return Some(LostContent::EndpointInUse(used.clone()));
        }
        // Runs may use one that is built in.
        let chosen = self.chosen.as_deref();
        let has_other = chosen.is_some_and(|name| !gone.contains(name));
        (!gone.is_empty() && !self.has_some && !has_other).then_some(LostContent::Endpoints)
    }
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
    leaves.iter().any(|(key, value)| {
        let is_nothing = match value {
            Value::Array(list) => list.is_empty(),
            // Without members, these two have the usual sizes.
            Value::Table(table) => {
                table.is_empty() && !key.ends_with(".key_value") && !key.ends_with(".scratch")
            }
            _ => false,
        };
        known::is_grant(key) && !is_nothing
    })
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
mod tests {
    use super::*;

    const GRANT: &str = "[module.m]\nkey_value = {}\n";

    fn table(text: &str) -> (String, Table) {
        ("file a".to_owned(), text.parse().unwrap())
    }

    /// Tells what is lost from the one pair of files (with grants, and the user's own) to the other, and whether the second
    /// pair has the content of before again.
    fn lost_from(then: [Option<&str>; 2], now: [Option<&str>; 2]) -> (Option<LostContent>, bool) {
        let [mut then, mut now] = [then, now].map(|[grants, own]| ConfigFiles {
            grants: grants.map(table),
            own: own.map(table),
            ..ConfigFiles::default()
        });
        let content = ContentInUse::of(&then);
        let emptied = content.restore(&mut now);
        let emptied = emptied.or(content.restore_grants(&mut now));
        let is_as_before =
            (now.grants.take(), now.own.take()) == (then.grants.take(), then.own.take());
        (emptied.map(|emptied| emptied.lost), is_as_before)
    }

    #[test]
    fn a_reload_that_takes_everything_the_endpoint_or_all_grants_is_told_from_other_edits() {
        use LostContent::{EndpointInUse, Endpoints, Everything, Grants};
        let whole = &*format!("[run]\nmax_steps = 70\n{GRANT}[endpoints.e]\nmodel = \"a\"\n");
        let grants = &*format!("[run]\nmax_steps = 70\n{GRANT}");
        let endpoint = "[run]\nmax_steps = 70\n[endpoints.e]\nmodel = \"a\"\n";
        let two = "[endpoints.default]\nmodel = \"a\"\n[endpoints.other]\nmodel = \"b\"\n";
        let of_agent = "[agents.a]\nendpoint = \"one\"\n[endpoints.two]\nmodel = \"b\"\n";
        let agents = &*format!("{of_agent}[endpoints.one]\nmodel = \"a\"\n");
        let more = &*format!("{whole}[module.n]\nscratch = {{}}\n");
        let in_use = |name: &str| Some(EndpointInUse(name.to_owned()));
        for (then, now, expected) in [
            (whole, "", Some(Everything)),
            (whole, "# nothing\n", Some(Everything)),
            (grants, "", Some(Everything)),
            (whole, grants, Some(Endpoints)),
            (whole, "[run]\nmax_steps = 70\n", Some(Endpoints)),
            // Cut within a number, and changed elsewhere too.
            (whole, "[run]\nmax_steps = 7\n", Some(Endpoints)),
            (whole, "[limits]\nfuel = 8\n", Some(Endpoints)),
            // The endpoint of an agent, or of all, is gone, and another is not.
            (two, "[endpoints.other]\nmodel = \"b\"\n", in_use("default")),
            (agents, of_agent, in_use("one")),
            (whole, endpoint, Some(Grants)),
            (grants, "[run]\nmax_steps = 7\n", Some(Grants)),
            (
                grants,
                "[module.m]\nkey_value = 1\n[module.n]\ntools = []\n",
                None,
            ),
            (
                grants,
                "[module.m]\nlog_level = \"debug\"\ntools = []\n",
                Some(Grants),
            ),
            // A person took one of two back, another endpoint into use, or one away that no agent uses.
            (more, whole, None),
            (two, "[endpoints.default]\nmodel = \"c\"\n", None),
            (
                two,
                "endpoint = \"other\"\n[endpoints.other]\nmodel = \"b\"\n",
                None,
            ),
            (endpoint, "[endpoints.f]\nmodel = \"b\"\n", None),
            (endpoint, "endpoint = \"openai\"\n", None),
            (
                two,
                "[endpoints.other]\nmodel = \"b\"\n[pools.default]\n",
                None,
            ),
            (whole, whole, None),
            ("[run]\nmax_steps = 7\n", "", None),
            ("", "", None),
        ] {
            let (lost, is_as_before) = lost_from([None, Some(then)], [None, Some(now)]);
            assert_eq!(lost, expected, "{then} -> {now}");
            assert_eq!(
                is_as_before,
                then == now || lost.is_some(),
                "{then} -> {now}"
            );
        }
    }

    /// `> state/grants.toml` leaves an empty file, and `toolhold modules revoke` an empty table.
    #[test]
    fn grants_of_commands_are_taken_back_by_a_command() {
        let (emptied, revoked) = (Some(""), Some("[module]\n"));
        let endpoint = Some("[endpoints.e]\nmodel = \"a\"\n");
        for (then, now, expected) in [
            (
                [Some(GRANT), None],
                [emptied, None],
                Some(LostContent::Everything),
            ),
            (
                [Some(GRANT), endpoint],
                [None, endpoint],
                Some(LostContent::Everything),
            ),
            // Others are left, but the file is none.
            (
                [Some(GRANT), Some(GRANT)],
                [emptied, Some(GRANT)],
                Some(LostContent::Everything),
            ),
            ([Some(GRANT), endpoint], [revoked, endpoint], None),
            ([Some(GRANT), Some(GRANT)], [revoked, Some(GRANT)], None),
            (
                [Some(GRANT), Some(GRANT)],
                [Some(GRANT), Some("[run]\nmax_steps = 7\n")],
                None,
            ),
            // It was revoked long ago: that confirms nothing of today.
            (
                [revoked, Some(GRANT)],
                [revoked, Some("[run]\nmax_steps = 7\n")],
                Some(LostContent::Grants),
            ),
            // Cut behind the first line.
            (
                [Some("[module.m.environment]\nA = \"a\"\n"), None],
                [Some("[module.m.environment]\n"), None],
                Some(LostContent::Grants),
            ),
            ([None, None], [emptied, None], None),
        ] {
            let (lost, is_as_before) = lost_from(then, now);
            assert_eq!(lost, expected, "{then:?} -> {now:?}");
            assert_eq!(
                is_as_before,
                then == now || lost.is_some(),
                "{then:?} -> {now:?}"
            );
        }
    }
}
