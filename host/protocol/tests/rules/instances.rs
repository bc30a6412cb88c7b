//! Section 9: instances, and what a scope lets a call see of them.

use super::{data, entry, path, sets};
use serde_json::json;
use std::borrow::Cow;
use toolhold_protocol::data::Method::{Push, Set};

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
    for (rule, instance, at, expect) in [
        ("9.1", None, "†input.lang", json!("fr")),
        ("9.1", Some("x"), "†input.lang", json!("de")),
        ("9.1", Some("x"), "†input.topic", json!("tea")),
        ("9.1", Some("x"), "†input.o", json!({"a": 1, "b": 2})),
        ("9.1", Some("x"), "†input.o.a", json!(1)),
        ("9.1", Some("x"), "†input.tags", json!([3])),
        (
            "9.1",
            Some("x"),
            "†input",
            json!({"topic": "tea", "lang": "de", "tags": [3], "o": {"a": 1, "b": 2}}),
        ),
        ("9.1", Some("y"), "†input", json!("text")),
        ("9.1", Some("z"), "†input.topic", json!({"deep": 1})),
        ("9.1", Some("unknown"), "†input.topic", json!("tea")),
    ] {
        let value = data.read(&path(at), instance).map(Cow::into_owned);
        assert_eq!(value, Ok(expect), "{rule}: {instance:?} {at}");
    }
    for (rule, instance, at) in [
        ("5.7", Some("x"), "†input.tags[1]"),
        ("5.7", Some("y"), "†input.topic"),
        ("5.7", Some("y"), "†own"),
        ("5.7", None, "†own"),
    ] {
        assert!(
            !data.contains(&path(at), instance),
            "{rule}: {instance:?} {at}"
        );
    }
    assert_eq!(data.instances(), ["x", "y", "z"]);
}

/// Rule "9.2".
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

/// Rule "3.6".
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
