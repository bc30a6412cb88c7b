//! Section 5: what is written, and what a path then reads as.

use super::{data, entry, path, sets};
use serde_json::{Value, json};
use std::borrow::Cow;
use toolhold_protocol::data::Method::{self, Assign, Concat, Merge, Push, Set};
use toolhold_protocol::data::{Data, MAX_BYTES, MAX_LEVELS, Write};
use toolhold_protocol::reference::{MAX_INDEX, Path, Segment, Source};

fn source(text: &str) -> Source {
    text.parse().unwrap()
}

fn global(writes: &[(&str, Method, Value)]) -> Data {
    data(
        writes
            .iter()
            .map(|(at, method, value)| entry(None, at, *method, value.clone())),
    )
}

fn read(data: &Data, at: &str) -> Option<Value> {
    data.read(&path(at), None).ok().map(Cow::into_owned)
}

/// Rule "2.2".
#[test]
fn messages_with_the_same_kind_and_instance_are_one_value_merged_in_order() {
    let data = data([
        entry(None, "†user", Merge, json!({"name": "Ada", "tags": [1]})),
        entry(Some("x"), "†user", Merge, json!({"name": "Bob"})),
        entry(None, "†note", Merge, json!("first")),
        entry(None, "†user", Merge, json!({"age": 36, "tags": [2]})),
        entry(None, "†note", Merge, json!("second")),
    ]);
    let kinds: Vec<_> = data.kinds(None);
    assert_eq!(
        kinds,
        [
            (
                "user",
                Cow::Owned(json!({"name": "Ada", "age": 36, "tags": [2]}))
            ),
            ("note", Cow::Owned(json!("second"))),
        ]
    );
}

/// Rule "5.2".
#[test]
fn results_are_appended_and_never_merged_when_written() {
    let mut data = Data::default();
    let writes = [
        entry(None, "†s.a", Set, json!(1)),
        entry(Some("x"), "†s", Merge, json!({"b": 2})),
        entry(None, "†s.a", Set, json!(3)),
    ];
    for write in &writes {
        data.write(write.clone()).unwrap();
    }
    assert_eq!(data.log(), writes);
}

#[test]
fn a_path_is_read_newest_to_oldest_up_to_a_set() {
    let o = || json!({"a": {"x": 1, "y": [1]}, "b": 2});
    for (rule, writes, at, expect) in [
        // A set at the path or above it ends the search.
        (
            "5.2",
            vec![("†s.a", Set, json!(1)), ("†s.a", Set, json!(2))],
            "†s.a",
            json!(2),
        ),
        (
            "5.2",
            vec![("†s.a.x", Set, json!(1)), ("†s", Set, json!({"b": 1}))],
            "†s",
            json!({"b": 1}),
        ),
        (
            "5.2",
            vec![("†s", Set, o()), ("†s.a.x", Set, json!(9))],
            "†s",
            json!({"a": {"x": 9, "y": [1]}, "b": 2}),
        ),
        // The others are collected and applied oldest to newest.
        (
            "5.2",
            vec![
                ("†s", Set, o()),
                ("†s", Merge, json!({"a": {"y": 3, "z": 4}, "c": 5})),
            ],
            "†s",
            json!({"a": {"x": 1, "y": 3, "z": 4}, "b": 2, "c": 5}),
        ),
        (
            "5.2",
            vec![("†s", Set, o()), ("†s", Assign, json!({"a": {"z": 4}}))],
            "†s",
            json!({"a": {"z": 4}, "b": 2}),
        ),
        (
            "5.2",
            vec![("†s", Set, o()), ("†s.a.y", Push, json!([2]))],
            "†s.a.y",
            json!([1, [2]]),
        ),
        (
            "5.2",
            vec![("†s", Set, o()), ("†s.a.y", Concat, json!([2, 3]))],
            "†s.a",
            json!({"x": 1, "y": [1, 2, 3]}),
        ),
        (
            "5.2",
            vec![("†s.t", Set, json!("a")), ("†s.t", Concat, json!("b"))],
            "†s.t",
            json!("ab"),
        ),
        // Onto nothing, and onto null.
        (
            "5.3",
            vec![("†s.l", Push, json!(1))],
            "†s",
            json!({"l": [1]}),
        ),
        ("5.3", vec![("†s.l", Concat, json!([]))], "†s.l", json!([])),
        (
            "5.3",
            vec![("†s.l", Concat, json!("a"))],
            "†s.l",
            json!("a"),
        ),
        ("5.3", vec![("†s.o", Merge, json!({}))], "†s.o", json!({})),
        (
            "5.3",
            vec![("†s", Set, json!({"l": null})), ("†s.l", Push, json!(1))],
            "†s.l[0]",
            json!(1),
        ),
        // Only two objects are merged or assigned, all else is replaced.
        (
            "5.3",
            vec![("†s", Set, o()), ("†s.a", Merge, json!([1]))],
            "†s.a",
            json!([1]),
        ),
        (
            "5.3",
            vec![("†s", Set, o()), ("†s", Assign, json!("text"))],
            "†s",
            json!("text"),
        ),
        (
            "5.3",
            vec![
                ("†s.l", Set, json!([1])),
                ("†s", Merge, json!({"l": {"x": 1}})),
            ],
            "†s.l",
            json!({"x": 1}),
        ),
        // A scalar or an empty container on the way becomes what the path needs.
        (
            "5.3",
            vec![("†s.a", Set, json!(5)), ("†s.a.b[1]", Set, json!(1))],
            "†s",
            json!({"a": {"b": [null, 1]}}),
        ),
        (
            "5.3",
            vec![("†s.a", Set, json!([])), ("†s.a.b", Set, json!(1))],
            "†s.a",
            json!({"b": 1}),
        ),
        (
            "5.3",
            vec![("†s.a", Set, json!({})), ("†s.a[0]", Set, json!(1))],
            "†s.a",
            json!([1]),
        ),
        // Null is a value.
        ("5.3", vec![("†s.a", Set, Value::Null)], "†s.a", Value::Null),
    ] {
        let data = global(&writes);
        assert_eq!(read(&data, at), Some(expect), "{rule}: {writes:?} {at}");
    }
}

