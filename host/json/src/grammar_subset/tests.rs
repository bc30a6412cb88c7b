use super::*;
use serde_json::json;
use toolhold_schema::Validator;

#[test]
fn unsafe_constructs_become_safe_ones() {
    let reduce = |schema: Value| GrammarSubset::new(None).reduce(&schema, "t");
    for (schema, expect) in [
        (json!(true), json!({})),
        (
            json!({"type": ["string", "null"]}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ),
        (
            json!({"type": "string", "nullable": true}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ),
        (
            json!({"type": "number", "minimum": 0.5}),
            json!({"type": "number"}),
        ),
        (
            json!({"type": "integer", "minimum": 1}),
            json!({"type": "integer", "minimum": 1}),
        ),
        (
            json!({"type": "string", "pattern": "\\d+"}),
            json!({"type": "string"}),
        ),
        (
            json!({"type": "string", "pattern": "^[a-z]$", "maxLength": 3}),
            json!({"type": "string", "pattern": "^[a-z]$"}),
        ),
        (
            json!({"type": "string", "format": "email"}),
            json!({"type": "string"}),
        ),
        (
            json!({"type": "array", "uniqueItems": true}),
            json!({"type": "array", "items": {}}),
        ),
        (json!({"type": "object"}), json!({"type": "object"})),
        (
            json!({"oneOf": [{"const": 1}]}),
            json!({"anyOf": [{"const": 1}]}),
        ),
    ] {
        assert_eq!(reduce(schema.clone()), expect, "{schema}");
    }
}

#[test]
fn definitions_of_two_tools_do_not_meet() {
    let mut subset = GrammarSubset::new(None);
    let a = subset.reduce(
        &json!({"$ref": "#/$defs/N", "$defs": {"N": {"type": "integer"}}}),
        "a.x",
    );
    let b = subset.reduce(
        &json!({"$ref": "#/$defs/N", "$defs": {"N": {"type": "string"}}}),
        "b.x",
    );
    let all = subset.finish(json!({"anyOf": [a, b]}));
    assert_eq!(all["$defs"]["a_x_N"]["type"], "integer");
    assert_eq!(all["$defs"]["b_x_N"]["type"], "string");
    assert_eq!(all["anyOf"][1]["$ref"], "#/$defs/b_x_N");
}

#[test]
fn unbounded_strings_get_a_bound() {
    let mut subset = GrammarSubset::new(Some(50));
    assert_eq!(
        subset.reduce(&json!({"type": "string"}), "t")["maxLength"],
        50
    );
    assert_eq!(
        subset.reduce(&json!({"type": "string", "maxLength": 9}), "t")["maxLength"],
        9
    );
    assert_eq!(
        subset.reduce(&json!({"type": "string", "minLength": 60}), "t")["maxLength"],
        60
    );
}

#[test]
fn bounds_beyond_a_grammar_are_left_to_validation() {
    for (schema, expect) in [
        (
            json!({"type": "string", "minLength": 1_999, "maxLength": 1_999}),
            json!({"type": "string", "minLength": 1_999, "maxLength": 1_999}),
        ),
        (
            json!({"type": "string", "minLength": 1, "maxLength": 2_000}),
            json!({"type": "string", "minLength": 1}),
        ),
        (
            json!({"type": "string", "minLength": 5_000, "maxLength": 65_536.0}),
            json!({"type": "string", "minLength": 1_999}),
        ),
        // Its author bounded it.
        (
            json!({"type": "string", "maxLength": 65_536}),
            json!({"type": "string"}),
        ),
        // No bound can be told that fits.
        (
            json!({"type": "string", "minLength": 2_000}),
            json!({"type": "string", "minLength": 1_999}),
        ),
        (
            json!({"type": "array", "minItems": 5_000, "maxItems": 6_000}),
            json!({"type": "array", "items": {}, "minItems": 1_999}),
        ),
    ] {
        let reduced = GrammarSubset::new(Some(50)).reduce(&schema, "t");
        assert_eq!(reduced, expect, "{schema}");
    }
}

#[test]
fn a_type_that_is_listed_twice_counts_once() {
    let nested = (0..30).fold(
        json!({}),
        |inner, _| json!({"type": ["array", "array", "null"], "items": inner}),
    );
    let reduced = GrammarSubset::new(None).reduce(&nested, "t");
    assert!(reduced.to_string().len() < 4_000);
}

/// Schemas that were reduced to narrower ones, with a value that each of them takes.
#[test]
fn a_value_that_fits_a_schema_fits_the_reduced_one() {
    let point =
        json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]});
    for (schema, value) in [
        (
            json!({"type": "object", "patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": false}),
            json!({"x-a": 1}),
        ),
        (
            json!({"type": "object", "properties": {"a": {}}, "patternProperties": {"^x-": {"type": "integer"}}}),
            json!({"a": 1, "x-a": 1}),
        ),
        // A name that fits no pattern, where no property is named.
        (
            json!({"type": "object", "patternProperties": {"^x-": {"type": "integer"}}}),
            json!({"x-a": 1, "y": "a"}),
        ),
        (
            json!({"type": "object", "patternProperties": {"^x-": {"type": "integer"}}, "required": ["y"]}),
            json!({"x-a": 1, "y": "a"}),
        ),
        (
            json!({"allOf": [{"type": "object"}, {"patternProperties": {"^x-": {"type": "integer"}, "^y-": {}}}]}),
            json!({"x-a": 1, "z": "a"}),
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}),
            json!(["a", 1, 2]),
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": false}),
            json!(["a", 1]),
        ),
        (
            json!({"allOf": [point, {"properties": {"y": {"type": "string"}}, "required": ["y"]}]}),
            json!({"x": 1, "y": "a"}),
        ),
        (
            json!({"properties": {"y": {}}, "required": ["y"], "$ref": "#/$defs/P", "$defs": {"P": point}}),
            json!({"x": 1, "y": 2}),
        ),
        (
            json!({"type": "object", "properties": {"y": {}}, "oneOf": [point, {"properties": {"z": {}}, "required": ["z"]}]}),
            json!({"y": 1, "z": 2}),
        ),
        (
            json!({"type": "object", "properties": {"y": {}}, "unevaluatedProperties": {"type": "integer"}}),
            json!({"y": "a", "z": 2}),
        ),
        (
            json!({"type": "object", "properties": {"y": {}}, "dependentSchemas": {"y": {"properties": {"z": {}}}}}),
            json!({"y": 1, "z": 2}),
        ),
        (
            json!({"type": "object", "properties": {"y": {}}, "dependentRequired": {"y": ["z"]}}),
            json!({"y": 1, "z": 2}),
        ),
        (
            json!({"type": "object", "properties": {"y": {}}, "if": {"properties": {"k": {"const": 1}}, "required": ["k"]},
                "then": {"properties": {"a": {}}}, "else": {"properties": {"k": {}, "b": {}}}}),
            json!({"y": 1, "k": 2, "b": 3}),
        ),
        // What one case names may be one of the others in another case.
        (
            json!({"type": "object", "properties": {"k": {}}, "if": {"properties": {"k": {"const": 1}}, "required": ["k"]},
                "then": {"properties": {"a": {"type": "string"}}}, "else": {"additionalProperties": {"type": "integer"}}}),
            json!({"k": 2, "a": 3}),
        ),
        (
            json!({"type": "object", "properties": {"y": {}}, "required": ["z"]}),
            json!({"y": 1, "z": 2}),
        ),
        (
            json!({"type": "object", "required": ["z"]}),
            json!({"any": 1, "z": 2}),
        ),
        (
            json!({"properties": {"y": {}}, "$ref": "https://example.com/schema"}),
            json!({"y": 1, "z": 2}),
        ),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"T": {"type": "string"}},
                "properties": {"y": {"$ref": "#/definitions/T", "maxLength": 1}}}),
            json!({"y": "long"}),
        ),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#",
                "type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "integer"}}),
            json!(["a", 1]),
        ),
        (json!({"type": "string", "pattern": "^a|b$"}), json!("ax")),
        (json!({"type": "integer", "minimum": 0.5}), json!(1)),
        (json!({"type": "integer", "minimum": -1e30}), json!(1)),
        (
            json!({"type": ["object", "null"], "properties": {"y": {}}}),
            json!(null),
        ),
        (json!({"enum": [{"a": [1]}, "b"]}), json!({"a": [1]})),
        (
            json!({"type": "object", "propertyNames": {"maxLength": 3}}),
            json!({"abc": 1}),
        ),
        (
            json!({"type": "array", "contains": {"const": 1}}),
            json!([2, 1]),
        ),
        (
            json!({"type": "object", "properties": {"a": true, "b": false}}),
            json!({"a": 1}),
        ),
    ] {
        let validator = match schema.get("$ref") {
            // A schema of another document is not there.
            Some(reference) if *reference != "#/$defs/P" => None,
            _ => Some(Validator::new(&schema).unwrap()),
        };
        if let Some(validator) = validator {
            assert!(
                validator.check(&value).is_ok(),
                "the row is wrong: {schema} {value}"
            );
        }
        let mut subset = GrammarSubset::new(None);
        let reduced = subset.reduce(&schema, "t");
        let reduced = subset.finish(reduced);
        let found = Validator::new(&reduced).unwrap().check(&value);
        assert!(found.is_ok(), "{schema}: {value} does not fit {reduced}");
    }
}

