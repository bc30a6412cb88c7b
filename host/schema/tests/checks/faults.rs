//! What a validator finds, and that nothing makes it work without end.

use serde_json::{Value, json};
use std::net::TcpListener;
use toolhold_schema::{SchemaFault, SchemaTooCostly, Validator};

#[test]
fn faults_name_the_place_and_the_expectation() {
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n", "m"]});
    let error = Validator::new(&schema)
        .unwrap()
        .check(&json!({"n": "x"}))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("/n: \"x\" is not of type \"integer\""),
        "{error}"
    );
    assert!(error.contains("\"m\" is a required property"), "{error}");
}

#[test]
fn open_values_are_no_violation_and_known_ones_are() {
    let schema = json!({
        "type": "object",
        "properties": {
            "n": {"type": "integer", "maximum": 9},
            "list": {"type": "array", "items": {"type": "number"}, "minItems": 2, "uniqueItems": true},
            "way": {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"to": {"type": "integer"}, "by": {"type": "integer"}}, "required": ["to"]}]},
            "pair": {"const": {"a": 1, "b": 2}},
            "mode": {"enum": ["x", "y"]},
        },
        "if": {"properties": {"mode": {"not": {"const": "y"}}}, "required": ["mode"]},
        "then": {"required": ["n"]},
        "required": ["list"],
        "additionalProperties": false,
    });
    let validator = Validator::new(&schema).unwrap();
    for (value, open, expect) in [
        (json!({"list": "†l", "n": "†n"}), vec!["/list", "/n"], ""),
        (json!({"list": "†l", "n": "†n"}), vec!["/list"], "/n: "),
        (
            json!({"list": ["†a", "†a"]}),
            vec!["/list/0", "/list/1"],
            "",
        ),
        (json!({"list": ["†a", "x"]}), vec!["/list/0"], "/list/1: "),
        (json!({"list": ["†a"]}), vec!["/list/0"], "/list: "),
        (
            json!({"list": "†l", "way": {"to": "†t"}}),
            vec!["/list", "/way/to"],
            "",
        ),
        (
            json!({"list": "†l", "way": {"to": "†t", "by": "x"}}),
            vec!["/list", "/way/to"],
            "/way: ",
        ),
        (
            json!({"list": "†l", "way": "†w"}),
            vec!["/list", "/way"],
            "",
        ),
        (
            json!({"list": "†l", "pair": {"a": "†a", "b": 2}}),
            vec!["/list", "/pair/a"],
            "",
        ),
        (
            json!({"list": "†l", "pair": {"a": 1, "b": 3}}),
            vec!["/list"],
            "/pair: ",
        ),
        (
            json!({"list": "†l", "mode": "†m"}),
            vec!["/list", "/mode"],
            "",
        ),
        (json!({"list": "†l", "mode": "z"}), vec!["/list"], "/mode: "),
        (
            json!({"n": "†n"}),
            vec!["/n"],
            ": \"list\" is a required property",
        ),
        (
            json!({"list": "†l", "more": "†m"}),
            vec!["/list", "/more"],
            ": Additional properties",
        ),
    ] {
        let faults = validator.faults(&value, &open).unwrap();
        let faults: Vec<_> = faults
            .iter()
            .map(|f| format!("{}: {}", f.pointer, f.reason))
            .collect();
        if expect.is_empty() {
            assert_eq!(faults, [""; 0], "{value}");
        } else {
            assert!(
                faults.len() == 1 && faults[0].starts_with(expect),
                "{value}: {faults:?}"
            );
        }
    }
}

#[test]
fn nothing_is_fetched() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let address = server.local_addr().unwrap();
    // JSON that is there, so that reading it would make a schema.
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/scenarios/answer.json"
    );
    assert!(std::path::Path::new(file).is_file());
    for outside in [
        format!("http://{address}/answer.json"),
        format!("https://{address}/answer.json"),
        format!("file://{file}"),
    ] {
        for schema in [
            json!({"$ref": outside}),
            json!({"$id": outside, "$ref": "other.json"}),
            json!({"properties": {"a": {"$ref": format!("{outside}#/replies/0")}}}),
        ] {
            let fault = Validator::new(&schema).unwrap_err();
            let SchemaFault::TooCostly(SchemaTooCostly::Elsewhere { reference, .. }) = &fault
            else {
                panic!("{schema}: {fault}");
            };
            assert!(reference.contains(".json"), "{schema}: {fault}");
        }
        let fault = Validator::new(&json!({"$schema": outside})).unwrap_err();
        assert!(matches!(fault, SchemaFault::Invalid(_)), "{fault}");
    }
    let came = server.accept().map(|(_, from)| from);
    assert_eq!(came.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn an_ordinary_list_takes_a_small_part_of_the_steps() {
    // `docs/security.md` says so.
    let schema = json!({"type": "array", "items": {"type": "number"}});
    let validator = Validator::new(&schema).unwrap();
    let numbers: Value = (0..500_000).map(Value::from).collect();
    assert_eq!(validator.first_misfit([&numbers], 8), Ok(None));
}

/// The names in the place of a fault may be the caller's, and as long as it likes.
#[test]
fn what_is_told_of_long_names_is_bounded() {
    let schema = json!({"additionalProperties": {"type": "integer"}});
    let validator = Validator::new(&schema).unwrap();
    let (short, long) = ("n".repeat(150), "n".repeat(100_000));
    let told = |value: &Value| validator.check(value).unwrap_err().to_string();
    assert!(told(&json!({short.as_str(): "x"})).starts_with(&format!("/{short}: ")));
    assert_eq!(
        told(&json!({long.as_str(): "x"})),
        "/…: \"x\" is not of type \"integer\""
    );
}
