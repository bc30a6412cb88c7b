use super::*;
use proptest::prelude::*;
use serde_json::json;
use toolhold_schema::Validator;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "x": {"type": ["number", "null"]},
            "b": {"type": "boolean"},
            "s": {"type": "string"},
            "l": {"type": "array", "items": {"type": "integer"}},
            "p": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}]},
            "o": {"$ref": "#/$defs/o"},
            "m": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "e": {"enum": ["a", "b"], "default": "a"},
            "f": {"enum": [1, 2]},
            "c": {"const": true},
            "t": {"type": "object", "additionalProperties": {"type": "number"}},
            "y": {"type": ["array", "null"]},
            "d": {"type": "integer", "default": 7},
            "a~/b": {"type": "integer"},
        },
        "required": ["d"],
        "$defs": {"o": {"type": "object", "properties": {"n": {"type": "integer"}, "r": {"default": "z"}}, "required": ["r"]}},
    })
}

/// Section 7 of the protocol, case by case.
#[test]
fn light_faults_are_put_right() {
    let filled = ["/d: the default was filled in"];
    for (given, expect, repairs) in [
        // A number in a text, and what else is written as another type.
        (
            json!({"n": "5"}),
            json!({"n": 5}),
            &[RepairKind::NumberAsText.at("/n")][..],
        ),
        (
            json!({"n": " -5 "}),
            json!({"n": -5}),
            &[RepairKind::NumberAsText.at("/n")],
        ),
        (
            json!({"n": "5.0"}),
            json!({"n": 5}),
            &[RepairKind::NumberAsText.at("/n")],
        ),
        (
            json!({"x": "1.5"}),
            json!({"x": 1.5}),
            &[RepairKind::NumberAsText.at("/x")],
        ),
        (
            json!({"m": "3"}),
            json!({"m": 3}),
            &[RepairKind::NumberAsText.at("/m")],
        ),
        (
            json!({"f": "2"}),
            json!({"f": 2}),
            &[RepairKind::NumberAsText.at("/f")],
        ),
        (
            json!({"a~/b": "1"}),
            json!({"a~/b": 1}),
            &[RepairKind::NumberAsText.at("/a~0~1b")],
        ),
        (
            json!({"t": {"k": "1"}}),
            json!({"t": {"k": 1}}),
            &[RepairKind::NumberAsText.at("/t/k")],
        ),
        (
            json!({"n": 5.0}),
            json!({"n": 5}),
            &[RepairKind::WholeNumberAsFraction.at("/n")],
        ),
        (
            json!({"s": 5}),
            json!({"s": "5"}),
            &[RepairKind::TextAsNumber.at("/s")],
        ),
        (
            json!({"s": u64::MAX}),
            json!({"s": "18446744073709551615"}),
            &[RepairKind::TextAsNumber.at("/s")],
        ),
        (
            json!({"s": i64::MIN}),
            json!({"s": "-9223372036854775808"}),
            &[RepairKind::TextAsNumber.at("/s")],
        ),
        (
            json!({"b": "true"}),
            json!({"b": true}),
            &[RepairKind::BooleanAsText.at("/b")],
        ),
        (
            json!({"b": "False"}),
            json!({"b": false}),
            &[RepairKind::BooleanAsText.at("/b")],
        ),
        (
            json!({"c": "true"}),
            json!({"c": true}),
            &[RepairKind::BooleanAsText.at("/c")],
        ),
        (
            json!({"p": ["1", "True"]}),
            json!({"p": [1, true]}),
            &[
                RepairKind::NumberAsText.at("/p/0"),
                RepairKind::BooleanAsText.at("/p/1"),
            ],
        ),
        (
            json!({"x": "null"}),
            json!({"x": null}),
            &[RepairKind::NullAsText.at("/x")],
        ),
        (
            json!({"m": "None"}),
            json!({"m": null}),
            &[RepairKind::NullAsText.at("/m")],
        ),
        (
            json!({"l": "[1,2]"}),
            json!({"l": [1, 2]}),
            &[RepairKind::JsonAsText.at("/l")],
        ),
        (
            json!({"o": "{\"n\": \"1\", \"r\": 1}"}),
            json!({"o": {"n": 1, "r": 1}}),
            &[
                RepairKind::JsonAsText.at("/o"),
                RepairKind::NumberAsText.at("/o/n"),
            ],
        ),
        // A missing default.
        (
            json!({"o": {}}),
            json!({"o": {"r": "z"}}),
            &[RepairKind::MissingDefault.at("/o/r")],
        ),
        // A null for what should be absent.
        (
            json!({"n": null}),
            json!({}),
            &[RepairKind::NullForAbsent.at("/n")],
        ),
        (
            json!({"e": null}),
            json!({"e": "a"}),
            &[RepairKind::NullForDefault.at("/e")],
        ),
        // A single value where a list is due.
        (
            json!({"l": 5}),
            json!({"l": [5]}),
            &[RepairKind::SingleForList.at("/l")],
        ),
        (
            json!({"y": {"k": 1}}),
            json!({"y": [{"k": 1}]}),
            &[RepairKind::SingleForList.at("/y")],
        ),
        (
            json!({"l": "5"}),
            json!({"l": [5]}),
            &[
                RepairKind::SingleForList.at("/l"),
                RepairKind::NumberAsText.at("/l/0"),
            ],
        ),
        (
            json!({"l": ["5", 6]}),
            json!({"l": [5, 6]}),
            &[RepairKind::NumberAsText.at("/l/0")],
        ),
    ] {
        let coerced = coerce(&schema(), &given).unwrap();
        let mut expect = expect;
        expect["d"] = json!(7);
        assert_eq!(coerced.arguments, expect, "{given}");
        let told: Vec<_> = coerced.repairs.iter().map(ToString::to_string).collect();
        let mut expected: Vec<_> = repairs.iter().map(ToString::to_string).collect();
        let at = told.iter().position(|repair| *repair == filled[0]).unwrap();
        expected.insert(at, filled[0].into());
        assert_eq!(told, expected, "{given}");
        assert_eq!(
            Validator::new(&schema()).unwrap().check(&coerced.arguments),
            Ok(()),
            "{given}"
        );
    }
}