#[test]
fn parts_that_hold_together_are_one_object() {
    for (schema, expect) in [
        (
            json!({"allOf": [
                {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}, "required": ["a"]},
                {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}, "b": {"type": "string"}}},
            ]}),
            json!({"type": "object", "required": ["a"], "additionalProperties": false, "properties": {
                "a": {"type": "integer", "minimum": 1, "maximum": 9}, "b": {"type": "string"},
            }}),
        ),
        // A part that is closed by its author leaves no room for names of others.
        (
            json!({"allOf": [
                {"type": "object", "properties": {"a": {}}, "additionalProperties": false},
                {"type": "object", "properties": {"b": {}}},
            ]}),
            json!({"type": "object", "properties": {"a": {}}, "additionalProperties": false}),
        ),
        (
            json!({"type": "object", "properties": {"k": {"type": "string"}}, "oneOf": [
                {"properties": {"k": {"const": "a"}, "x": {"type": "integer"}}, "required": ["x"]},
                {"properties": {"k": {"const": "b"}}},
            ]}),
            json!({"anyOf": [
                {"type": "object", "required": ["x"], "additionalProperties": false,
                    "properties": {"k": {"const": "a"}, "x": {"type": "integer"}}},
                {"type": "object", "properties": {"k": {"const": "b"}}, "additionalProperties": false},
            ]}),
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "string"}], "items": false, "minItems": 1}),
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1}),
        ),
        (
            json!({"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "string"}}),
            json!({"type": "object", "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}),
        ),
        // A pattern of all names, and one beside what is said of the others.
        (
            json!({"type": "object", "patternProperties": {"^(.*)$": {"type": "integer"}}}),
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
        ),
        (
            json!({"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "unevaluatedProperties": false}),
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
        ),
        (
            json!({"type": "object", "patternProperties": {"^x": {"type": "integer"}}}),
            json!({"type": "object", "additionalProperties": {}}),
        ),
        (
            json!({"type": "object", "patternProperties": {"^[a-z]+$": {"type": "integer"}}, "additionalProperties": false}),
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
        ),
        (
            json!({"allOf": [{"type": "integer", "minimum": 5}, {"maximum": 3}]}),
            json!({"type": "integer", "minimum": 5}),
        ),
    ] {
        let reduced = GrammarSubset::new(None).reduce(&schema, "t");
        assert_eq!(reduced, expect, "{schema}");
    }
}

/// llama.cpp makes one hyphen of `.` and `_`.
#[test]
fn definitions_of_tools_with_similar_names_do_not_meet() {
    let mut subset = GrammarSubset::new(None);
    let of = |ty: &str, name: &str| json!({"$ref": format!("#/$defs/{name}"), "$defs": {(name): {"type": ty}}});
    let mut types = Vec::new();
    for (ty, owner, name) in [
        ("string", "db", "query_N"),
        ("integer", "db.query", "N"),
        ("number", "db_query", "N"),
        ("boolean", "db__query", "N"),
        ("array", "db", "query/N"),
        ("null", "db", "query.N"),
    ] {
        let escaped = name.replace('/', "~1");
        let mut schema = of(ty, name);
        schema["$ref"] = json!(format!("#/$defs/{escaped}"));
        types.push((ty, subset.reduce(&schema, owner)));
    }
    let whole = subset.finish(json!({}));
    let definitions = whole["$defs"].as_object().unwrap();
    let rules: HashSet<String> = definitions.keys().map(|name| folded(name)).collect();
    assert_eq!(rules.len(), types.len(), "{definitions:?}");
    for (ty, reference) in types {
        let name = reference["$ref"].as_str().unwrap();
        let name = name.strip_prefix("#/$defs/").unwrap();
        assert_eq!(definitions[name]["type"], ty, "{reference}");
    }
}

#[test]
fn references_lead_to_what_they_name_or_to_anything() {
    for (reference, expect) in [
        ("#/$defs/A", Some(json!({"type": "integer"}))),
        ("#/$defs/a%20b", Some(json!({"type": "string"}))),
        ("#/properties/own", Some(json!({"type": "boolean"}))),
        // A definition that is another one.
        ("#/$defs/Same", Some(json!({"type": "integer"}))),
        ("#/$defs/Round", None),
        ("#/$defs/Nothing", None),
        ("#anchor", None),
        ("https://example.com/schema", None),
        ("#/$defs/%zz", None),
    ] {
        let schema = json!({"type": "object", "properties": {"own": {"type": "boolean"}, "p": {"$ref": reference}},
            "$defs": {"A": {"type": "integer"}, "a b": {"type": "string"}, "Same": {"$ref": "#/$defs/A"},
                "Round": {"$ref": "#/$defs/Round"}}});
        let mut subset = GrammarSubset::new(None);
        let reduced = subset.reduce(&schema, "t");
        let whole = subset.finish(reduced);
        let own = &whole["properties"]["p"];
        match (own.get("$ref").and_then(Value::as_str), expect) {
            (Some(name), Some(expect)) => {
                let pointer = name.trim_start_matches('#');
                assert_eq!(whole.pointer(pointer), Some(&expect), "{reference}");
            }
            (None, None) => assert_eq!(*own, json!({}), "{reference}"),
            (_, expect) => panic!("{reference}: {own}, expected {expect:?}"),
        }
    }
    let tree = json!({"type": "object", "properties": {"below": {"type": "array", "items": {"$ref": "#"}}}});
    let mut subset = GrammarSubset::new(None);
    let reduced = subset.reduce(&tree, "t");
    let whole = subset.finish(reduced);
    assert_eq!(
        whole["$defs"]["t_root"]["properties"]["below"]["items"]["$ref"],
        "#/$defs/t_root"
    );
}

#[test]
fn a_model_is_told_what_a_grammar_has_not() {
    let reduce = |schema: &Value| {
        let subset = GrammarSubset::new(None);
        subset.with_descriptions().reduce(schema, "t")
    };
    for (schema, expect) in [
        (
            json!({"type": "number", "minimum": 0.5, "maximum": 2, "default": 1, "examples": [1.5]}),
            json!({"type": "number", "minimum": 0.5, "maximum": 2, "default": 1, "examples": [1.5]}),
        ),
        (
            json!({"type": "integer", "multipleOf": 5, "minimum": 0}),
            json!({"type": "integer", "minimum": 0, ALSO: {"multipleOf": 5}}),
        ),
        (
            json!({"type": "string", "format": "email", "maxLength": 5_000, "description": "d"}),
            json!({"type": "string", "description": "d", ALSO: {"format": "email", "maxLength": 5_000}}),
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "string"}], "uniqueItems": true}),
            json!({"type": "array", "items": {"type": "string"},
                ALSO: {"prefixItems": [{"type": "string"}], "uniqueItems": true}}),
        ),
        (
            json!({"enum": ["a"], "minLength": 1}),
            json!({"enum": ["a"]}),
        ),
        (
            json!({"type": "array", "uniqueItems": false}),
            json!({"type": "array", "items": {}}),
        ),
    ] {
        assert_eq!(reduce(&schema), expect, "{schema}");
    }
}

