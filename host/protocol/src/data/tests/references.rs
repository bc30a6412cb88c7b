//! Sources, and arguments that refer to data.

use super::*;

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
