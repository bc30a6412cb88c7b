//! Rule 2.6: how a solution moves the version forward.

use serde_json::{Value, json};
use toolhold_protocol::meta::{Meta, MetaError, check};

fn meta(value: Value) -> Meta {
    serde_json::from_value(value).unwrap()
}

fn at(version: &str) -> Meta {
    meta(json!({"version": version}))
}

#[test]
fn a_bump_or_a_branch_moves_forward() {
    for (rule, before, branches, after) in [
        ("2.6", "1.2.3", json!([]), "1.3.0"),
        ("2.6", "0.0.0", json!([]), "0.1.0"),
        ("2.6", "1.9.0", json!([]), "1.10.0"),
        ("2.6", "1.2.3", json!([]), "1.2.3.branch.1"),
        ("2.6", "1.2.3", json!([]), "1.2.3.branch.9"),
        ("2.6", "1.2.3", json!([1]), "1.2.3.branch.2"),
        ("2.6", "1.2.3", json!([5]), "1.2.3.branch.2"),
        (
            "2.6",
            "1.2.3",
            json!(["1.2.2.branch.1", "branch.1", {"version": "1.2.3.branch.1"}]),
            "1.2.3.branch.1",
        ),
        ("2.6", "1.2.3.branch.1", json!([]), "1.3.0"),
        ("2.6", "1.2.3", json!([]), "1.2.4"),
        ("2.6", "1.9.9", json!([]), "1.9.10"),
        ("2.6", "1.2.3", json!([]), "2.0.0"),
        ("2.6", "1.2.3.branch-A.4", json!([]), "1.2.4"),
        ("2.6", "1.2.3", json!(["branch-A"]), "1.2.3.branch-A.1"),
        ("2.6", "1.2.3", json!([]), "1.2.3.branch-A.1"),
        (
            "2.6",
            "1.2.3",
            json!(["1.2.3.branch-A.1"]),
            "1.2.3.branch-B.1",
        ),
        ("2.6", "1.2.3", json!([1]), "1.2.3.branch-A.1"),
        ("2.6", "1.2.3.branch-A.1", json!([]), "1.2.3.branch-A.2"),
        ("2.6", "1.2.3", json!(["staging"]), "1.2.staging.1"),
        ("2.6", "1.2.3", json!(["1.2.staging.1"]), "1.2.staging.2"),
        ("2.6", "1.2.3", json!(["1.2.3.staging.1"]), "1.2.staging.1"),
        ("2.6", "1.2.staging.1", json!([]), "1.2.staging.2"),
        ("2.6", "1.2.staging.1", json!([]), "1.3.0"),
        ("2.6", "1.2.3.branch.1", json!([]), "1.2.3.branch.2"),
    ] {
        let before = meta(json!({"version": before, "branches": branches}));
        let checked = check(&before, &json!({"version": after}));
        assert_eq!(
            checked.unwrap().version.to_string(),
            after,
            "{rule}: {before:?}"
        );
    }
}