#[test]
fn members_are_those_of_all_alternatives() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "anyOf": [
        {"properties": {"b": {"type": "string"}}, "required": ["b"]},
        {"properties": {"b": {"type": "null"}, "c": {}}},
    ]});
    let members = GrammarSubset::new(None).reduce_members(&schema, "t", |_| ());
    assert_eq!(
        Value::Object(members.properties),
        json!({"a": {"type": "integer"}, "b": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "c": {}})
    );
    assert_eq!(members.required, ["a"]);
    assert_eq!(members.additional, json!(false));
}

#[test]
fn an_object_of_which_nothing_is_said_has_any_members() {
    for (schema, additional) in [
        (json!({"type": "object"}), json!({})),
        (json!({}), json!({})),
        (json!({"type": "object", "required": ["a"]}), json!({})),
        (json!({"type": "object", "properties": {}}), json!(false)),
        (
            json!({"type": "object", "additionalProperties": false}),
            json!(false),
        ),
        (
            json!({"type": "object", "properties": {"a": {}}}),
            json!(false),
        ),
    ] {
        let members = GrammarSubset::new(None).reduce_members(&schema, "t", |_| ());
        assert_eq!(members.additional, additional, "{schema}");
    }
}

#[test]
fn authored_schemas_stay_without_keys_that_are_no_keywords() {
    let own = json!({"type": "number", "minimum": 0.5, "multipleOf": 0.5, "x-note": "n"});
    let schema = json!({"type": "object", "properties": {"x-own": own, "r": {"$ref": "#/$defs/R"}},
        "required": ["x-own"], "$defs": {"R": {"type": "string", "pattern": "\\d"}}});
    let mut subset = GrammarSubset::new(None).with_descriptions();
    let members = subset.authored_members(&schema, "t");
    let kept = json!({"type": "number", "minimum": 0.5, "multipleOf": 0.5});
    assert_eq!(members.properties["x-own"], kept);
    assert_eq!(members.properties["r"], json!({"$ref": "#/$defs/R"}));
    assert_eq!(members.required, ["x-own"]);
    let whole = subset.finish(json!({}));
    assert_eq!(whole["$defs"], schema["$defs"]);
}

