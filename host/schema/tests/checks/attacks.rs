//! Schemas and values that are made to cost much: each ends soon, with a word of its own.

use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};
use toolhold_schema::{CheckError, CheckTooCostly, SchemaFault, Validator};

/// Maximum time of one schema and value, on a slow machine beside other tests.
const MOST: Duration = Duration::from_secs(10);
/// The only fault, where none could be told.
const SOMEWHERE: &str =
    "it does not fit the schema, and to find out where takes more work than one check may take";
/// The share of one check's steps that is a hundred of them.
const SHARE_OF_FEW_STEPS: usize = 160_000;
/// Bytes of stack that all of it must do with: less than a worker has.
const STACK: usize = 1 << 20;

fn chain(
    name: &str,
    length: usize,
    link: impl Fn(&str) -> Value,
    end: Value,
) -> Map<String, Value> {
    let mut definitions: Map<String, Value> = (0..length)
        .map(|index| {
            (
                format!("{name}{index}"),
                link(&format!("#/$defs/{name}{}", index + 1)),
            )
        })
        .collect();
    definitions.insert(format!("{name}{length}"), end);
    definitions
}

fn nested(levels: usize, mut value: Value, wrap: impl Fn(Value) -> Value) -> Value {
    for _ in 0..levels {
        value = wrap(value);
    }
    value
}

fn twice(reference: &str) -> Value {
    json!({"allOf": [{"$ref": reference}, {"$ref": reference}]})
}

/// What becomes of `value` under `schema`, found out in time and on a small stack.
fn checked(name: &str, schema: Value, value: Value) -> Result<Result<(), CheckError>, SchemaFault> {
    let work = move || {
        let start = Instant::now();
        let found = Validator::new(&schema).map(|validator| validator.check(&value));
        (found, start.elapsed())
    };
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(work);
    let (found, taken) = thread.unwrap().join().unwrap();
    assert!(taken < MOST, "{name}: {taken:?}");
    found
}

fn numbers(count: u64) -> Value {
    (0..count).map(Value::from).collect()
}

fn lists(levels: usize) -> Value {
    nested(levels, json!(1), |inner| json!([inner]))
}

fn objects(levels: usize) -> Value {
    nested(levels, json!({"x": 1}), |inner| json!({"a": inner}))
}

/// Objects with `count` members each of `make`.
fn map(count: usize, make: impl Fn(usize) -> (String, Value)) -> Value {
    (0..count).map(make).collect::<Map<_, _>>().into()
}

fn list(count: usize, make: impl Fn(usize) -> Value) -> Value {
    (0..count).map(make).collect()
}

