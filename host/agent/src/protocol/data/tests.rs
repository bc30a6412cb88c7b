use super::Method::{Assign, Concat, Merge, Push, Set};
use super::*;
use crate::protocol::reference::{MAX_INDEX, Segment};
use proptest::prelude::*;
use serde_json::json;

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn source(text: &str) -> Source {
    text.parse().unwrap()
}

fn entry(instance: Option<&str>, at: &str, method: Method, value: Value) -> Write {
    Write {
        path: path(at),
        instance: instance.map(str::to_owned),
        method,
        value,
    }
}

fn data(writes: impl IntoIterator<Item = Write>) -> Data {
    let mut data = Data::default();
    for write in writes {
        data.write(write).unwrap();
    }
    data
}

fn global(writes: &[(&str, Method, Value)]) -> Data {
    data(
        writes
            .iter()
            .map(|(at, method, value)| entry(None, at, *method, value.clone())),
    )
}

/// Set in an instance or in the global data.
fn sets(writes: &[(Option<&str>, &str, Value)]) -> Data {
    data(
        writes
            .iter()
            .map(|(instance, at, value)| entry(*instance, at, Method::Set, value.clone())),
    )
}

fn read(data: &Data, at: &str) -> Option<Value> {
    data.read(&path(at), None).ok().map(Cow::into_owned)
}

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

#[test]
fn first_that_exists_and_last_once_all_exist() {
    let data = global(&[("†s", Set, json!({"a": 1, "b": null, "c": [7]}))]);
    for (expression, expect) in [
        ("†s.a", Ok(json!(1))),
        ("†s.x || †s.a", Ok(json!(1))),
        ("†s.c[0] || †s.a", Ok(json!(7))),
        ("†s.b || †s.a", Ok(Value::Null)),
        ("†s.a && †s.c", Ok(json!([7]))),
        ("†s.x || †t", Err("†s.x †t")),
        ("†s.x && †s.a", Err("†s.x")),
        ("†s.x && †s.a && †s.c[1]", Err("†s.x †s.c[1]")),
    ] {
        let resolved = data.resolve(&source(expression), None);
        let resolved = resolved.map(Cow::into_owned).map_err(|missing| {
            let paths: Vec<_> = missing.paths().map(ToString::to_string).collect();
            paths.join(" ")
        });
        assert_eq!(resolved, expect.map_err(str::to_owned), "{expression}");
    }
}