#[test]
fn ambiguous_input_is_left_unchanged() {
    for given in [
        json!({"n": "five"}),
        json!({"n": "0x5"}),
        json!({"n": "+5"}),
        json!({"n": "5 apples"}),
        json!({"n": ""}),
        json!({"n": "null"}),
        json!({"n": 5.5}),
        json!({"n": "1e300"}),
        json!({"n": true}),
        json!({"n": [5]}),
        json!({"b": "yes"}),
        json!({"b": "TRUE"}),
        json!({"b": 1}),
        json!({"s": true}),
        json!({"s": "5"}),
        json!({"s": "null"}),
        json!({"s": {"a": 1}}),
        json!({"x": null}),
        json!({"m": null}),
        json!({"y": null}),
        json!({"e": "A"}),
        json!({"f": "one"}),
        json!({"c": "maybe"}),
        json!({"o": "{\"r\": 1, \"r\": 2}"}),
        json!({"o": "not JSON"}),
        json!({"unknown": "5"}),
        json!("text"),
    ] {
        let mut given = given;
        if let Some(fields) = given.as_object_mut() {
            fields.insert("d".into(), json!(1));
        }
        assert_eq!(coerce(&schema(), &given), None, "{given}");
    }
}

/// What was read of a number is not how it was written, and a text is taken as it is.
#[test]
fn a_number_becomes_a_text_only_if_nothing_of_it_is_lost() {
    for written in ["3.10", "3.0", "1e3", "-0", "1234567890123456789012345"] {
        let given = format!("{{\"d\": 1, \"s\": {written}}}");
        let given: Value = serde_json::from_str(&given).unwrap();
        assert_eq!(coerce(&schema(), &given), None, "{written}");
        assert!(Validator::new(&schema()).unwrap().check(&given).is_err());
    }
}

/// With the maximum number of faults, the report is bounded and every fault is repaired.
#[test]
fn reported_faults_are_bounded() {
    let given = json!({"d": 1, "l": vec!["1"; 1_000]});
    let coerced = coerce(&schema(), &given).unwrap();
    assert_eq!(coerced.arguments["l"], json!(vec![1; 1_000]));
    assert_eq!(coerced.repairs.len(), MAX_REPORTED_REPAIRS);
}

#[test]
fn references_in_a_circle_end() {
    let schema = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}});
    assert_eq!(coerce(&schema, &json!({"a": 1})), None);
}