/// Rule "5.3".
#[test]
fn parallel_calls_write_elements_in_any_order_and_none_exists_before_it_is_written() {
    let mut data = global(&[("†s.l[2].x", Set, json!("c"))]);
    let list = |data: &Data| read(data, "†s.l");
    assert_eq!(list(&data), Some(json!([null, null, {"x": "c"}])));
    assert!(!data.contains(&path("†s.l[0]"), None));
    assert!(data.contains(&path("†s.l[2]"), None));
    data.write(entry(None, "†s.l[0]", Set, Value::Null))
        .unwrap();
    assert_eq!(read(&data, "†s.l[0]"), Some(Value::Null));
    data.write(entry(None, "†s.l[1]", Push, json!(1))).unwrap();
    data.write(entry(None, "†s.l", Push, json!("d"))).unwrap();
    assert_eq!(list(&data), Some(json!([null, [1], {"x": "c"}, "d"])));
}

#[test]
fn invalid_write_names_a_valid_one_and_changes_nothing() {
    let before = global(&[
        ("†s.user", Set, json!({"name": "Ada", "age": 36})),
        ("†s.items", Set, json!(["x", {"y": 1}])),
    ]);
    let wide = Path {
        kind: "s".into(),
        segments: vec![Segment::Index(MAX_INDEX + 1)],
    };
    let deep = (0..MAX_LEVELS).fold(json!(1), |value, _| json!([value]));
    for (rule, at, method, value, expect) in [
        (
            "5.3",
            path("†s.items.name"),
            Set,
            json!(1),
            "†s.items.name cannot be written: †s.items is a list and has 2 elements; write an \
             element, such as †s.items[2], or set †s.items to an object first",
        ),
        (
            "5.3",
            path("†s.user[0].x"),
            Push,
            json!(1),
            "†s.user[0].x cannot be written: †s.user is an object and has name and age; write a \
             field, such as †s.user.name, or set †s.user to a list first",
        ),
        (
            "5.3",
            path("†s.user"),
            Push,
            json!(1),
            "push appends to a list, and an object is there; set it to a list first",
        ),
        (
            "5.3",
            path("†s.items[0]"),
            Push,
            json!(1),
            "push appends to a list, and a text is there",
        ),
        (
            "5.3",
            path("†s.items"),
            Concat,
            json!("x"),
            "concat cannot append a text to a list, only a list to a list and a text to a text",
        ),
        (
            "5.3",
            path("†s.user.name"),
            Concat,
            json!(["x"]),
            "concat cannot append a list to a text",
        ),
        (
            "5.3",
            path("†s.items"),
            Concat,
            json!(1),
            "concat appends a list or a text, and the value is a number; use push",
        ),
        (
            "5.3",
            path("†s.new"),
            Concat,
            json!({}),
            "concat appends a list or a text, and the value is an object",
        ),
        (
            "5.9",
            wide,
            Set,
            json!(1),
            "[10000] is too high, 9999 is the highest",
        ),
        (
            "5.9",
            path("†s.deep"),
            Set,
            deep,
            "would be nested deeper than 100 levels",
        ),
        (
            "5.9",
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
        assert!(error.to_string().contains(expect), "{rule}: {error}");
        assert_eq!(data, before, "{rule}: {error}");
    }
}

#[test]
fn first_that_exists_and_last_once_all_exist() {
    let data = global(&[("†s", Set, json!({"a": 1, "b": null, "c": [7]}))]);
    for (rule, expression, expect) in [
        ("5.4", "†s.a", Ok(json!(1))),
        ("5.4", "†s.x || †s.a", Ok(json!(1))),
        ("5.4", "†s.c[0] || †s.a", Ok(json!(7))),
        ("5.4", "†s.b || †s.a", Ok(Value::Null)),
        ("5.4", "†s.a && †s.c", Ok(json!([7]))),
        ("5.4", "†s.x || †t", Err("†s.x †t")),
        ("5.4", "†s.x && †s.a", Err("†s.x")),
        ("5.4", "†s.x && †s.a && †s.c[1]", Err("†s.x †s.c[1]")),
    ] {
        let resolved = data.resolve(&source(expression), None);
        let resolved = resolved.map(Cow::into_owned).map_err(|missing| {
            let paths: Vec<_> = missing.paths().map(ToString::to_string).collect();
            paths.join(" ")
        });
        assert_eq!(
            resolved,
            expect.map_err(str::to_owned),
            "{rule}: {expression}"
        );
    }
}

#[test]
fn missing_path_names_its_existing_part_and_the_members_there() {
    let mut many: Vec<_> = (0..20).map(|i| (format!("k{i}"), json!(i))).collect();
    many[0].0 = "y".repeat(100);
    let many = Value::Object(many.into_iter().collect());
    let data = sets(&[
        (None, "†state.user", json!({"name": "Ada", "age": 36})),
        (None, "†state.items", json!(["x", "y"])),
        (None, "†state.one", json!([{}])),
        (None, "†state.none", json!([])),
        (None, "†state.late[1]", json!(1)),
        (None, "†input", json!("text")),
        (None, "†many", many),
        (Some("x"), "†state.user.mail", json!("a@b")),
        (Some("x"), "†own", Value::Null),
    ]);
    let clipped = format!(
        "†many has {}…, k1, k2, k3, k4, k5, k6, k7 and 12 more",
        "y".repeat(40)
    );
    let long = format!("†state.{}", "z".repeat(300));
    let long_message = format!("†state.{}… does not exist: †state has", "z".repeat(193));
    for (rule, instance, at, expect) in [
        (
            "5.8",
            None,
            "†state.user.mail",
            "†state.user.mail does not exist: †state.user has name and age",
        ),
        (
            "5.8",
            None,
            "†state.user.mail.host",
            "†state.user.mail.host does not exist: †state.user has name and age",
        ),
        (
            "5.8",
            Some("x"),
            "†state.user.phone",
            "†state.user has name, age and mail",
        ),
        (
            "5.8",
            None,
            "†state.items[2]",
            "†state.items has 2 elements",
        ),
        (
            "5.8",
            None,
            "†state.items.name",
            "†state.items has 2 elements",
        ),
        ("5.8", None, "†state.one[1]", "†state.one has 1 element"),
        (
            "5.8",
            None,
            "†state.one[0].x",
            "†state.one[0] is an object without fields",
        ),
        ("5.8", None, "†state.none[0]", "†state.none has no elements"),
        (
            "5.8",
            None,
            "†state.late[0].x",
            "†state.late[0].x does not exist: †state.late[0] is not written yet, only elements \
             after it are",
        ),
        (
            "5.8",
            None,
            "†input.x",
            "†input.x does not exist: †input is a text",
        ),
        ("5.8", Some("x"), "†own.x", "†own is null"),
        ("5.8", None, "†many.x", &clipped),
        ("5.8", None, &long, &long_message),
        (
            "5.8",
            None,
            "†x.y",
            "there is no data of the kind x; there are state, input and many",
        ),
        (
            "5.8",
            Some("x"),
            "†x",
            "there is no data of the kind x; there are state, input, many and own",
        ),
    ] {
        let missing = data.read(&path(at), instance).unwrap_err().to_string();
        assert!(missing.contains(expect), "{rule}: {at}: {missing}");
    }
    let nothing = Data::default().read(&path("†x"), None).unwrap_err();
    let nothing = nothing.to_string();
    assert!(
        nothing.ends_with("there is none of any kind yet"),
        "{nothing}"
    );
    let one = global(&[("†s", Set, json!(1))]);
    let one = one.resolve(&source("†x || †s.a"), None).unwrap_err();
    assert_eq!(
        one.to_string(),
        "there is no data of the kind x; there is only s; †s.a does not exist: †s is a number"
    );
}

/// Rule "5.1".
#[test]
fn a_reference_stands_for_the_whole_string_and_two_daggers_are_one() {
    let data = global(&[("†s", Set, json!({"a": {"b": [1, "†s.a"]}}))]);
    let arguments = json!({
        "whole": "†s.a.b", "part": "see †s.a", "literal": "††s.a", "list": [1, "†s.x || †s.a.b[0]"],
        "†s.a": null, "value": "†s.a.b[1]",
    });
    assert_eq!(
        data.fill(&arguments, None).unwrap(),
        json!({
            "whole": [1, "†s.a"], "part": "see †s.a", "literal": "†s.a", "list": [1, 1],
            "†s.a": null, "value": "†s.a",
        })
    );
    assert_eq!(data.fill(&json!("†s.a.b[0]"), None), Ok(json!(1)));
}