#[test]
fn schemas_that_multiply_are_refused() {
    let copies = |end| json!({"$ref": "#/$defs/a0", "$defs": chain("a", 20, twice, end)});
    let mut tracked = copies(json!({"properties": {"a": {}}}));
    tracked["unevaluatedProperties"] = json!(false);
    let conditions =
        |next: &str| json!({"if": {"$ref": next}, "then": {"$ref": next}, "else": {"$ref": next}});
    let dependent =
        |next: &str| json!({"dependentSchemas": {"a": {"$ref": next}, "b": {"$ref": next}}});
    let long = "a".repeat(20_000);
    for (name, schema, expect) in [
        ("allOf", copies(json!({})), "more than 16384 entries"),
        (
            "long allOf",
            json!({"$ref": "#/$defs/a0", "$defs": chain("a", 36, twice, json!({}))}),
            "",
        ),
        ("unevaluatedProperties", tracked, "more than 16384 entries"),
        (
            "nested unevaluatedProperties",
            nested(
                25,
                json!({}),
                |inner| json!({"allOf": [inner], "unevaluatedProperties": false}),
            ),
            "apply to too many schemas",
        ),
        (
            "if",
            json!({"$ref": "#/$defs/a0", "$defs": chain("a", 20, conditions, json!({}))}),
            "more than 16384 entries",
        ),
        (
            "dependentSchemas",
            json!({"$ref": "#/$defs/a0", "$defs": chain("a", 20, dependent, json!({}))}),
            "more than 16384 entries",
        ),
        (
            "chain",
            json!({"$ref": "#/$defs/a0", "$defs": chain("a", 5_000, |next| json!({"$ref": next}), json!({}))}),
            "shorten the chain",
        ),
        ("itself", json!({"$ref": "#"}), "without end"),
        (
            "itself by not",
            json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}),
            "without end",
        ),
        (
            "itself by $dynamicRef",
            json!({"$dynamicAnchor": "n", "anyOf": [{"$dynamicRef": "#n"}]}),
            "without end",
        ),
        (
            "itself by $id",
            json!({"$id": "http://a/b", "anyOf": [{"$ref": "b"}]}),
            "without end",
        ),
        (
            "itself by %",
            json!({"$defs": {"a b": {"anyOf": [{"$ref": "#/%24defs/a%20b"}]}}, "$ref": "#/$defs/a%20b"}),
            "without end",
        ),
        (
            "deep",
            nested(2_000, json!({}), |inner| json!({"items": inner})),
            "levels deep",
        ),
        ("bytes", json!({"description": long.repeat(20)}), "bytes"),
        ("values", json!({"enum": numbers(200_000)}), "values"),
        (
            "long names above many",
            json!({"properties": {long: {"allOf": list(2_000, |_| json!({"minLength": 1}))}}}),
            "long names",
        ),
        (
            "nested not",
            nested(
                30,
                json!({"enum": numbers(20_000)}),
                |inner| json!({"not": inner}),
            ),
            "\"not\" are too large",
        ),
        (
            "resources",
            json!({"$ref": "r0", "$defs": map(8, |at| {
                let links = list(8, |to| json!({"$ref": format!("r{to}")}));
                (format!("r{at}"), json!({"$id": format!("r{at}"), "items": {"anyOf": links}}))
            })}),
            "\"$id\" of their own",
        ),
        (
            "elsewhere",
            json!({"$ref": "http://127.0.0.1:9/schema.json"}),
            "nothing is fetched",
        ),
        (
            "file",
            json!({"items": {"$ref": "file:///etc/passwd"}}),
            "nothing is fetched",
        ),
        (
            "lookahead",
            json!({"pattern": "^(?=(a+)+$)"}),
            "/pattern: lookaround",
        ),
        (
            "lookbehind in a name",
            json!({"patternProperties": {"(?<!a)b": {}}}),
            "/patternProperties: lookaround",
        ),
        (
            "backreference",
            json!({"items": {"pattern": "^(a+)\\1$"}}),
            "/items/pattern: lookaround",
        ),
        (
            "repetitions",
            json!({"pattern": "(((a{1,100}){1,100}){1,100}){1,100}"}),
            "too large once its repetitions",
        ),
        (
            "patterns",
            json!({"allOf": list(300, |at| json!({"pattern": format!("a{at}[a-z]+")}))}),
            "patterns",
        ),
    ] {
        match checked(name, schema, json!({"a": 1, "b": 1})) {
            Err(fault @ SchemaFault::TooCostly(_)) => {
                let words = fault.to_string();
                assert!(
                    words.contains(expect) && words.len() < 600,
                    "{name}: {words}"
                );
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn checks_that_cost_too_much_end_with_an_error_of_their_own() {
    let long = "a".repeat(1 << 20);
    let inlined =
        |name: &str| json!({"properties": {"a": {"$ref": "#/$defs/t"}}, "required": [name]});
    for (name, schema, value) in [
        (
            "2^10 in place, silent, for each item",
            json!({"items": {"$ref": "#/$defs/a0"}, "$defs": chain("a", 10, twice, json!({}))}),
            numbers(200_000),
        ),
        (
            "two ways down at each level, never remembered",
            json!({"$ref": "#/$defs/a0", "$defs": chain("a", 60, |next| json!({"items": {"$ref": next}, "contains": {"$ref": next}}), json!({}))}),
            lists(60),
        ),
        (
            "patternProperties",
            json!({"patternProperties": map(100, |at| (format!("[a-z]*{at}[0-9]*x"), json!({})))}),
            map(50_000, |at| (format!("k{at}"), json!(1))),
        ),
        (
            "propertyNames",
            json!({"propertyNames": {"allOf": list(50, |_| json!({"pattern": "^k[0-9]*$"}))}}),
            map(50_000, |at| (format!("k{at}"), json!(1))),
        ),
        (
            "minLength",
            json!({"allOf": list(5_000, |at| json!({"minLength": at + 1}))}),
            json!(long),
        ),
        (
            "states",
            json!({"pattern": "[ab]*a[ab]{200}c"}),
            json!("abbaab".repeat(50_000)),
        ),
        (
            "many states",
            json!({"items": {"pattern": "(a|aa){1,500}$"}}),
            list(10, |_| json!("a".repeat(20_000))),
        ),
        (
            "content",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "allOf": list(1_000, |_| json!({"contentMediaType": "application/json"}))}),
            json!(numbers(200_000).to_string()),
        ),
        (
            "multipleOf",
            json!({"items": {"multipleOf": 5e-324}}),
            list(200_000, |_| json!(1e300)),
        ),
        (
            "uniqueItems",
            json!({"allOf": list(100, |_| json!({"uniqueItems": true}))}),
            numbers(200_000),
        ),
        (
            "enum of lists",
            json!({"items": {"enum": list(8_000, |at| json!([at, at]))}}),
            list(20_000, |_| json!([-1, -1])),
        ),
    ] {
        let found = checked(name, schema, value);
        assert_eq!(
            found,
            Ok(Err(CheckError::TooCostly(CheckTooCostly))),
            "{name}"
        );
    }
    // What fails at once may be told without knowing where.
    for (name, schema, value) in [
        (
            "anyOf",
            json!({"$defs": {"t": {"anyOf": [inlined("b"), inlined("c"), inlined("d")]}}, "$ref": "#/$defs/t"}),
            objects(60),
        ),
        (
            "oneOf",
            json!({"oneOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}),
            lists(60),
        ),
        (
            "$dynamicRef",
            json!({"$dynamicAnchor": "n", "anyOf": [{"items": {"$dynamicRef": "#n"}, "minItems": 2}, {"items": {"$dynamicRef": "#n"}, "minItems": 3}]}),
            lists(60),
        ),
    ] {
        let found = checked(name, schema, value);
        assert_eq!(
            found,
            Ok(Err(CheckError::Misfit(SOMEWHERE.to_owned()))),
            "{name}"
        );
    }
}

#[test]
fn faults_are_few_and_short_whatever_the_value() {
    let many = numbers(200_000);
    for (name, schema, value) in [
        (
            "each item",
            json!({"items": {"type": "string"}}),
            many.clone(),
        ),
        (
            "each item, all branches",
            json!({"items": {"anyOf": list(100, |_| json!({"type": "string"}))}}),
            many.clone(),
        ),
        (
            "quoting the value",
            json!({"allOf": list(2_000, |_| json!({"type": "string"}))}),
            many.clone(),
        ),
        (
            "quoting the schema",
            json!({"items": {"not": {"enum": numbers(8_000)}}}),
            list(30_000, |_| json!(1)),
        ),
        (
            "quoting all levels",
            json!({"type": "array", "items": {"$ref": "#"}, "unevaluatedItems": false, "contains": {"type": "string"}}),
            nested(60, many, |inner| json!([inner])),
        ),
        (
            "unexpected names",
            json!({"allOf": list(500, |_| json!({"additionalProperties": false}))}),
            map(50_000, |at| (format!("k{at}"), json!(1))),
        ),
        (
            "long names",
            json!({"additionalProperties": false}),
            map(20, |at| ("n".repeat(50_000 + at), json!(1))),
        ),
    ] {
        match checked(name, schema, value) {
            Ok(Err(CheckError::Misfit(faults))) => {
                assert!(faults.len() < 8_000, "{name}: {} bytes", faults.len());
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn formats_take_linear_time() {
    let draft = "http://json-schema.org/draft-07/schema#";
    let long = "a".repeat(1 << 20);
    let groups: Vec<_> = (0..100_000).map(|at| format!("(?<a{at}>)")).collect();
    for (format, text, expect) in [
        ("regex", groups.concat(), false),
        ("regex", "(?<a>b)+".to_owned(), true),
        ("regex", "(".to_owned(), false),
        ("email", "\"\"@".repeat(300_000), false),
        ("hostname", format!("xn--{long}"), false),
        ("uri", format!("http://a/{long}"), true),
        ("uri-template", "{".repeat(1 << 20), false),
        ("json-pointer", "/~".repeat(1 << 19), false),
    ] {
        let schema = json!({"$schema": draft, "format": format});
        let found = checked(format, schema, json!(text));
        assert_eq!(found.map(|found| found.is_ok()), Ok(expect), "{format}");
    }
}

#[test]
fn ordinary_schemas_and_large_values_are_checked() {
    let tree = json!({
        "$id": "https://example.com/tree",
        "$ref": "#/$defs/node",
        "$defs": {"node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "tree#/$defs/node"}}},
            "required": ["name"],
            "unevaluatedProperties": false,
        }},
    });
    let record = map(10, |at| {
        (
            format!("p{at}"),
            json!({"type": ["integer", "null"], "minimum": 0}),
        )
    });
    let kinds = list(
        50,
        |at| json!({"type": "object", "properties": {"kind": {"const": at}, "value": {"type": "string"}}, "required": ["kind"]}),
    );
    let base64 = "A".repeat(1 << 20);
    for (name, schema, value) in [
        (
            "tree",
            tree,
            nested(
                25,
                json!({"name": "leaf"}),
                |inner| json!({"name": "n", "children": [inner, {"name": "leaf"}]}),
            ),
        ),
        (
            "records",
            json!({"type": "array", "items": {"type": "object", "properties": record, "required": ["p1"], "additionalProperties": false}}),
            list(20_000, |_| map(10, |at| (format!("p{at}"), json!(at)))),
        ),
        (
            "one of many",
            json!({"items": {"oneOf": kinds}}),
            list(2_000, |at| json!({"kind": at % 50, "value": "x"})),
        ),
        (
            "numbers",
            json!({"type": "array", "items": {"type": "number", "multipleOf": 0.5}}),
            numbers(500_000),
        ),
        (
            "ids",
            json!({"uniqueItems": true, "items": {"type": "integer"}}),
            numbers(200_000),
        ),
        (
            "base64",
            json!({"type": "string", "pattern": "^[A-Za-z0-9+/]+={0,2}$", "minLength": 1}),
            json!(base64),
        ),
        (
            "mail",
            json!({"pattern": "^[\\w.+-]+@[\\w-]+\\.[\\w.-]+$"}),
            json!("abc@example.com"),
        ),
        (
            "a name",
            json!({"pattern": "^[\\p{L} ]{1,64}$"}),
            json!("Zoë"),
        ),
        (
            "anything, up to 500",
            json!({"pattern": "^.{1,500}$"}),
            json!("abc"),
        ),
        (
            "a schema",
            json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}),
            json!({"type": "object"}),
        ),
        (
            "an anchor",
            json!({"$defs": {"a": {"$anchor": "here", "type": "integer"}}, "items": {"$ref": "#here"}}),
            json!([1]),
        ),
        (
            "draft 7",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"$id": "#a"}}, "items": {"$ref": "#a"}}),
            json!([1]),
        ),
    ] {
        assert_eq!(checked(name, schema, value), Ok(Ok(())), "{name}");
    }
}