#[test]
fn what_is_missing_says_how_far_it_exists_and_what_is_there() {
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
    for (instance, at, expect) in [
        (
            None,
            "†state.user.mail",
            "†state.user.mail does not exist: †state.user has name and age",
        ),
        (
            None,
            "†state.user.mail.host",
            "†state.user.mail.host does not exist: †state.user has name and age",
        ),
        (
            Some("x"),
            "†state.user.phone",
            "†state.user has name, age and mail",
        ),
        (None, "†state.items[2]", "†state.items has 2 elements"),
        (None, "†state.items.name", "†state.items has 2 elements"),
        (None, "†state.one[1]", "†state.one has 1 element"),
        (
            None,
            "†state.one[0].x",
            "†state.one[0] is an object without fields",
        ),
        (None, "†state.none[0]", "†state.none has no elements"),
        (
            None,
            "†state.late[0].x",
            "†state.late[0].x does not exist: †state.late[0] is not written yet, only elements \
             after it are",
        ),
        (
            None,
            "†input.x",
            "†input.x does not exist: †input is a text",
        ),
        (Some("x"), "†own.x", "†own is null"),
        (None, "†many.x", &clipped),
        (None, &long, &long_message),
        (
            None,
            "†x.y",
            "there is no data of the kind x; there are state, input and many",
        ),
        (
            Some("x"),
            "†x",
            "there is no data of the kind x; there are state, input, many and own",
        ),
    ] {
        let missing = data.read(&path(at), instance).unwrap_err().to_string();
        assert!(missing.contains(expect), "{at}: {missing}");
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

#[test]
fn arguments_that_cannot_be_filled_say_every_place() {
    let data = global(&[("†s", Set, json!({"a": 1}))]);
    let waiting = json!({"a": "†s.x", "b/c": [0, {"d": "†s.y && †t"}], "e": "†s.a"});
    let unfilled = data.fill(&waiting, None).unwrap_err();
    assert_eq!(
        unfilled.to_string(),
        "/a: †s.x does not exist: †s has a; /b~1c/1/d: †s.y does not exist: †s has a; there is no \
         data of the kind t; there is only s"
    );
    let paths: Vec<_> = unfilled.paths().map(ToString::to_string).collect();
    assert_eq!(paths, ["†s.x", "†s.y", "†t"]);

    let wrong = json!(["†s.x", "† is a dagger"]);
    let unfilled = data.fill(&wrong, None).unwrap_err();
    assert_eq!(unfilled.0[1].at, "/1");
    assert!(
        unfilled
            .to_string()
            .contains("write a literal dagger as ††")
    );
    assert_eq!(unfilled.paths().count(), 0, "waiting does not help");
    let many = json!(vec!["†s.x"; 100]);
    let unfilled = data.fill(&many, None).unwrap_err();
    assert!(
        unfilled.to_string().ends_with("; and 92 more"),
        "{unfilled}"
    );
    assert_eq!(unfilled.0.len(), 100);
}

#[test]
fn references_are_no_bombs() {
    let data = global(&[
        ("†s.text", Set, json!("x".repeat(MAX_BYTES / 4))),
        (
            "†s.deep",
            Set,
            (0..90).fold(json!(1), |value, _| json!([value])),
        ),
    ]);
    let fill = |arguments: Value| data.fill(&arguments, None);
    assert!(fill(json!(vec!["†s.text"; 3])).is_ok());
    let large = fill(json!(vec!["†s.text"; 1000])).unwrap_err();
    assert!(large.to_string().contains("more than 64 MiB"), "{large}");
    assert!(fill(json!([[["†s.deep"]]])).is_ok());
    let wrapped = (0..11).fold(json!("†s.deep"), |value, _| json!([value]));
    let deep = fill(wrapped).unwrap_err();
    assert!(deep.to_string().contains("deeper than 100"), "{deep}");
    let nested = (0..101).fold(json!(1), |value, _| json!([value]));
    assert!(fill(nested).is_err());
}

#[test]
fn a_targeted_value_overrides_the_global_one_and_what_it_does_not_name_shows_through() {
    let data = sets(&[
        (
            None,
            "†input",
            json!({"topic": "tea", "lang": "en", "tags": [1, 2], "o": {"a": 1}}),
        ),
        (
            Some("x"),
            "†input",
            json!({"lang": "de", "tags": [3], "o": {"b": 2}}),
        ),
        (Some("x"), "†own", json!(1)),
        (Some("y"), "†input", json!("text")),
        (Some("z"), "†input.topic.deep", json!(1)),
        // Later than the instance's, and still below it.
        (None, "†input.lang", json!("fr")),
    ]);
    for (instance, at, expect) in [
        (None, "†input.lang", json!("fr")),
        (Some("x"), "†input.lang", json!("de")),
        (Some("x"), "†input.topic", json!("tea")),
        (Some("x"), "†input.o", json!({"a": 1, "b": 2})),
        (Some("x"), "†input.o.a", json!(1)),
        (Some("x"), "†input.tags", json!([3])),
        (
            Some("x"),
            "†input",
            json!({"topic": "tea", "lang": "de", "tags": [3], "o": {"a": 1, "b": 2}}),
        ),
        (Some("y"), "†input", json!("text")),
        (Some("z"), "†input.topic", json!({"deep": 1})),
        (Some("unknown"), "†input.topic", json!("tea")),
    ] {
        let value = data.read(&path(at), instance).map(Cow::into_owned);
        assert_eq!(value, Ok(expect), "{instance:?} {at}");
    }
    for (instance, at) in [
        (Some("x"), "†input.tags[1]"),
        (Some("y"), "†input.topic"),
        (Some("y"), "†own"),
        (None, "†own"),
    ] {
        assert!(!data.contains(&path(at), instance), "{instance:?} {at}");
    }
    assert_eq!(data.instances(), ["x", "y", "z"]);
}

#[test]
fn writes_stay_inside_the_instance() {
    let data = data([
        entry(None, "†s.l", Set, json!([1])),
        entry(Some("x"), "†s.l", Push, json!(2)),
        entry(Some("y"), "†s.l.name", Set, json!(3)),
    ]);
    let list = |instance| data.read(&path("†s.l"), instance).map(Cow::into_owned);
    assert_eq!(list(None), Ok(json!([1])));
    assert_eq!(list(Some("x")), Ok(json!([2])));
    assert_eq!(list(Some("y")), Ok(json!({"name": 3})));
}

#[test]
fn a_scope_is_what_the_list_names_and_what_of_it_is_absent() {
    let data = sets(&[
        (None, "†s", json!({"a": 1, "secret": 2})),
        (Some("x"), "†s.b", json!(3)),
    ]);
    let scope = data.scoped(&[path("†s.b"), path("†s.c"), path("†s.a")], Some("x"));
    assert_eq!(
        scope.values,
        [
            (path("†s.b"), Cow::Owned(json!(3))),
            (path("†s.a"), Cow::Owned(json!(1)))
        ]
    );
    let missing = scope.missing.unwrap();
    assert_eq!(missing.paths().collect::<Vec<_>>(), [&path("†s.c")]);
    assert_eq!(data.scoped(&[path("†s")], None).missing, None);
}

#[test]
fn an_entry_of_the_log_is_json() {
    let write = entry(Some("x"), "†s.a[1]", Concat, json!([1]));
    let text = json!({"path": "†s.a[1]", "instance": "x", "method": "concat", "value": [1]});
    assert_eq!(serde_json::to_value(&write).unwrap(), text);
    assert_eq!(serde_json::from_value::<Write>(text).unwrap(), write);
    let short: Write = serde_json::from_value(json!({"path": "†s", "value": 1})).unwrap();
    assert_eq!(short, entry(None, "†s", Set, json!(1)));
}

// Few names and short lists, so that writes meet.

fn segments(most: usize) -> impl Strategy<Value = Vec<Segment>> {
    let segment = prop_oneof![
        2 => "[ab]".prop_map(Segment::Key),
        1 => (0_usize..3).prop_map(Segment::Index),
    ];
    prop::collection::vec(segment, 0..=most)
}

fn any_path(most: usize) -> impl Strategy<Value = Path> {
    let kind = prop_oneof![4 => Just("s"), 1 => Just("t")];
    (kind, segments(most)).prop_map(|(kind, segments)| Path {
        kind: kind.to_owned(),
        segments,
    })
}

fn any_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        (0..9).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    scalar.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            2 => prop::collection::hash_map("[ab]", inner, 0..3)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_instance() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        2 => Just(None),
        2 => Just(Some("x".to_owned())),
        1 => Just(Some("y".to_owned())),
    ]
}

