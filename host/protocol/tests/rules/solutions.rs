//! Section 4: what a reply must be to be a solution.

use toolhold_protocol::solution::Solution;

#[test]
fn every_fault_says_what_to_do() {
    for (rule, text, expect) in [
        ("4.8", "I think it is 7.", "not one JSON object"),
        ("4.8", r#"{"calls":[{"_tool":"a"#, "not one JSON object"),
        ("4.8", "[]", "keys calls and output"),
        ("4.8", "{}", "neither a call nor an output"),
        (
            "4.8",
            r#"{"calls":[],"output":null}"#,
            "neither a call nor an output",
        ),
        ("4.8", r#"{"calls":{},"output":null}"#, "must be a list"),
        ("4.8", r#"{"calls":[1]}"#, "must be an object"),
        ("4.8", r#"{"calls":[{"x":1}]}"#, "lacks \"_tool\""),
    ] {
        let error = Solution::parse(text).unwrap_err();
        assert!(error.contains(expect), "{rule}: {text} gave {error}");
    }
}
