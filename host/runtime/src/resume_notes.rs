//! Notes of a resumed run about modules and MCP servers that are other than before. Its `resumed` event has them for the
//! readers of the run.

use std::collections::BTreeMap;
use toolhold_policy::text;
use toolhold_sandbox::Registry;

/// Maximum number of notes of one event: each reader of the run gets them.
const MAX_NOTES: usize = 32;

/// Maximum characters of one note. A failure of an MCP server may quote what the server said.
const MAX_NOTE_CHARS: usize = 500;

/// Returns the notes of a resumed run. `left_out`: notes about MCP servers whose tools are left out. `modules`: digests, in
/// hex, of the modules that the run was working with, by their names.
pub fn resume_notes(
    left_out: Vec<String>,
    modules: &BTreeMap<String, String>,
    registry: &Registry,
) -> Vec<String> {
    let of_modules = modules.iter().filter_map(|(name, digest)| {
        let now = registry.module(name);
        module_note(name, digest, now.map(|module| module.digest.to_string()))
    });
    bounded(of_modules.chain(left_out).collect())
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
    fn notes_are_bounded_in_number_and_length() {
        let notes = bounded(vec!["x".repeat(9_999); 99]);
        assert_eq!(notes.len(), MAX_NOTES + 1);
        // With the sign of a cut.
        let longest = notes.iter().map(|note| note.chars().count()).max();
        assert_eq!(longest, Some(MAX_NOTE_CHARS + 1));
        assert_eq!(notes[MAX_NOTES], "67 more notes are left out here");
    }
}