fn any_write() -> impl Strategy<Value = Write> {
    let method = prop::sample::select(vec![Set, Merge, Merge, Assign, Push, Push, Concat]);
    (any_path(3), any_instance(), method, any_value()).prop_map(
        |(path, instance, method, value)| Write {
            path,
            instance,
            method,
            value,
        },
    )
}

/// Every place in `value`, which stands at `path`.
fn places(value: &Value, path: Path, found: &mut Vec<Path>) {
    let below = |segment| {
        let mut path = path.clone();
        path.segments.push(segment);
        path
    };
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, item)| places(item, below(Segment::Index(index)), found)),
        Value::Object(fields) => fields
            .iter()
            .for_each(|(key, field)| places(field, below(Segment::Key(key.clone())), found)),
        _ => {}
    }
    found.push(path);
}

fn any_writes() -> impl Strategy<Value = Vec<Write>> {
    prop::collection::vec(any_write(), 0..40)
}

proptest! {
    #[test]
    fn the_index_reads_what_the_definition_says(
        writes in any_writes(),
        paths in prop::collection::vec(any_path(5), 1..24),
    ) {
        let mut data = Data::default();
        for write in writes {
            let _ = data.write(write);
        }
        for reader in [None, Some("x"), Some("y")] {
            let mut paths = paths.clone();
            for (kind, value) in data.kinds(reader) {
                places(&value, Path::root(kind), &mut paths);
            }
            for path in &paths {
                let index = data.read(path, reader).ok().map(Cow::into_owned);
                prop_assert_eq!(data.contains(path, reader), index.is_some());
                let definition = naive::read(data.log(), path, reader);
                prop_assert_eq!(index, definition, "{} in {:?} of {:?}", path, reader, data.log());
            }
        }
    }

    #[test]
    fn a_refused_write_changes_nothing(writes in any_writes()) {
        let mut data = Data::default();
        for write in writes {
            let before = data.clone();
            match data.write(write.clone()) {
                Ok(()) => prop_assert_eq!(data.log().last(), Some(&write)),
                Err(error) => {
                    prop_assert_eq!(error.path, write.path);
                    prop_assert_eq!(&data, &before);
                }
            }
        }
    }

    #[test]
    fn nothing_of_another_instance_is_visible(
        writes in any_writes(),
        paths in prop::collection::vec(any_path(5), 1..24),
    ) {
        let mut all = Data::default();
        let mut alone = Data::default();
        for write in writes {
            let accepted = all.write(write.clone());
            if write.instance.as_deref() != Some("y") {
                prop_assert_eq!(accepted, alone.write(write));
            }
        }
        for path in &paths {
            // The errors too: they list what is there.
            prop_assert_eq!(all.read(path, Some("x")), alone.read(path, Some("x")));
            prop_assert_eq!(all.read(path, None), alone.read(path, None));
        }
        prop_assert_eq!(all.kinds(Some("x")), alone.kinds(Some("x")));
        prop_assert_eq!(all.scoped(&paths, Some("x")), alone.scoped(&paths, Some("x")));
    }
}