proptest! {
    /// What is valid has nothing to put right.
    #[test]
    fn valid_arguments_are_left(n in any::<i64>(), s in ".{0,8}", l in proptest::collection::vec(any::<i64>(), 0..3), b in any::<bool>()) {
        let given = json!({"n": n, "s": s, "l": l, "b": b, "d": 1, "o": {"n": n, "r": 1}});
        prop_assert_eq!(coerce(&schema(), &given), None);
    }
}

#[test]
fn a_large_schema_does_not_multiply_with_large_arguments() {
    let properties: Map<String, Value> = (0..2_000)
        .map(|at| (format!("p{at}"), json!({"type": "integer"})))
        .collect();
    let branches: Vec<Value> = (0..2_000).map(|at| json!({"enum": [at]})).collect();
    let default = json!("x".repeat(50_000));
    for (name, item) in [
        (
            "properties",
            json!({"type": "object", "properties": properties}),
        ),
        ("branches", json!({"anyOf": branches})),
        (
            "defaults",
            json!({"properties": {"a": {"default": default}}, "required": ["a"]}),
        ),
    ] {
        let schema = json!({"items": item, "type": "array"});
        let start = std::time::Instant::now();
        assert_eq!(
            coerce(&schema, &json!(vec![json!({}); 50_000])),
            None,
            "{name}"
        );
        let taken = start.elapsed();
        assert!(taken.as_secs() < 5, "{name}: {taken:?}");
    }
}

#[test]
fn another_notation_is_read_and_the_change_is_told() {
    let schema = json!({"type": "object", "properties": {
        "price": {"type": "number"},
        "count": {"type": "integer"},
        "day": {"type": "string", "format": "date"},
        "at": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
        "days": {"type": "array", "items": {"type": "string", "format": "date"}},
        "own": {"type": "string", "format": "date", "pattern": "^[0-9/]+$"},
    }});
    let given = json!({
        "price": "1.234,50", "count": "1,234,567", "day": "3 May 2026", "at": "2026-05-03 14:30Z",
        "days": ["25/03/2026", "2026-03-26"], "own": "3/5/2026",
    });
    let coerced = coerce(&schema, &given).unwrap();
    let expect = json!({
        "price": 1234.5, "count": 1_234_567, "day": "2026-05-03", "at": "2026-05-03T14:30:00Z",
        "days": ["2026-03-25", "2026-03-26"], "own": "3/5/2026",
    });
    assert_eq!(coerced.arguments, expect);
    let told: Vec<_> = coerced.repairs.iter().map(ToString::to_string).collect();
    let number = "a number was written in another notation";
    let date = "a date or a time was written in another notation";
    assert_eq!(
        told,
        [
            format!("/price: {number} (\"1.234,50\" → \"1234.5\")"),
            format!("/count: {number} (\"1,234,567\" → \"1234567\")"),
            format!("/day: {date} (\"3 May 2026\" → \"2026-05-03\")"),
            format!("/at: {date} (\"2026-05-03 14:30Z\" → \"2026-05-03T14:30:00Z\")"),
            format!("/days/0: {date} (\"25/03/2026\" → \"2026-03-25\")"),
        ]
    );
    assert_eq!(coerced.unclear, [""; 0]);
    // A fraction is no integer, in any notation.
    assert_eq!(coerce(&schema, &json!({"count": "1,234.5"})), None);
    assert_eq!(
        coerce(&schema, &json!({"count": "1.234,0"}))
            .unwrap()
            .arguments["count"],
        1234
    );
}

/// As the documents' own schema says what a date is.
#[test]
fn statement_000_36_a_date_is_put_right_under_a_pattern() {
    let pattern = r"^\d{4}-\d{2}-\d{2}$";
    let schema = json!({"type": "object", "properties": {
        "day": {"type": "string", "pattern": pattern},
        "both": {"type": "string", "format": "date", "pattern": pattern},
        "end": {"anyOf": [{"type": "string", "pattern": pattern}, {"type": "null"}]},
        "code": {"type": "string", "pattern": "^[A-Z0-9-]+$"},
    }});
    let given = json!({
        "day": "25.09.2025", "both": "1 September 2025", "end": "2025/9/2", "code": "3 May 2026",
    });
    let coerced = coerce(&schema, &given).unwrap();
    let expect = json!({
        "day": "2025-09-25", "both": "2025-09-01", "end": "2025-09-02", "code": "3 May 2026",
    });
    assert_eq!(coerced.arguments, expect);
    let kinds: Vec<_> = coerced.repairs.iter().map(|repair| repair.kind).collect();
    assert_eq!(kinds, [RepairKind::DateNotation; 3]);
    let coerced = coerce(&schema, &json!({"day": "05/03/2026"})).unwrap();
    let [why] = &coerced.unclear[..] else {
        panic!("{:?}", coerced.unclear)
    };
    assert!(
        why.contains("2026-03-05") && why.contains("2026-05-03"),
        "{why}"
    );
}

