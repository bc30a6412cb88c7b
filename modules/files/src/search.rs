use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_guest::{Annotations, Error, Tool, json};

use crate::list::is_zero;
use crate::read::is_binary;
use crate::roots::Roots;
use crate::walk::{Kind, walk};

/// Shown unless the call says otherwise.
const DEFAULT_LIMIT: usize = 100;

/// The most a call may ask for.
const MAX_LIMIT: usize = 1_000;

/// A larger file is data and not something to read line by line; it counts as skipped.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Enough of a line to see why it matched.
const MAX_LINE_CHARACTERS: usize = 300;

pub fn tool(roots: impl Fn() -> Roots + 'static) -> Tool {
    Tool::new(
        "search",
        "Finds lines that contain a text, in all text files under a path, directories below \
         included. Returns file, line number and line of each.",
        move |arguments| search(&roots(), &arguments),
    )
    .title("Search in files")
    .annotations(Annotations::READ_ONLY | Annotations::IDEMPOTENT)
    .example(
        "Where do my notes mention Ada?",
        json!({ "query": "Ada", "path": "notes" }),
        json!({
            "matches": [{ "path": "notes/todo.txt", "line": 2, "text": "call Ada" }],
            "files_searched": 1,
            "files_skipped": 0,
            "truncated": false
        }),
        "notes/todo.txt mentions Ada on line 2.",
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Search {
    /// The text to look for.
    query: String,
    /// Whether `query` is a regular expression.
    #[serde(default)]
    regex: bool,
    /// Whether upper and lower case are the same.
    #[serde(default)]
    ignore_case: bool,
    /// A directory or a file; `.` (if not given) is the granted directory itself.
    path: Option<String>,
    /// How many lines to return at most (100 if not given).
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<usize>,
}

#[derive(Default, Serialize, JsonSchema)]
struct Found {
    matches: Vec<Hit>,
    files_searched: usize,
    /// Files that are binary, larger than 16 MiB, or not readable.
    files_skipped: usize,
    /// Files and directories that were not looked into because their names are not UTF-8.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(default)]
    unnamed: usize,
    /// Whether the search ended at `limit` and there are more.
    truncated: bool,
}

#[derive(Serialize, JsonSchema)]
struct Hit {
    path: String,
    /// The line's number, from 1.
    line: usize,
    text: String,
}

fn search(roots: &Roots, arguments: &Search) -> Result<Found, Error> {
    let limit = arguments.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let pattern = compile(arguments)?;
    let top = roots.resolve(arguments.path.as_deref().unwrap_or("."))?;
    let failed = |error: io::Error| roots.explain(&error, "search", &top);

    let mut found = Found::default();
    if fs::metadata(&top).map_err(failed)?.is_file() {
        found.search_file(roots, &top, &pattern, limit);
        return Ok(found);
    }
    roots.may_open(&top, "search")?;
    let mut entries = walk(&top, true).map_err(failed)?;
    for entry in entries.by_ref().filter(|entry| entry.kind == Kind::File) {
        found.search_file(roots, &entry.path, &pattern, limit);
        if found.truncated {
            break;
        }
    }
    found.unnamed = entries.unnamed;
    Ok(found)
}

fn compile(arguments: &Search) -> Result<Regex, Error> {
    if arguments.query.is_empty() {
        return Err(Error::correctable(
            "`query` is empty: give a text to look for",
        ));
    }
    let escaped = regex::escape(&arguments.query);
    RegexBuilder::new(if arguments.regex {
        &arguments.query
    } else {
        &escaped
    })
    .case_insensitive(arguments.ignore_case)
    // Written-out repetitions of a hostile pattern would fill the memory.
    .size_limit(4 << 20)
    .build()
    .map_err(|error| Error::correctable(format!("`query` is no valid pattern: {error}")))
}

impl Found {
    fn search_file(&mut self, roots: &Roots, path: &Path, pattern: &Regex, limit: usize) {
        let Ok(Some(text)) = text(path) else {
            self.files_skipped += 1;
            return;
        };
        self.files_searched += 1;
        let hits = text
            .lines()
            .enumerate()
            .filter(|(_, line)| pattern.is_match(line));
        for (index, line) in hits {
            if self.matches.len() == limit {
                self.truncated = true;
                return;
            }
            let text = line.chars().take(MAX_LINE_CHARACTERS).collect();
            self.matches.push(Hit {
                path: roots.display(path),
                line: index + 1,
                text,
            });
        }
    }
}

/// The text of a file, unless it is binary or too large.
fn text(path: &Path) -> io::Result<Option<String>> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() > MAX_FILE_BYTES || is_binary(&mut file)? {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}
