//! Instances, scopes, and the entries themselves.

use super::*;

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
