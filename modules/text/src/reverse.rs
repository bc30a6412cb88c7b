use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_guest::{Annotations, Error, Tool, json};
use unicode_segmentation::UnicodeSegmentation;

pub fn tool() -> Tool {
    Tool::new(
        "reverse",
        "Reverses a text: its characters (the default), its words or its lines. Accents stay on \
         their letters. Use it also to test for a palindrome.",
        |arguments: Reverse| Ok::<_, Error>(reverse(&arguments)),
    )
    .title("Reverse a text")
    .annotations(Annotations::READ_ONLY | Annotations::IDEMPOTENT)
    .example(
        "Spell stressed backwards.",
        json!({ "text": "stressed" }),
        json!({ "text": "desserts" }),
        "Backwards it is desserts.",
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Reverse {
    /// The text to reverse.
    text: String,
    /// The unit whose order is reversed.
    #[serde(default)]
    by: Unit,
}

#[derive(Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Unit {
    #[default]
    Characters,
    Words,
    Lines,
}

#[derive(Serialize, JsonSchema)]
struct Reversed {
    text: String,
}

fn reverse(arguments: &Reverse) -> Reversed {
    let text = arguments.text.as_str();
    let text = match arguments.by {
        Unit::Characters => text.graphemes(true).rev().collect(),
        Unit::Words => text.split_whitespace().rev().collect::<Vec<_>>().join(" "),
        Unit::Lines => {
            let lines = text.lines().rev().collect::<Vec<_>>().join("\n");
            if text.ends_with('\n') {
                lines + "\n"
            } else {
                lines
            }
        }
    };
    Reversed { text }
}
