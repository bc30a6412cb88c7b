//! What can be written, and what a refusal says.

use super::*;

#[test]
fn what_cannot_be_written_says_what_to_write_and_changes_nothing() {
    let before = global(&[
        ("†s.user", Set, json!({"name": "Ada", "age": 36})),
        ("†s.items", Set, json!(["x", {"y": 1}])),
    ]);
    let wide = Path {
        kind: "s".into(),
        segments: vec![Segment::Index(MAX_INDEX + 1)],
    };
    let deep = (0..MAX_LEVELS).fold(json!(1), |value, _| json!([value]));
    for (at, method, value, expect) in [
        (
            path("†s.items.name"),
            Set,
            json!(1),
            "†s.items.name cannot be written: †s.items is a list and has 2 elements; write an \
             element, such as †s.items[2], or set †s.items to an object first",
        ),
        (
            path("†s.user[0].x"),
            Push,
            json!(1),
            "†s.user[0].x cannot be written: †s.user is an object and has name and age; write a \
             field, such as †s.user.name, or set †s.user to a list first",
        ),
        (
            path("†s.user"),
            Push,
            json!(1),
            "push appends to a list, and an object is there; set it to a list first",
        ),
        (
            path("†s.items[0]"),
            Push,
            json!(1),
            "push appends to a list, and a text is there",
        ),
        (
            path("†s.items"),
            Concat,
            json!("x"),
            "concat cannot append a text to a list, only a list to a list and a text to a text",
        ),
        (
            path("†s.user.name"),
            Concat,
            json!(["x"]),
            "concat cannot append a list to a text",
        ),
        (
            path("†s.items"),
            Concat,
            json!(1),
            "concat appends a list or a text, and the value is a number; use push",
        ),
        (
            path("†s.new"),
            Concat,
            json!({}),
            "concat appends a list or a text, and the value is an object",
        ),
        (
            wide,
            Set,
            json!(1),
            "[10000] is too high, 9999 is the highest",
        ),
        (
            path("†s.deep"),
            Set,
            deep,
            "would be nested deeper than 100 levels",
        ),
        (
            path("†s.large"),
            Set,
            json!("x".repeat(MAX_BYTES)),
            "would take more than 64 MiB",
        ),
    ] {
        let mut data = before.clone();
        let error = data
            .write(Write {
                path: at.clone(),
                instance: None,
                method,
                value,
            })
            .unwrap_err();
        assert_eq!(error.path, at);
        assert!(error.to_string().contains(expect), "{error}");
        assert_eq!(data, before, "{error}");
    }
}

#[test]
fn padding_counts_as_written() {
    let mut data = Data::default();
    let wide = format!("[{MAX_INDEX}]");
    let mut accepted = 0;
    while let Ok(()) = data.write(entry(None, &format!("†s.k{accepted}{wide}"), Set, json!(1))) {
        accepted += 1;
        assert!(accepted < 1000, "lists of nulls grow without a limit");
    }
    assert!(accepted * MAX_INDEX * size_of::<Value>() <= MAX_BYTES);
    assert_eq!(data.log().len(), accepted);
}
