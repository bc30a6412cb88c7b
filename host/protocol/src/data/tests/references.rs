//! Sources, and arguments that refer to data.

use super::*;

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
