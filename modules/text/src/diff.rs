use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use similar::{ChangeTag, TextDiff};
use toolhold_guest::{Annotations, Error, Tool, json};

/// Past this many edits an exact answer costs quadratic time; both texts then differ so much that
/// nobody reads a diff of them.
const MAX_LINES: usize = 20_000;

/// More context than this and the answer is the text again.
const MAX_CONTEXT: usize = 100;

pub fn tool() -> Tool {
    Tool::new(
        "diff",
        "Compares two texts line by line and returns a unified diff with the number of added and \
         removed lines.",
        diff,
    )
    .title("Compare two texts")
    .annotations(Annotations::READ_ONLY | Annotations::IDEMPOTENT)
    .example(
        "What changed between 'milk, eggs' and 'milk, bread', one item a line?",
        json!({ "old": "milk\neggs\n", "new": "milk\nbread\n" }),
        json!({
            "equal": false,
            "diff": "--- old\n+++ new\n@@ -1,2 +1,2 @@\n milk\n-eggs\n+bread\n",
            "added": 1,
            "removed": 1
        }),
        "eggs was replaced by bread.",
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Diff {
    /// The text before.
    old: String,
    /// The text after.
    new: String,
    /// How many unchanged lines to show around a change (3 if not given).
    #[schemars(range(max = 100))]
    context: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
struct Difference {
    /// Whether both texts are the same.
    equal: bool,
    /// The unified diff; empty if the texts are equal.
    diff: String,
    /// Lines that only the new text has.
    added: usize,
    /// Lines that only the old text has.
    removed: usize,
}

fn diff(arguments: Diff) -> Result<Difference, Error> {
    for (name, text) in [("old", &arguments.old), ("new", &arguments.new)] {
        let lines = text.lines().count();
        if lines > MAX_LINES {
            return Err(Error::correctable(format!(
                "`{name}` has {lines} lines; at most {MAX_LINES} can be compared, so compare parts"
            )));
        }
    }
    let context = arguments.context.unwrap_or(3).min(MAX_CONTEXT);
    let changes = TextDiff::from_lines(&arguments.old, &arguments.new);
    let count = |tag| {
        changes
            .iter_all_changes()
            .filter(|change| change.tag() == tag)
            .count()
    };
    Ok(Difference {
        equal: arguments.old == arguments.new,
        diff: changes
            .unified_diff()
            .context_radius(context)
            .header("old", "new")
            .to_string(),
        added: count(ChangeTag::Insert),
        removed: count(ChangeTag::Delete),
    })
}
