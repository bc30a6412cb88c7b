use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_guest::{Annotations, Error, Tool, json};
use unicode_segmentation::UnicodeSegmentation;

pub fn tool() -> Tool {
    Tool::new(
        "count",
        "Counts the characters, bytes, words and lines of a text, and how often a piece occurs in \
         it. Use it for every question of the kind \"how many\": counting letters by eye goes wrong.",
        count,
    )
    .title("Count in a text")
    .annotations(Annotations::READ_ONLY | Annotations::IDEMPOTENT)
    .example(
        "How many r are in strawberry?",
        json!({ "text": "strawberry", "of": "r" }),
        json!({ "characters": 10, "bytes": 10, "words": 1, "lines": 1, "occurrences": 3 }),
        "There are 3 r in strawberry.",
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Count {
    /// The text to count in.
    text: String,
    /// A piece whose occurrences are counted: a letter, a word, any substring. Case matters;
    /// occurrences do not overlap.
    of: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Counted {
    /// Characters as people see them: a letter with its accents is one, so is an emoji.
    characters: usize,
    /// Bytes in UTF-8.
    bytes: usize,
    /// Words, as Unicode separates them.
    words: usize,
    lines: usize,
    /// How often `of` occurs.
    #[serde(skip_serializing_if = "Option::is_none")]
    occurrences: Option<usize>,
}

fn count(arguments: Count) -> Result<Counted, Error> {
    let text = arguments.text.as_str();
    if arguments.of.as_deref() == Some("") {
        return Err(Error::correctable(
            "`of` is empty: give the piece to look for, or leave it out",
        ));
    }
    Ok(Counted {
        characters: text.graphemes(true).count(),
        bytes: text.len(),
        words: text.unicode_words().count(),
        lines: text.lines().count(),
        occurrences: arguments.of.map(|piece| text.matches(&piece).count()),
    })
}
