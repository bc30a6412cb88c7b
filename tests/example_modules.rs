//! One tool in six languages (`modules/examples/README.md`): the same cases for all.

use serde_json::json;
use support::sandbox::{call, kind, registry, repository};
use toolhold_needs::is_built;
use toolhold_policy::Output;
use toolhold_sandbox::Policy;

const LANGUAGES: [&str; 6] = ["rust", "c", "go", "python", "javascript", "typescript"];

/// Text, words, lines, characters, longest word.
fn cases() -> Vec<(String, u64, u64, u64, String)> {
    let case = |text: &str, words, lines, characters, longest: &str| {
        (
            text.to_owned(),
            words,
            lines,
            characters,
            longest.to_owned(),
        )
    };
    vec![
        case("", 0, 0, 0, ""),
        case(" \t\n", 0, 1, 3, ""),
        case("the quick brown fox", 4, 1, 19, "quick"),
        case("a\r\nb", 2, 2, 4, "a"),
        case("a\rb", 2, 1, 3, "a"),
        case("one\n", 1, 1, 4, "one"),
        case("\n\n", 0, 2, 2, ""),
        // White space that some languages forget, and what some wrongly take for it.
        case(
            "a\u{85}b\u{a0}c\u{1680}d\u{2003}e\u{2028}f\u{2029}g\u{202f}h\u{205f}i\u{3000}j",
            10,
            1,
            19,
            "a",
        ),
        case(
            "a\u{1c}b\u{1f}c\u{feff}d\u{200b}e\u{180e}f",
            1,
            1,
            11,
            "a\u{1c}b\u{1f}c\u{feff}d\u{200b}e\u{180e}f",
        ),
        case("a\u{0}b c", 2, 1, 5, "a\u{0}b"),
        // Characters are scalar values; length is counted in them, not in bytes or UTF-16.
        case("👩‍👩‍👧 e\u{301} é", 3, 1, 10, "👩‍👩‍👧"),
        case("ééé abcd 😀😀😀", 3, 1, 12, "abcd"),
        case("\"\\/\u{8}\u{c}\u{7f}", 2, 1, 6, "\"\\/\u{8}"),
        (("x".repeat(1 << 20)), 1, 1, 1 << 20, "x".repeat(1 << 20)),
        (
            "ab\n".repeat(300_000),
            300_000,
            300_000,
            900_000,
            "ab".to_owned(),
        ),
    ]
}

/// Counts as agreed, and describes itself as agreed: a model chooses by these texts.
async fn is_like_the_others(language: &str) {
    let name = format!("wordcount_{language}");
    let folder = repository().join("modules/examples");
    if !is_built(&repository(), &format!("modules/examples/{name}")) {
        return;
    }
    let registry = registry(Policy::default());
    registry
        .load_folder(&folder, Some(std::slice::from_ref(&name)), &|_| ())
        .await
        .expect("the folder is there");
    assert!(registry.failures().is_empty(), "{:?}", registry.failures());

    let tool = format!("{name}.count");
    for (text, words, lines, characters, longest) in cases() {
        let start: String = text.chars().take(20).collect();
        let expected =
            json!({"words": words, "lines": lines, "characters": characters, "longest": longest});
        match call(&registry, &tool, json!({"text": text})).await.result {
            Ok(Output::Value(found)) => assert!(found == expected, "{name}: {start:?}"),
            other => panic!("{name}: {start:?} gave {other:?}"),
        }
    }
    let told = registry.tool(&tool).expect("it has the tool");
    assert_eq!(
        told.description,
        "Counts the words, lines and characters of a text and finds its longest word. Use it instead of counting by \
         eye."
            .into(),
        "{name}"
    );
    assert_eq!(
        told.input_schema.pointer("/properties/text/description"),
        Some(&json!("The text to count in.")),
        "{name}"
    );
    let example = &told.examples[0];
    let answered = call(&registry, &tool, example.arguments.clone()).await;
    assert_eq!(
        answered.result.expect("a value"),
        Output::Value(example.output.clone()),
        "{name}"
    );
    // The gate before the sandbox holds arguments against the schema; a module must not answer
    // without it either.
    let wrong = call(&registry, &tool, json!({"text": 1})).await;
    assert!(
        ["arguments", "tool", "trap"].contains(&kind(&wrong)),
        "{name}: {:?}",
        wrong.result
    );
}

#[tokio::test]
async fn every_language_counts_and_describes_itself_alike() {
    for language in LANGUAGES {
        is_like_the_others(language).await;
    }
}