/// Schemas in which little is said once and holds in many places, with the members of each.
#[test]
fn hostile_schemas_take_work_in_proportion_to_their_size() {
    let names = |prefix: &str, count: usize, schema: &Value| -> Map<String, Value> {
        let each = (0..count).map(|n| (format!("{prefix}{n}"), schema.clone()));
        each.collect()
    };
    let integer = json!({"type": "integer"});
    // Each name of an alternative may be any of the others of all alternatives.
    let open = (0..200).map(|n| {
        let values: Vec<usize> = (n..n + 200).collect();
        json!({"properties": names(&format!("p{n}_"), 30, &integer), "additionalProperties": {"enum": values}})
    });
    let open: Vec<Value> = open.collect();
    // Each alternative has all conditions beside it.
    let many = names("c", 4_000, &json!({"minProperties": 1}));
    let alternatives = vec![json!({"maxProperties": 9}); 4_000];
    // Each reference has something beside it, so that what it leads to is joined with that.
    let referring = json!({"$ref": "#/$defs/Big", "minProperties": 1});
    let parts =
        json!({"type": "object", "properties": names("a", 40, &integer), "required": ["a1"]});
    let begun = std::time::Instant::now();
    for schema in [
        json!({"type": "object", "anyOf": open}),
        json!({"type": "object", "dependentSchemas": many, "anyOf": alternatives}),
        json!({"type": "object", "properties": names("r", 2_000, &referring),
            "$defs": {"Big": {"type": "object", "properties": names("f", 6_000, &json!(false))}}}),
        json!({"type": "object", "properties": names("r", 2_000, &referring),
            "$defs": {"Big": {"type": "object", "dependentRequired": {"a": (0..6_000).map(|n| n.to_string()).collect::<Vec<_>>()}}}}),
        json!({"allOf": vec![json!({"anyOf": vec![parts; 20]}); 20]}),
        // Round, by two ways.
        json!({"type": "object", "properties": {"a": {}}, "if": {"$ref": "#/$defs/A"},
            "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/B"}, {"$ref": "#/$defs/B", "minProperties": 1}]},
                "B": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A", "minProperties": 1}]}}}),
    ] {
        let size = schema.to_string().len();
        for is_authored in [false, true] {
            let mut subset = GrammarSubset::new(None).with_descriptions();
            let members = if is_authored {
                subset.authored_members(&schema, "t")
            } else {
                subset.reduce_members(&schema, "t", |_| ())
            };
            let told = subset.finish(json!({"properties": members.properties}));
            let bytes = told.to_string().len();
            assert!(bytes < 40 * size + 100_000, "{bytes} bytes of {size}");
        }
        let mut subset = GrammarSubset::new(None);
        let reduced = subset.reduce(&schema, "t");
        let bytes = subset.finish(reduced).to_string().len();
        assert!(bytes < 40 * size + 100_000, "{bytes} bytes of {size}");
    }
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

/// An object of which one of several properties must be there keeps the schemas of all of them.
#[test]
fn alternatives_that_only_require_leave_the_properties_as_they_are() {
    let own = json!({"type": "object", "required": ["x"], "additionalProperties": false, "properties": {
        "x": {"type": "array", "items": {"enum": ["a", "b", "c"]}}, "y": {"type": "string"}, "z": {"type": "integer"}}});
    let names: Vec<String> = (0..60).map(|n| format!("p{n}")).collect();
    let properties: Map<String, Value> = names
        .iter()
        .map(|name| (name.clone(), own.clone()))
        .collect();
    let alternatives: Vec<Value> = names
        .iter()
        .map(|name| json!({"required": [name]}))
        .collect();
    let schema = json!({"type": "object", "properties": properties, "anyOf": alternatives});
    let members = GrammarSubset::new(None).reduce_members(&schema, "t", |_| ());
    assert_eq!(members.properties.len(), names.len());
    for (name, schema) in &members.properties {
        let items = &schema["properties"]["x"]["items"];
        assert_eq!(*items, json!({"enum": ["a", "b", "c"]}), "{name}: {schema}");
    }
    assert!(members.required.is_empty());
}