#[test]
fn a_panic_or_an_end_leaves_no_budget_behind() {
    // The values are made while the outer check counts.
    let small = Validator::new(&json!({"items": {"type": "integer"}})).unwrap();
    let (few, many) = (numbers(9), numbers(100));
    let mut inner = None;
    let values = std::iter::once_with(|| {
        inner = Some(small.check(&numbers(1_000)));
        &few
    });
    assert_eq!(small.first_misfit(values, SHARE_OF_FEW_STEPS), Ok(None));
    assert_eq!(
        inner,
        Some(Ok(())),
        "an inner check has a budget of its own"
    );
    let found = small.first_misfit([&many], SHARE_OF_FEW_STEPS);
    assert_eq!(found, Err(CheckTooCostly));
    assert_eq!(small.check(&numbers(100)), Ok(()));
}

#[test]
fn items_are_unique_as_json_says() {
    let brackets = |at: usize| {
        list(12, |bit| {
            if at >> bit & 1 == 1 {
                json!([])
            } else {
                json!([[]])
            }
        })
    };
    let unique = Validator::new(&json!({"uniqueItems": true})).unwrap();
    for (items, expect) in [
        (json!([1, 1.0]), false),
        (json!([0, -0.0]), false),
        (json!([1e300, 1e300]), false),
        (json!([0.5, 0.25, 5e-1]), false),
        (json!([{"a": 1, "b": 2}, {"b": 2, "a": 1}]), false),
        (json!([[1], [1, 1], [[1]], 1, true, "1", null]), true),
        (
            json!([9_007_199_254_740_992_u64, 9_007_199_254_740_993_u64]),
            true,
        ),
        // Of one hash each in jsonschema.
        (list(4_096, brackets), true),
        (list(4_096, |at| json!(u64::MAX - at as u64)), true),
    ] {
        assert_eq!(unique.check(&items).is_ok(), expect, "{items:.80}");
    }
}
