//! What a path reads: the log from the newest entry to the oldest.

use super::*;

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
    for (writes, at, expect) in [
        // A set at the path or above it ends the search.
        (
            vec![("†s.a", Set, json!(1)), ("†s.a", Set, json!(2))],
            "†s.a",
            json!(2),
        ),
        (
            vec![("†s.a.x", Set, json!(1)), ("†s", Set, json!({"b": 1}))],
            "†s",
            json!({"b": 1}),
        ),
        (
            vec![("†s", Set, o()), ("†s.a.x", Set, json!(9))],
            "†s",
            json!({"a": {"x": 9, "y": [1]}, "b": 2}),
        ),
        // The others are collected and applied oldest to newest.
        (
            vec![
                ("†s", Set, o()),
                ("†s", Merge, json!({"a": {"y": 3, "z": 4}, "c": 5})),
            ],
            "†s",
            json!({"a": {"x": 1, "y": 3, "z": 4}, "b": 2, "c": 5}),
        ),
        (
            vec![("†s", Set, o()), ("†s", Assign, json!({"a": {"z": 4}}))],
            "†s",
            json!({"a": {"z": 4}, "b": 2}),
        ),
        (
            vec![("†s", Set, o()), ("†s.a.y", Push, json!([2]))],
            "†s.a.y",
            json!([1, [2]]),
        ),
        (
            vec![("†s", Set, o()), ("†s.a.y", Concat, json!([2, 3]))],
            "†s.a",
            json!({"x": 1, "y": [1, 2, 3]}),
        ),
        (
            vec![("†s.t", Set, json!("a")), ("†s.t", Concat, json!("b"))],
            "†s.t",
            json!("ab"),
        ),
        // Onto nothing, and onto null.
        (vec![("†s.l", Push, json!(1))], "†s", json!({"l": [1]})),
        (vec![("†s.l", Concat, json!([]))], "†s.l", json!([])),
        (vec![("†s.l", Concat, json!("a"))], "†s.l", json!("a")),
        (vec![("†s.o", Merge, json!({}))], "†s.o", json!({})),
        (
            vec![("†s", Set, json!({"l": null})), ("†s.l", Push, json!(1))],
            "†s.l[0]",
            json!(1),
        ),
        // Only two objects are merged or assigned, all else is replaced.
        (
            vec![("†s", Set, o()), ("†s.a", Merge, json!([1]))],
            "†s.a",
            json!([1]),
        ),
        (
            vec![("†s", Set, o()), ("†s", Assign, json!("text"))],
            "†s",
            json!("text"),
        ),
        (
            vec![
                ("†s.l", Set, json!([1])),
                ("†s", Merge, json!({"l": {"x": 1}})),
            ],
            "†s.l",
            json!({"x": 1}),
        ),
        // A scalar or an empty container on the way becomes what the path needs.
        (
            vec![("†s.a", Set, json!(5)), ("†s.a.b[1]", Set, json!(1))],
            "†s",
            json!({"a": {"b": [null, 1]}}),
        ),
        (
            vec![("†s.a", Set, json!([])), ("†s.a.b", Set, json!(1))],
            "†s.a",
            json!({"b": 1}),
        ),
        (
            vec![("†s.a", Set, json!({})), ("†s.a[0]", Set, json!(1))],
            "†s.a",
            json!([1]),
        ),
        // Null is a value.
        (vec![("†s.a", Set, Value::Null)], "†s.a", Value::Null),
    ] {
        let data = global(&writes);
        assert_eq!(read(&data, at), Some(expect), "{writes:?} {at}");
    }
}

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