#[test]
fn every_other_version_is_refused_with_what_would_be_accepted() {
    let both = "write \"1.3.0\", \"1.2.4\" or \"2.0.0\", or \"1.2.3.branch.1\" for a branch (a new branch may have \
                another label)";
    for (rule, before, branches, after, expect, accepted) in [
        (
            "2.6",
            "1.2.3",
            json!([]),
            json!("1.2.3"),
            "is the current version",
            both,
        ),
        (
            "2.6",
            "1.2.3",
            json!([]),
            json!("1.2.2"),
            "is before the current",
            both,
        ),
        ("2.6", "1.2.3", json!([]), json!("1.1.9"), "is before", both),
        ("2.6", "1.2.3", json!([]), json!("0.3.0"), "is before", both),
        (
            "2.6",
            "1.2.3",
            json!([]),
            json!("1.2.2.branch.1"),
            "is before",
            both,
        ),
        (
            "2.6",
            "1.2.3",
            json!([]),
            json!("1.2.5"),
            "is not the next version after 1.2.3",
            both,
        ),
        (
            "2.6",
            "1.2.3",
            json!([]),
            json!("1.3.1"),
            "is not the next",
            both,
        ),
        (
            "2.6",
            "1.2.3",
            json!([]),
            json!("1.3.3"),
            "is not the next",
            both,
        ),
        (
            "2.6",
            "1.2.3",
            json!([]),
            json!("1.4.0"),
            "is not the next",
            both,
        ),
        (
            "2.6",
            "1.2.3",
            json!([]),
            json!("3.0.0"),
            "is not the next",
            both,
        ),
        (
            "2.6",
            "1.2.3",
            json!([]),
            json!("1.3.0.branch.1"),
            "is not the next",
            both,
        ),
        (
            "2.6",
            "1.2.3",
            json!([]),
            json!("next"),
            "\"next\" is no version",
            both,
        ),
        (
            "2.6",
            "1.2.3",
            json!([]),
            json!(1.3),
            "\"1.3\" is no version",
            both,
        ),
        (
            "2.6",
            "1.2.3",
            json!([]),
            Value::Null,
            "with the next version",
            both,
        ),
        (
            "2.6",
            "1.2.3",
            json!([1, "1.2.3.branch.4"]),
            json!("1.2.3.branch.4"),
            "the branch 1.2.3.branch.4 exists",
            "\"1.2.3.branch.5\"",
        ),
        (
            "2.6",
            "1.2.3",
            json!([1]),
            json!("1.2.3.branch.1"),
            "exists",
            "\"1.2.3.branch.2\"",
        ),
        (
            "2.6",
            "1.2.3.branch.3",
            json!([]),
            json!("1.2.3"),
            "is before",
            "\"1.2.3.branch.4\"",
        ),
        (
            "2.6",
            "1.2.3.branch.3",
            json!([]),
            json!("1.2.3.branch.2"),
            "is before",
            "\"1.3.0\"",
        ),
        (
            "2.6",
            "1.2.3.branch.3",
            json!([]),
            json!("1.2.3.branch.3"),
            "is the current",
            "\"1.3.0\"",
        ),
        (
            "2.6",
            "1.2.3",
            json!([]),
            json!("1.2.4.branch-A.1"),
            "is not the next",
            both,
        ),
        (
            "2.6",
            "1.2.3",
            json!([]),
            json!("1.3.staging.1"),
            "is not the next",
            both,
        ),
        (
            "2.6",
            "1.2.3",
            json!([]),
            json!("1.2.3.branch_A.1"),
            "\"1.2.3.branch_A.1\" is no version",
            both,
        ),
        (
            "2.6",
            "1.2.3.branch-A.2",
            json!(["branch-B"]),
            json!("1.2.3.branch-B.1"),
            "is on another branch than the current version 1.2.3.branch-A.2",
            "write \"1.3.0\", \"1.2.4\" or \"2.0.0\", or \"1.2.3.branch-A.3\" for a branch",
        ),
        (
            "2.6",
            "1.2.3.branch-A.2",
            json!([]),
            json!("1.2.staging.1"),
            "is not the next",
            "\"1.2.3.branch-A.3\"",
        ),
        (
            "2.6",
            "1.2.staging.1",
            json!([]),
            json!("1.2.4"),
            "is before the current version 1.2.staging.1",
            "write \"1.3.0\" or \"2.0.0\", or \"1.2.staging.2\" for a branch",
        ),
        (
            "2.6",
            "1.2.3",
            json!(["1.2.staging.1"]),
            json!("1.2.staging.1"),
            "the branch 1.2.staging.1 exists",
            "\"1.2.staging.2\"",
        ),
    ] {
        let before = meta(json!({"version": before, "branches": branches}));
        let error = check(&before, &json!({"version": after}))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(expect) && error.contains(accepted),
            "{rule}: {after}: {error}"
        );
    }
    for after in [Value::Null, json!([]), json!("1.3.0"), json!({})] {
        let error = check(&at("1.2.3"), &after).unwrap_err();
        assert!(
            matches!(error, MetaError::Missing { .. }),
            "2.6: {after}: {error}"
        );
    }
}

#[test]
fn a_solution_cannot_say_that_it_is_of_something_else() {
    let before = meta(json!({"domain": "d", "path": "p", "version": "1.2.3"}));
    for (rule, after, expect) in [
        (
            "2.6",
            json!({"version": "1.3.0", "domain": "e"}),
            "meta/domain must stay \"d\"",
        ),
        (
            "2.6",
            json!({"version": "1.3.0", "path": 7}),
            "meta/path must stay \"p\"",
        ),
        (
            "2.6",
            json!({"version": "1.3.0", "createdAt": 7}),
            "correct the field",
        ),
    ] {
        let error = check(&before, &after).unwrap_err().to_string();
        assert!(error.contains(expect), "{rule}: {error}");
    }
    let named = check(&at("1.2.3"), &json!({"version": "1.3.0", "domain": "new"})).unwrap();
    assert_eq!(named.domain.as_deref(), Some("new"));
}
