//! Shields, and the rules of calls that wait for a person: a file that lost them would let runs go on without.

use super::{ConfigFiles, names};
use toml::{Table, Value};

/// Tables that protect, of a file or of an agent in it.
const SHIELDS: &str = "shields";
const DECISIONS: &str = "decisions";
/// Keys of `decisions` that say which calls wait. The other ones only exempt calls.
const RULES: [&str; 4] = ["default", "always", "on_write", "plans"];

/// All shields, or all rules of calls that wait for a person: those of all runs, or those of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Protection {
    agent: Option<String>,
    kind: &'static str,
}

impl Protection {
    /// The protections that a file has.
    pub fn all_in(file: &Table) -> Vec<Self> {
        let agents = names(file, "agents").map(|name| Some(name.to_owned()));
        let owners = std::iter::once(None).chain(agents);
        let all = owners.flat_map(|agent| {
            [SHIELDS, DECISIONS].map(|kind| Self {
                agent: agent.clone(),
                kind,
            })
        });
        all.filter(|it| it.table(file).is_some_and(|table| protects(it.kind, table)))
            .collect()
    }

    /// The key of its table.
    pub fn key(&self) -> String {
        match &self.agent {
            Some(agent) => format!("agents.{agent}.{}", self.kind),
            None => self.kind.to_owned(),
        }
    }

    /// True if no file says anything of it any more, and the file that had it still has the agent that it protects. A
    /// found file that is not trusted counts: a server refuses one with shields.
    pub fn is_gone(&self, files: &ConfigFiles, file: Option<&Table>) -> bool {
        let is_needed = self.agent.is_none() || file.is_some_and(|it| self.owner(it).is_some());
        let has_it = |file: &Table| self.table(file).is_some_and(|table| self.is_said_in(table));
        is_needed && !files.tables().any(has_it)
    }

    /// True if its table says something of it, and be it that no call waits. A cut leaves a table without its last keys.
    fn is_said_in(&self, table: &Table) -> bool {
        if self.kind == DECISIONS {
            RULES.iter().any(|rule| table.contains_key(*rule))
        } else {
            !table.is_empty()
        }
    }

    /// Puts the table of `then` into the one of `now`.
    pub fn put_back(&self, then: &Table, now: &mut Table) {
        let owner = match &self.agent {
            None => Some(now),
            Some(agent) => now
                .get_mut("agents")
                .and_then(|agents| agents.get_mut(agent.as_str()))
                .and_then(Value::as_table_mut),
        };
        if let (Some(owner), Some(table)) = (owner, self.table(then)) {
            owner.insert(self.kind.to_owned(), table.clone().into());
        }
    }

    fn table<'t>(&self, file: &'t Table) -> Option<&'t Table> {
        self.owner(file)?.get(self.kind)?.as_table()
    }

    fn owner<'t>(&self, file: &'t Table) -> Option<&'t Table> {
        match &self.agent {
            None => Some(file),
            Some(agent) => file.get("agents")?.get(agent.as_str())?.as_table(),
        }
    }
}

/// True if less than the file's author meant would hold without this table.
fn protects(kind: &str, table: &Table) -> bool {
    if kind != DECISIONS {
        return !table.is_empty();
    }
    let default = table.get("default").and_then(Value::as_str);
    let names_some = |key: &str| {
        let list = table.get(key).and_then(Value::as_array);
        list.is_some_and(|list| !list.is_empty())
    };
    default.is_some_and(|default| default != "never")
        || names_some("always")
        || names_some("on_write")
        || table.get("plans").and_then(Value::as_bool) == Some(true)
}
