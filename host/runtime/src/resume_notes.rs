//! Notes of a resumed run about modules and MCP servers that are other than before. Its `resumed` event has them for the
//! readers of the run, clients among them. So they are made of names and digests alone: causes, and text that a server
//! printed, are for the operator's log.

use std::collections::{BTreeMap, BTreeSet};
use toolhold_agent::Driver;
use toolhold_agent::run::replay::Replayed;
use toolhold_policy::text;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_sandbox::Registry;

/// Maximum number of notes of one event: each reader of the run gets them.
const MAX_NOTES: usize = 32;

/// Maximum characters of one note. Names may come from an MCP server.
const MAX_NOTE_CHARS: usize = 500;

/// Returns the notes of a run that `driver` is about to resume.
pub fn resume_notes(driver: &Driver, replayed: &Replayed, registry: &Registry) -> Vec<String> {
    let modules = replayed.modules();
    let of_modules = modules.iter().filter_map(|(name, digest)| {
        let now = registry.module(name);
        module_note(name, digest, now.map(|module| module.digest.to_string()))
    });
    let offered: BTreeSet<String> = driver
        .toolbox
        .source
        .tools()
        .iter()
        .map(|tool| tool.name.clone())
        .collect();
    let tools = replayed.tools();
    let of_servers = tools
        .iter()
        .filter_map(|bound| server_tool(bound, &modules));
    let of_servers = of_servers.filter(|(server, _)| registry.module(server).is_none());
    let has_digests = has_digests(replayed.machine.tools());
    bounded(
        of_modules
            .chain(server_notes(of_servers, &offered, has_digests))
            .collect(),
    )
}

/// Returns true if a tool of the run has the digest of its module. Earlier versions recorded none, so that their records do
/// not tell a tool of a module from one of an MCP server before its first call. Neither does a record of servers alone.
fn has_digests(tools: &[Bound]) -> bool {
    tools.iter().any(|bound| bound.tool.module_digest.is_some())
}

/// Returns the MCP server and the toolbox's name of a tool that the server offered to the run; `None` for other tools. A tool
/// of a module has the digest of its module, or its module is among the recorded `modules`, if the record tells of either.
fn server_tool<'b>(
    bound: &'b Bound,
    modules: &BTreeMap<String, String>,
) -> Option<(&'b str, &'b str)> {
    let Runner::Module(own) = &bound.runner else {
        return None;
    };
    let (server, _) = own.split_once('.')?;
    // Other names are of modules, by their versions, paths or addresses.
    let is_server = bound.tool.module_digest.is_none()
        && !modules.contains_key(server)
        && !server.contains(['@', '/', ':']);
    (is_server && !server.is_empty()).then_some((server, own))
}

/// Returns the notes about servers that do not offer tools any more, of these tools with their servers. Without digests in
/// the record, a server that offers none of them may have been a module, and its note says so.
fn server_notes<'a>(
    tools: impl Iterator<Item = (&'a str, &'a str)>,
    offered: &BTreeSet<String>,
    has_digests: bool,
) -> Vec<String> {
    // Whether tools are offered, and whether tools are missing, by server.
    let mut servers: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
    for (server, tool) in tools {
        let (some_offered, some_missing) = servers.entry(server).or_default();
        let is_offered = offered.contains(tool);
        *some_offered |= is_offered;
        *some_missing |= !is_offered;
    }
    let notes = servers
        .into_iter()
        .filter_map(|(server, state)| match state {
            (_, false) => None,
            (false, true) if has_digests => {
                Some(format!("MCP server {server}: its tools are left out"))
            }
            (false, true) => Some(format!(
                "module or MCP server {server}: its tools are left out"
            )),
            (true, true) => Some(format!(
                "MCP server {server}: some of its tools are left out"
            )),
        });
    notes.collect()
}

/// Returns the note about a module that has the digest `now`, if it is another one than before, or is not loaded.
fn module_note(name: &str, digest: &str, now: Option<String>) -> Option<String> {
    let Some(now) = now else {
        return Some(format!(
            "the module {name}, with which the run was working (sha256:{digest}), is not loaded: calls of its tools fail \
             until it is"
        ));
    };
    (now != digest).then(|| {
        format!(
            "the module {name} is another one than before: the run was working with sha256:{digest}, and its calls are \
             made with sha256:{now} from here on"
        )
    })
}

fn bounded(mut notes: Vec<String>) -> Vec<String> {
    let more = notes.len().saturating_sub(MAX_NOTES);
    notes.truncate(MAX_NOTES);
    for note in &mut notes {
        *note = text::visible(note, MAX_NOTE_CHARS);
    }
    if more > 0 {
        notes.push(format!("{more} more notes are left out here"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_protocol::tool::Tool;

    #[test]
    fn modules_that_changed_or_are_missing_are_named() {
        let note = |now: Option<&str>| module_note("calc", "aa", now.map(str::to_owned));
        assert_eq!(note(Some("aa")), None);
        for (now, parts) in [
            (
                Some("bb"),
                ["another one than before", "sha256:aa", "sha256:bb"],
            ),
            (None, ["the module calc", "sha256:aa", "is not loaded"]),
        ] {
            let note = note(now).unwrap();
            assert!(parts.iter().all(|part| note.contains(part)), "{note}");
        }
    }

    #[test]
    fn servers_are_named_whose_tools_the_run_had_and_has_no_more() {
        let none = BTreeMap::new();
        let tools = ["away.a", "away.b", "here.a", "part.a", "part.b"];
        let bounds = tools.map(|name| Bound {
            tool: Tool::new(name).into(),
            runner: Runner::Module(name.into()),
        });
        let offered: BTreeSet<String> = ["here.a", "part.b", "new.a"].map(str::to_owned).into();
        let notes = |has_digests| {
            let tools = bounds.iter().filter_map(|bound| server_tool(bound, &none));
            server_notes(tools, &offered, has_digests)
        };
        let part = "MCP server part: some of its tools are left out";
        let away = "MCP server away: its tools are left out";
        assert_eq!(notes(true), [away, part]);
        // A tool of a module has no digest there, either.
        let away = "module or MCP server away: its tools are left out";
        assert_eq!(notes(false), [away, part]);
        let of_module = Bound {
            tool: Tool {
                module_digest: Some("aa".into()),
                ..Tool::new("calc.add")
            }
            .into(),
            runner: Runner::Module("calc.add".into()),
        };
        let client = Bound {
            runner: Runner::Client,
            ..bounds[0].clone()
        };
        let of_server = |bound| server_tool(bound, &none);
        assert_eq!([&of_module, &client].map(of_server), [None, None]);
        assert!(has_digests(&[bounds[0].clone(), of_module]) && !has_digests(&bounds));
        // A call of its tool has told the digest.
        let called = BTreeMap::from([("away".to_owned(), "aa".to_owned())]);
        assert_eq!(server_tool(&bounds[0], &called), None);
    }

    #[test]
    fn notes_are_bounded_in_number_and_length() {
        let notes = bounded(vec!["x".repeat(9_999); 99]);
        assert_eq!(notes.len(), MAX_NOTES + 1);
        // With the sign of a cut.
        let longest = notes.iter().map(|note| note.chars().count()).max();
        assert_eq!(longest, Some(MAX_NOTE_CHARS + 1));
        assert_eq!(notes[MAX_NOTES], "67 more notes are left out here");
    }
}
