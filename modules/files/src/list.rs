use std::fs;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_guest::{Annotations, Error, Tool, json};

use crate::roots::Roots;
use crate::walk::{Entry, Kind, walk};

/// Shown unless the call says otherwise.
const DEFAULT_LIMIT: usize = 200;

/// The most a call may ask for: about 100 kB of answer.
const MAX_LIMIT: usize = 2_000;

pub fn tool(roots: impl Fn() -> Roots + 'static) -> Tool {
    Tool::new(
        "list",
        "Lists the files and directories under a path, with the size of each file. Begin here when \
         you do not know what there is.",
        move |arguments| list(&roots(), &arguments),
    )
    .title("List files")
    .annotations(Annotations::READ_ONLY | Annotations::IDEMPOTENT)
    .example(
        "Which files are in the folder notes?",
        json!({ "path": "notes" }),
        json!({
            "entries": [{ "path": "notes/todo.txt", "kind": "file", "bytes": 18 }],
            "truncated": false
        }),
        "There is one file, notes/todo.txt.",
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// The directory; `.` (if not given) is the granted directory itself.
    path: Option<String>,
    /// Whether to list what is in the directories below as well.
    #[serde(default)]
    recursive: bool,
    /// How many entries to return at most (200 if not given).
    #[schemars(range(min = 1, max = 2000))]
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
struct Listed {
    /// Sorted by name; each directory is followed by what is in it.
    entries: Vec<Item>,
    /// Whether there are more entries than `limit`.
    truncated: bool,
    /// Entries that are left out because their names are not UTF-8: no call can name them.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(default)]
    unnamed: usize,
    /// Granted directories other than the one that relative paths begin in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    other_directories: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Item {
    path: String,
    kind: Kind,
    /// The size of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
pub fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn list(roots: &Roots, arguments: &List) -> Result<Listed, Error> {
    let limit = arguments.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let directory = roots.resolve(arguments.path.as_deref().unwrap_or("."))?;
    let mut found = walk(&directory, arguments.recursive)
        .map_err(|error| roots.explain(&error, "list", &directory))?;
    let entries = found.by_ref().take(limit);
    let entries = entries.map(|entry| item(roots, &entry)).collect();
    Ok(Listed {
        entries,
        truncated: found.next().is_some(),
        unnamed: found.unnamed,
        other_directories: roots.others(),
    })
}

fn item(roots: &Roots, entry: &Entry) -> Item {
    let size = || {
        fs::metadata(&entry.path)
            .ok()
            .map(|metadata| metadata.len())
    };
    Item {
        path: roots.display(&entry.path),
        kind: entry.kind,
        bytes: if entry.kind == Kind::File {
            size()
        } else {
            None
        },
    }
}
