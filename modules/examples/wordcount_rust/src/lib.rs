//! The word count of `modules/examples`, in Rust: the standard library does it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_guest::{Annotations, Error, Tool, json};

toolhold_guest::export!(tools);

fn tools() -> Vec<Tool> {
    vec![
        Tool::new(
            "count",
            "Counts the words, lines and characters of a text and finds its longest word. Use it \
             instead of counting by eye.",
            count,
        )
        .title("Count words")
        .annotations(Annotations::READ_ONLY | Annotations::IDEMPOTENT)
        .example(
            "How many words are in: the quick brown fox",
            json!({ "text": "the quick brown fox" }),
            json!({ "words": 4, "lines": 1, "characters": 19, "longest": "quick" }),
            "There are 4 words.",
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The text to count in.
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Counted {
    words: usize,
    lines: usize,
    characters: usize,
    longest: String,
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "what a tool's function returns; this one cannot fail"
)]
fn count(Arguments { text }: Arguments) -> Result<Counted, Error> {
    let mut words = 0;
    let mut longest = ("", 0);
    for word in text.split_whitespace() {
        words += 1;
        let length = word.chars().count();
        if length > longest.1 {
            longest = (word, length);
        }
    }
    Ok(Counted {
        words,
        lines: text.lines().count(),
        characters: text.chars().count(),
        longest: longest.0.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use toolhold_guest::check;

    #[test]
    fn examples_return_what_they_claim() {
        assert_eq!(check::examples(&super::tools()), Vec::<String>::new());
    }
}
