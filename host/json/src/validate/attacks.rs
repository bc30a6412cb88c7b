//! Schemas and values that are made to cost much: each must end soon, with a word of its own.

use super::*;
use serde_json::{Map, json};
use std::time::Instant;

/// An attack, with the schema and the value.
pub(super) type Attack = (&'static str, Value, Value);

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

fn attacks() -> Vec<Attack> {
    let deep = nested(100, json!(1), |inner| json!([inner]));
    let deep_object = nested(100, json!({"x": 1}), |inner| json!({"a": inner}));
    let long = "a".repeat(1 << 20);
    let numbers: Vec<Value> = (0..200_000).map(Value::from).collect();
    let many: Map<String, Value> = (0..50_000)
        .map(|at| (format!("k{at}"), json!(at)))
        .collect();
    let properties: Map<String, Value> = (0..5_000)
        .map(|at| (format!("p{at}"), json!({"type": "integer"})))
        .collect();
    let lists: Vec<Value> = (0..2_000).map(|at| json!([[at], {"a": at}])).collect();
    let branches: Vec<Value> = (0..2_000).map(|at| json!({"const": at})).collect();
    let mut all = vec![
        (
            "allOf of $ref, 2^36",
            json!({"$ref": "#/$defs/a0", "$defs": chain("a", 36, twice, json!({}))}),
            json!(1),
        ),
        (
            "anyOf of $ref, 2^12, false",
            json!({"$ref": "#/$defs/a0", "$defs": chain("a", 12, |next| json!({"anyOf": [{"$ref": next}, {"$ref": next}]}), json!(false))}),
            json!(1),
        ),
        (
            "2^11 in place, for each item",
            json!({"items": {"$ref": "#/$defs/a0"}, "$defs": chain("a", 11, twice, json!({}))}),
            json!(numbers),
        ),
        (
            "recursive anyOf",
            json!({"anyOf": [{"items": {"$ref": "#"}, "minItems": 2}, {"items": {"$ref": "#"}, "type": "array", "maxItems": 0}]}),
            deep.clone(),
        ),
        (
            "recursive oneOf",
            json!({"oneOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}),
            deep.clone(),
        ),
        (
            "recursive not",
            json!({"not": {"items": {"not": {"$ref": "#"}}}}),
            deep.clone(),
        ),
        (
            "recursive object, inlined",
            json!({"$defs": {"t": {"anyOf": [{"properties": {"a": {"$ref": "#/$defs/t"}}, "required": ["b"]}, {"properties": {"a": {"$ref": "#/$defs/t"}}, "required": ["c"]}, {"properties": {"a": {"$ref": "#/$defs/t"}}, "required": ["d"]}]}}, "$ref": "#/$defs/t"}),
            deep_object.clone(),
        ),
        (
            "recursive by $dynamicRef",
            json!({"$dynamicAnchor": "n", "anyOf": [{"items": {"$dynamicRef": "#n"}, "minItems": 2}, {"items": {"$dynamicRef": "#n"}, "minItems": 3}]}),
            deep.clone(),
        ),
        (
            "recursive unevaluatedItems",
            json!({"$dynamicAnchor": "n", "anyOf": [{"prefixItems": [{"$ref": "#"}]}, {"contains": {"$ref": "#"}}], "unevaluatedItems": {"$ref": "#"}}),
            deep.clone(),
        ),
        (
            "recursive unevaluatedProperties",
            json!({"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}], "anyOf": [{"required": ["x"]}, {"required": ["a"]}], "unevaluatedProperties": {"$ref": "#"}}),
            deep_object.clone(),
        ),
        (
            "unevaluatedProperties of 2^36",
            json!({"$ref": "#/$defs/a0", "unevaluatedProperties": false, "$defs": chain("a", 36, twice, json!({"properties": {"a": {}}}))}),
            json!({"a": 1}),
        ),
        (
            "nested unevaluatedProperties",
            nested(
                30,
                json!({"properties": {"a": true}}),
                |inner| json!({"allOf": [inner], "unevaluatedProperties": false}),
            ),
            json!({"a": 1}),
        ),
        (
            "dependentSchemas 2^36",
            json!({"$ref": "#/$defs/a0", "$defs": chain("a", 36, |next| json!({"dependentSchemas": {"a": {"$ref": next}, "b": {"$ref": next}}}), json!({}))}),
            json!({"a": 1, "b": 1}),
        ),
        (
            "if then else 2^36",
            json!({"$ref": "#/$defs/a0", "$defs": chain("a", 36, |next| json!({"if": {"$ref": next}, "then": {"$ref": next}, "else": {"$ref": next}}), json!({}))}),
            json!(1),
        ),
        ("endless $ref", json!({"$ref": "#"}), json!(1)),
        (
            "endless by allOf",
            json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}),
            json!(1),
        ),
        (
            "endless by $dynamicRef",
            json!({"$dynamicAnchor": "n", "anyOf": [{"$dynamicRef": "#n"}]}),
            json!(1),
        ),
        (
            "long chain of references",
            json!({"$ref": "#/$defs/a0", "$defs": chain("a", 5_000, |next| json!({"$ref": next}), json!({}))}),
            json!(1),
        ),
        (
            "long chain below",
            json!({"$ref": "#/$defs/a0", "$defs": chain("a", 5_000, |next| json!({"items": {"$ref": next}}), json!({}))}),
            deep.clone(),
        ),
        (
            "uniqueItems of numbers",
            json!({"uniqueItems": true}),
            json!(numbers),
        ),
        (
            "uniqueItems of lists",
            json!({"items": {"uniqueItems": true}, "uniqueItems": true}),
            json!([lists.clone(), lists]),
        ),
        (
            "contains, for each of many lists",
            json!({"items": {"allOf": vec![json!({"contains": {"const": -1}}); 100]}}),
            json!([numbers.clone()]),
        ),
        (
            "patternProperties x properties",
            json!({"patternProperties": (0..100).map(|at| (format!("[a-z]*{at}[0-9]*x"), json!({"type": "string"}))).collect::<Map<_, _>>()}),
            Value::Object(many.clone()),
        ),
        (
            "properties x objects",
            json!({"items": {"properties": properties, "required": ["p1"]}}),
            json!(vec![json!({"p1": 1}); 20_000]),
        ),
        (
            "branches x items",
            json!({"items": {"anyOf": branches}}),
            json!(numbers),
        ),
        (
            "large enum x items",
            json!({"items": {"enum": (0..20_000).map(|at| json!([at])).collect::<Vec<_>>()}}),
            json!((0..20_000).map(|at| json!([-at])).collect::<Vec<_>>()),
        ),
        (
            "large const x items",
            json!({"items": {"const": (0..30_000).collect::<Vec<_>>()}}),
            json!(vec![json!((0..30_000).collect::<Vec<_>>()); 20]),
        ),
        (
            "multipleOf",
            json!({"items": {"allOf": [{"multipleOf": 1e-300}, {"multipleOf": 1e300}, {"multipleOf": 3}]}}),
            json!(vec![json!(1.7e308); 100_000]),
        ),
        (
            "minLength of a long text",
            json!({"allOf": (1..5_000).map(|at| json!({"minLength": at})).collect::<Vec<_>>()}),
            json!(long),
        ),
        (
            "propertyNames",
            json!({"propertyNames": {"allOf": vec![json!({"pattern": "^k[0-9]*$"}); 50]}}),
            Value::Object(many),
        ),
        (
            "pattern: backtracking",
            json!({"pattern": "^(a+)+$"}),
            json!(format!("{long}!")),
        ),
        (
            "pattern: lookahead",
            json!({"pattern": "^(?=(a+)+$)"}),
            json!(long),
        ),
        (
            "pattern: backreference",
            json!({"pattern": "^(a+)\\1$"}),
            json!(long),
        ),
        (
            "pattern: repeated",
            json!({"pattern": "(((a{1,100}){1,100}){1,100}){1,100}"}),
            json!(long),
        ),
        (
            "pattern: many states",
            json!({"items": {"pattern": "(a|aa){1,500}$"}}),
            json!(vec![json!("a".repeat(20_000) + "b"); 10]),
        ),
        (
            "pattern: states of a lazy automaton",
            json!({"pattern": "[ab]*a[ab]{200}c"}),
            json!("abbaab".repeat(50_000)),
        ),
        (
            "many patterns",
            json!({"allOf": (0..2_000).map(|at| json!({"pattern": format!("a{at}[a-z]+")})).collect::<Vec<_>>()}),
            json!("a"),
        ),
        (
            "format regex",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "format": "regex"}),
            json!(
                (0..100_000)
                    .map(|at| format!("(?<a{at}>)"))
                    .collect::<String>()
            ),
        ),
        (
            "format email",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "format": "email"}),
            json!("\"\"@".repeat(300_000)),
        ),
        (
            "formats",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "allOf": (["uri", "iri", "uri-template", "hostname", "date-time", "json-pointer", "uuid", "ipv6", "duration"].map(|format| json!({"not": {"format": format}})))}),
            json!(format!("http://a/{long}")),
        ),
        (
            "content",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "allOf": vec![json!({"contentMediaType": "application/json"}); 1_000]}),
            json!(json!(numbers).to_string()),
        ),
        (
            "a fault at each item",
            json!({"items": {"type": "string", "minLength": 1}}),
            json!(numbers),
        ),
        (
            "a fault at each item, in all branches",
            json!({"items": {"anyOf": vec![json!({"type": "string"}); 100]}}),
            json!(numbers),
        ),
        (
            "a fault that copies the schema",
            json!({"items": {"not": {"enum": numbers[..30_000]}}}),
            json!(vec![json!(1); 30_000]),
        ),
        (
            "a fault that quotes the value",
            json!({"allOf": vec![json!({"type": "string"}); 2_000]}),
            json!(numbers),
        ),
        (
            "nested faults that quote the value",
            json!({"type": "array", "items": {"$ref": "#"}, "unevaluatedItems": false, "contains": {"type": "string"}, "minContains": 1}),
            nested(100, json!(numbers), |inner| json!([inner])),
        ),
        (
            "nested not",
            nested(
                30,
                json!({"enum": numbers[..20_000]}),
                |inner| json!({"not": inner}),
            ),
            json!(1),
        ),
        (
            "deep schema",
            nested(2_000, json!({}), |inner| json!({"items": inner})),
            json!([]),
        ),
        (
            "long names above many",
            json!({"properties": {(long[..20_000]): {"allOf": vec![json!({"minLength": 1}); 2_000]}}}),
            json!({}),
        ),
        (
            "many resources",
            json!({"$defs": (0..300).map(|at| (format!("r{at}"), json!({"$id": format!("r{at}"), "items": {"anyOf": [{"$ref": format!("r{}", (at + 1) % 300)}, {"$ref": format!("r{}", (at + 7) % 300)}]}}))).collect::<Map<_, _>>(), "$ref": "r0"}),
            deep.clone(),
        ),
        (
            "eight resources",
            json!({"$defs": (0..8).map(|at| (format!("r{at}"), json!({"$id": format!("r{at}"), "$dynamicAnchor": "n", "items": {"anyOf": (0..8).map(|to| json!({"$ref": format!("r{to}")})).chain([json!({"$dynamicRef": "#n"})]).collect::<Vec<_>>()}}))).collect::<Map<_, _>>(), "$ref": "r0"}),
            deep.clone(),
        ),
        (
            "many spellings of a reference",
            json!({"$defs": {"aaaaaaaaaa": {"anyOf": (0..1_000).map(|at| json!({"const": at})).collect::<Vec<_>>()}}, "prefixItems": (0..1_024).map(|bits| json!({"$ref": format!("#/$defs/{}", (0..10).map(|bit| if bits >> bit & 1 == 1 { "%61" } else { "a" }).collect::<String>())})).collect::<Vec<_>>()}),
            json!(numbers),
        ),
        (
            "many schemas",
            json!({"properties": (0..12_000).map(|at| (format!("p{at}"), json!({"type": "integer", "minimum": at}))).collect::<Map<_, _>>()}),
            json!({"p1": 1}),
        ),
    ];
    let bits = |at: u32| {
        nested(
            1,
            Value::Array(
                (0..17)
                    .map(|bit| {
                        if at >> bit & 1 == 1 {
                            json!([])
                        } else {
                            json!([[]])
                        }
                    })
                    .collect(),
            ),
            |v| v,
        )
    };
    all.push((
        "uniqueItems: brackets",
        json!({"uniqueItems": true}),
        json!((0..100_000).map(bits).collect::<Vec<_>>()),
    ));
    all.push((
        "uniqueItems: integers",
        json!({"uniqueItems": true}),
        json!((0..500_000_u64).map(|at| u64::MAX - at).collect::<Vec<_>>()),
    ));
    all.push((
        "multipleOf 0.01",
        json!({"items": {"multipleOf": 0.01}}),
        json!(
            (0..200_000)
                .map(|at| f64::from(at) / 100.0)
                .collect::<Vec<_>>()
        ),
    ));
    all.push((
        "multipleOf 5e-324",
        json!({"items": {"multipleOf": 5e-324}}),
        json!(
            (0..200_000)
                .map(|at| f64::from(at) * 1e300)
                .collect::<Vec<_>>()
        ),
    ));
    for k in [3, 4, 5, 6] {
        let body = |at: usize| json!({"$id": format!("r{at}"), "$dynamicAnchor": "n", "properties": (0..500).map(|i| (format!("q{i}"), json!({"type": "integer"}))).collect::<Map<_, _>>(), "items": {"anyOf": (0..k).map(|to| json!({"$ref": format!("r{to}")})).chain([json!({"$dynamicRef": "#n"})]).collect::<Vec<_>>()}});
        all.push(("resources, wide", json!({"$defs": (0..k).map(|at| (format!("r{at}"), body(at))).collect::<Map<_, _>>(), "$ref": "r0"}), deep.clone()));
    }
    for k in [2_500, 5_000, 10_000, 15_000] {
        all.push(("chain below", json!({"$ref": "#/$defs/a0", "$defs": chain("a", k, |next| json!({"items": {"$ref": next}}), json!({}))}), deep.clone()));
        all.push(("chain below 2", json!({"$ref": "#/$defs/a0", "$defs": chain("a", k, |next| json!({"items": {"$ref": next}, "contains": {"$ref": next}}), json!({}))}), deep.clone()));
    }
    all.push(("near: values", json!({"properties": (0..33_000).map(|at| (format!("{at}"), json!({"type": "integer"}))).collect::<Map<_, _>>()}), json!({"p1": 1})));
    all.push((
        "near: pointers",
        json!({"properties": {(long[..500]): {"allOf": vec![json!({"minLength": 1}); 3_900]}}}),
        json!({}),
    ));
    all.push((
        "near: enum",
        json!({"items": {"enum": (0..16_000).map(|at| json!([at])).collect::<Vec<_>>()}}),
        json!((0..20_000).map(|at| json!([-at])).collect::<Vec<_>>()),
    ));
    all.push(("near: in place", json!({"items": {"$ref": "#/$defs/a0"}, "$defs": chain("a", 9, twice, json!({"minLength": 1, "maxLength": 5, "pattern": "a*"}))}), json!(vec!["aaa"; 200_000])));
    all.push((
        "near: silent",
        json!({"items": {"$ref": "#/$defs/a0"}, "$defs": chain("a", 10, twice, json!({}))}),
        json!(numbers),
    ));
    all.push((
        "near: silent, branches",
        json!({"items": {"anyOf": vec![json!(false); 16_000]}}),
        json!(numbers),
    ));
    all.push(("near: tracked", json!({"$ref": "#/$defs/a0", "unevaluatedProperties": false, "$defs": chain("a", 9, twice, json!({"properties": {"a": {}}}))}), json!({"a": 1})));
    all.push(("near: tracked, many", json!({"properties": (0..500).map(|at| (format!("p{at}"), json!({"unevaluatedProperties": false, "$ref": "#/$defs/a0"}))).collect::<Map<_, _>>(), "$defs": chain("a", 1, twice, json!({"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}))}), json!({"a": 1})));
    all.push(("near: patterns", json!({"properties": (0..250).map(|at| (format!("p{at}"), json!({"pattern": format!("^{at}[a-z]{{1,300}}\\p{{L}}")}))).collect::<Map<_, _>>()}), json!({"p1": "aaaa"})));
    all.push(("near: large patterns", json!({"properties": (0..250).map(|at| (format!("p{at}"), json!({"pattern": format!("^{at}[a-z]{{1,3000}}\\p{{L}}")}))).collect::<Map<_, _>>()}), json!({"p1": "aaaa"})));
    all.push((
        "near: not",
        nested(
            25,
            json!({"enum": numbers[..3_900]}),
            |inner| json!({"not": inner}),
        ),
        json!(1),
    ));
    all.push((
        "near: depth",
        nested(31, json!({}), |inner| json!({"items": inner})),
        json!([]),
    ));
    all.push(("near: depth x refs", json!({"$ref": "#/$defs/a0", "$defs": chain("a", 60, |next| nested(29, json!({"$ref": next}), |inner| json!({"items": inner})), json!({}))}), json!([])));
    all.push(("near: in place depth x value", json!({"$ref": "#/$defs/a0", "$defs": chain("a", 60, |next| json!({"$ref": next}), json!({"items": {"$ref": "#"}, "minItems": 1}))}), nested(120, json!([1]), |inner| json!([inner]))));
    all.push(("ordinary: records", json!({"type": "array", "items": {"type": "object", "properties": (0..10).map(|at| (format!("p{at}"), json!({"type": "integer"}))).collect::<Map<_, _>>(), "required": ["p1"], "additionalProperties": false}}), json!(vec![json!((0..10).map(|at| (format!("p{at}"), json!(at))).collect::<Map<_, _>>()); 50_000])));
    all.push((
        "ordinary: base64",
        json!({"type": "string", "pattern": "^[A-Za-z0-9+/]+={0,2}$", "minLength": 1}),
        json!(long),
    ));
    all.push((
        "ordinary: base64, wrong",
        json!({"type": "string", "pattern": "^[A-Za-z0-9+/]+={0,2}$", "minLength": 1}),
        json!(format!("{long}!")),
    ));
    all.push((
        "ordinary: long words",
        json!({"type": "string", "pattern": "^\\p{L}{1,100}$"}),
        json!("abc"),
    ));
    all.push((
        "ordinary: any, 500",
        json!({"type": "string", "pattern": "^.{1,500}$"}),
        json!("abc"),
    ));
    all.push((
        "ordinary: mail",
        json!({"type": "string", "pattern": "^[\\w.+-]+@[\\w-]+\\.[\\w.-]+$"}),
        json!("abc@example.com"),
    ));
    all.push((
        "ordinary: numbers",
        json!({"type": "array", "items": {"type": "number"}}),
        json!((0..1_000_000).collect::<Vec<_>>()),
    ));
    all.push((
        "elsewhere",
        json!({"$ref": "http://127.0.0.1:9/schema.json"}),
        json!(1),
    ));
    all
}

#[test]
fn spike() {
    for (name, schema, value) in attacks() {
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let peak = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let of = |key: &str| {
                status
                    .lines()
                    .find(|l| l.starts_with(key))
                    .unwrap()
                    .split_whitespace()
                    .nth(1)
                    .unwrap()
                    .parse::<u64>()
                    .unwrap()
            };
            (of("VmHWM") / 1024, of("VmRSS") / 1024)
        };
        let before = peak().1;
        let start = Instant::now();
        let validator = Validator::new(&schema);
        let built = start.elapsed();
        let mid = peak().0;
        let start = Instant::now();
        let found = match &validator {
            Ok(validator) => match validator.check(&value) {
                Ok(()) => "fits".to_owned(),
                Err(error) => format!("{error:?}"),
            },
            Err(error) => format!("{error:?}"),
        };
        let checked = start.elapsed();
        println!(
            "{name:45} built {built:>10.1?} {:>4} MiB  checked {checked:>10.1?} {:>4} MiB  {}  {:?}",
            mid.saturating_sub(before),
            peak().0.saturating_sub(before),
            cut(&found, 130),
            validator.as_ref().map(|v| v.weights).ok()
        );
    }
}