#[test]
fn places_that_stand_for_unknown_values_are_left() {
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "integer"}, "ids": {"type": "array"}, "of": {"type": "array"},
    }});
    let given = json!({"n": "5", "ids": "†data.ids", "of": "one"});
    let coerced = coerce_but_for(ReadingRules::Current, &schema, &given, &["/ids"]).unwrap();
    let expect = json!({"n": 5, "ids": "†data.ids", "of": ["one"]});
    assert_eq!(coerced.arguments, expect);
}

#[test]
fn an_ambiguous_notation_is_left_and_the_reason_told() {
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "integer"}, "day": {"type": "string", "format": "date"},
    }});
    let given = json!({"n": "1,000", "day": "05/03/2026"});
    let coerced = coerce(&schema, &given).unwrap();
    assert_eq!((&coerced.arguments, &*coerced.repairs), (&given, &[][..]));
    let [number, day] = &coerced.unclear[..] else {
        panic!("{:?}", coerced.unclear)
    };
    assert!(
        number.starts_with("/n: ") && number.contains("1.000"),
        "{number}"
    );
    assert!(
        day.starts_with("/day: ") && day.contains("2026-03-05"),
        "{day}"
    );
    let many = json!({"type": "array", "items": {"type": "number"}});
    let coerced = coerce(&many, &json!(vec!["1,000"; 1_000])).unwrap();
    assert_eq!(coerced.unclear.len(), MAX_REPORTED_REPAIRS);
}

/// The names in a place may be the caller's, and as long as it likes.
#[test]
fn what_is_told_of_long_names_is_bounded() {
    let schema = json!({"additionalProperties": {"type": "array", "items": {"type": "number"}}});
    let name = "n".repeat(100_000);
    for text in ["1,000", "1,000,000", "5"] {
        let given = json!({name.as_str(): vec![text; 40]});
        let coerced = coerce(&schema, &given).unwrap();
        assert_eq!(coerced.repairs.len() + coerced.unclear.len(), 32);
        let told = coerced.repairs.iter().map(ToString::to_string);
        let told: Vec<String> = told.chain(coerced.unclear).collect();
        assert!(told.iter().all(|one| one.len() < 500), "{}", told[0]);
    }
}

/// What is valid is changed only where nothing but a format says what is expected.
#[test]
fn of_valid_arguments_only_dates_are_read() {
    let date = json!({"type": "string", "format": "date"});
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "day": date, "n": {"type": "integer"}, "d": {"type": "integer", "default": 7},
            "ref": {"$ref": "#/$defs/date"},
            "own": {"$ref": "#/$defs/date", "pattern": "^[0-9/]+$"},
            "either": {"anyOf": [date, {"type": "null"}], "enum": ["3 May 2026", null]},
            "all": {"type": "string", "format": "date", "allOf": [{"minLength": 8}]},
            "named": {
                "type": "object", "patternProperties": {"^note": {"type": "string"}},
                "additionalProperties": date,
            },
        },
        "$defs": {"date": date},
    });
    let given = json!({
        "day": "3 May 2026", "n": 5.0, "ref": "4 May 2026", "own": "05/03/2026", "either": "3 May 2026",
        "all": "3 May 2026", "named": {"note1": "05/03/2026", "note2": "3 May 2026"},
    });
    let validator = Validator::new(&schema).unwrap();
    assert_eq!(validator.check(&given), Ok(()));
    let coerced = coerce_dates(ReadingRules::Current, &schema, &given, &[]).unwrap();
    let told: Vec<_> = coerced.repairs.iter().map(|repair| &*repair.at).collect();
    assert_eq!(told, ["/day", "/ref"]);
    assert_eq!(coerced.unclear, [""; 0]);
    assert_eq!(coerced.arguments["day"], "2026-05-03");
    assert_eq!(
        coerce_dates(
            ReadingRules::Current,
            &schema,
            &json!({"n": "5", "d": null}),
            &[]
        ),
        None
    );
}
