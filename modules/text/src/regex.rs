use regex::{Captures, Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_guest::{Annotations, Error, Tool, json};

/// A compiled pattern beyond this is a memory bomb (`(\w{1000}){1000}`), not a question.
const MAX_COMPILED_BYTES: usize = 4 << 20;

/// Shown unless the call says otherwise: enough to see what matches, little enough to read.
const DEFAULT_LIMIT: usize = 50;

/// The most a call may ask to see.
const MAX_LIMIT: usize = 1_000;

pub fn tool() -> Tool {
    Tool::new(
        "regex",
        "Finds all matches of a regular expression in a text, or replaces them if `replacement` is \
         given. Returns the number of matches and either the matches or the new text. \
         No look-around and no back-references in the pattern.",
        regex,
    )
    .title("Search with a regular expression")
    .annotations(Annotations::READ_ONLY | Annotations::IDEMPOTENT)
    .example(
        "Which years does this sentence name: Built in 1889, restored in 1986?",
        json!({ "text": "Built in 1889, restored in 1986", "pattern": "[0-9]{4}" }),
        json!({
            "count": 2,
            "matches": [
                { "text": "1889", "start": 9, "groups": [] },
                { "text": "1986", "start": 27, "groups": [] }
            ],
            "truncated": false
        }),
        "It names 1889 and 1986.",
    )
    .example(
        "Turn 'Lovelace, Ada' around.",
        json!({
            "text": "Lovelace, Ada",
            "pattern": "^(\\w+), (\\w+)$",
            "replacement": "$2 $1"
        }),
        json!({ "count": 1, "replaced": "Ada Lovelace", "truncated": false }),
        "Ada Lovelace",
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The text to search.
    text: String,
    /// The regular expression. Flags go in front: `(?i)` ignores case, `(?m)` lets ^ and $ match at
    /// line ends, `(?s)` lets a dot match line breaks.
    pattern: String,
    /// Replaces every match by this; `$1` or `${name}` stand for groups, `$$` for a dollar sign.
    replacement: Option<String>,
    /// How many matches to return at most (50 if not given). Does not limit replacing.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
struct Found {
    /// How many matches there are in all.
    count: usize,
    /// The matches in order, unless they were replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    matches: Option<Vec<Match>>,
    /// The new text, if there was a replacement.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<String>,
    /// Whether there are more matches than `limit`.
    truncated: bool,
}

#[derive(Serialize, JsonSchema)]
struct Match {
    text: String,
    /// Characters before the match.
    start: usize,
    /// What the groups of the pattern matched, in order; null for a group that took no part.
    groups: Vec<Option<String>>,
}

fn regex(arguments: Arguments) -> Result<Found, Error> {
    let limit = arguments.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let pattern = compile(&arguments.pattern)?;
    let count = pattern.find_iter(&arguments.text).count();
    if let Some(replacement) = &arguments.replacement {
        let replaced = pattern
            .replace_all(&arguments.text, replacement)
            .into_owned();
        return Ok(Found {
            count,
            matches: None,
            replaced: Some(replaced),
            truncated: false,
        });
    }
    Ok(Found {
        count,
        matches: Some(matches(&pattern, &arguments.text, limit)),
        replaced: None,
        truncated: count > limit,
    })
}

fn compile(pattern: &str) -> Result<Regex, Error> {
    RegexBuilder::new(pattern)
        .size_limit(MAX_COMPILED_BYTES)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => Error::correctable(
                "the pattern is too large once its repetitions are written out; use smaller counts",
            ),
            error => Error::correctable(format!("the pattern is not valid: {error}")),
        })
}

fn matches(pattern: &Regex, text: &str, limit: usize) -> Vec<Match> {
    // Matches come in order, so characters are counted once over the whole text.
    let (mut bytes, mut characters) = (0, 0);
    pattern
        .captures_iter(text)
        .take(limit)
        .filter_map(|captures| {
            let whole = captures.get(0)?;
            characters += text[bytes..whole.start()].chars().count();
            bytes = whole.start();
            let groups = groups(&captures);
            Some(Match {
                text: whole.as_str().to_owned(),
                start: characters,
                groups,
            })
        })
        .collect()
}

fn groups(captures: &Captures) -> Vec<Option<String>> {
    captures
        .iter()
        .skip(1)
        .map(|group| group.map(|found| found.as_str().to_owned()))
        .collect()
}
