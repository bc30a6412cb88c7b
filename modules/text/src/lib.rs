//! Things about a text that a language model cannot see well from inside: its length, its hash, its
//! letters in order, what matches a pattern, what changed.

mod count;
mod diff;
mod hash;
mod regex;
mod reverse;

use toolhold_guest::Tool;

toolhold_guest::export!(tools);

fn tools() -> Vec<Tool> {
    vec![
        count::tool(),
        hash::tool(),
        regex::tool(),
        reverse::tool(),
        diff::tool(),
    ]
}

#[cfg(test)]
mod tests {
    use toolhold_guest::{Value, check, json};

    fn call(tool: &str, arguments: Value) -> Result<Value, String> {
        check::call(&super::tools(), tool, &arguments).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn examples_return_what_they_claim() {
        assert_eq!(check::examples(&super::tools()), Vec::<String>::new());
    }

    #[test]
    fn digests_of_the_empty_text_are_the_published_ones() {
        let expected = [
            ("md5", "d41d8cd98f00b204e9800998ecf8427e"),
            ("sha1", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            (
                "sha256",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
        ];
        for (algorithm, digest) in expected {
            let output = call("hash", json!({ "text": "", "algorithm": algorithm }));
            assert_eq!(
                output,
                Ok(json!({ "algorithm": algorithm, "digest": digest }))
            );
        }
    }

    #[test]
    fn counting_sees_characters_as_people_do() {
        let output = call("count", json!({ "text": "naïve 👩‍👩‍👧\r\nend\n", "of": "n" }));
        let expected = json!({
            "characters": 12, "bytes": 31, "words": 2, "lines": 2, "occurrences": 2
        });
        assert_eq!(output, Ok(expected));
        assert!(call("count", json!({ "text": "a", "of": "" })).is_err());
    }

    #[test]
    fn regex_counts_what_it_does_not_show() {
        let output = call(
            "regex",
            json!({ "text": "a1 b2 c3", "pattern": "[a-z](\\d)", "limit": 2 }),
        );
        let expected = json!({
            "count": 3,
            "matches": [
                { "text": "a1", "start": 0, "groups": ["1"] },
                { "text": "b2", "start": 3, "groups": ["2"] }
            ],
            "truncated": true
        });
        assert_eq!(output, Ok(expected));
    }

    #[test]
    fn regex_offsets_count_characters() {
        let output = call("regex", json!({ "text": "äöü x", "pattern": "x" }));
        let expected = json!({
            "count": 1,
            "matches": [{ "text": "x", "start": 4, "groups": [] }],
            "truncated": false
        });
        assert_eq!(output, Ok(expected));
    }

    #[test]
    fn a_pattern_outside_the_dialect_is_explained() {
        let error = call("regex", json!({ "text": "a", "pattern": "(a" })).unwrap_err();
        assert!(error.contains("unclosed group"), "{error}");
        let error = call("regex", json!({ "text": "a", "pattern": "(?=a)" })).unwrap_err();
        assert!(error.contains("look-around"), "{error}");
        let error = call(
            "regex",
            json!({ "text": "a", "pattern": "(\\w{1000}){1000}" }),
        )
        .unwrap_err();
        assert!(error.contains("too large"), "{error}");
    }

    #[test]
    fn reversal_keeps_marks_on_their_letters() {
        let output = call("reverse", json!({ "text": "e\u{301}a 🇩🇪" }));
        assert_eq!(output, Ok(json!({ "text": "🇩🇪 ae\u{301}" })));
        let output = call("reverse", json!({ "text": "one two\n", "by": "words" }));
        assert_eq!(output, Ok(json!({ "text": "two one" })));
        let output = call("reverse", json!({ "text": "1\n2\n3\n", "by": "lines" }));
        assert_eq!(output, Ok(json!({ "text": "3\n2\n1\n" })));
    }

    #[test]
    fn equal_texts_have_an_empty_diff() {
        let output = call("diff", json!({ "old": "a\nb\n", "new": "a\nb\n" }));
        assert_eq!(
            output,
            Ok(json!({ "equal": true, "diff": "", "added": 0, "removed": 0 }))
        );
    }

    #[test]
    fn misspelt_arguments_are_refused() {
        let error = call("reverse", json!({ "text": "a", "mode": "words" })).unwrap_err();
        assert!(error.contains("unknown field `mode`"), "{error}");
    }
}
