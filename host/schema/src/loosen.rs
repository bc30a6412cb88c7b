//! Schemas without the keywords that cannot be checked: for schemas whose author is not here to mend them.
//!
//! What satisfies the schema as it was written satisfies what is left. So a keyword that turns others round (`not`,
//! `if`, `oneOf`) goes with what is left out in it.

use crate::bounds::{MAX_PATTERN_BYTES, MAX_PATTERNS};
use crate::pattern::{self, PatternFault};
use crate::tree::SchemaTree;
use crate::{Validator, Violation, short_place};
use serde_json::{Map, Value, json};
use toolhold_text::cut;

/// Maximum keywords that are looked at one by one; of a schema with more of them only the names stay.
const MAX_KEYWORDS: usize = 2_000;
/// Maximum patterns that are too large to be compiled.
const MAX_TOO_LARGE: u64 = 4;
/// Maximum nesting of schemas that is looked at.
const MAX_DEPTH: usize = 64;
/// Maximum characters of a reference in a reason.
const MAX_REFERENCE_CHARS: usize = 80;
/// Most keywords of one schema that are named; more are counted.
const MAX_TOLD: usize = 4;
/// Keywords that hold a schema.
const ONE: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords that hold a list of schemas.
const SEVERAL: [&str; 5] = ["allOf", "anyOf", "items", "oneOf", "prefixItems"];
/// Keywords that hold schemas by name. Definitions come first: others refer to them.
const NAMED: [&str; 6] = [
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
];
/// Keywords that texts of the schema satisfy where others fail, or that count them.
const TURNED: [&str; 4] = ["not", "if", "oneOf", "contains"];
pub(crate) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords that say what others leave over, and those others.
const LEFT_OVER: [(&str, &[&str]); 3] = [
    ("additionalProperties", &["properties", "patternProperties"]),
    ("items", &["prefixItems"]),
    ("additionalItems", &["items"]),
];
/// Keywords that stay where nothing else can.
const TOLD: [&str; 2] = ["title", "description"];

/// A schema of which a part was left out.
#[derive(Debug, Clone, PartialEq)]
pub struct LooseSchema {
    pub schema: Value,
    /// The keywords that were left out (JSON pointers into the schema as it was written), and why.
    pub left_out: Vec<Violation>,
}

impl LooseSchema {
    /// Words about the first keywords that were left out; `of` says whose schema it is.
    pub fn told(&self, of: &str) -> Vec<String> {
        let told = self.left_out.iter().take(MAX_TOLD).map(|fault| {
            let place = match fault.pointer.as_str() {
                "" => "all but its names".to_owned(),
                place => short_place(place),
            };
            format!("of {of} {place} is not checked: {}", fault.reason)
        });
        let mut told: Vec<String> = told.collect();
        let more = self.left_out.len().saturating_sub(MAX_TOLD);
        if more > 0 {
            told.push(format!("of {of} {more} more keywords are not checked"));
        }
        told
    }
}

/// The schema without the keywords that cannot be checked; `None` where all of them can.
pub fn loosened(schema: &Value) -> Option<LooseSchema> {
    let fault = Validator::new(schema).err()?;
    if let Ok(tree) = SchemaTree::of(schema) {
        let mut walk = LooseningWalk {
            tree,
            dialect: schema.get("$schema").filter(|own| is_usable(own)),
            left_out: Vec::new(),
            left: MAX_KEYWORDS,
            pattern_bytes: MAX_PATTERN_BYTES,
            has_looser_definition: false,
        };
        let mut copy = schema.clone();
        walk.schema(&mut copy, "", 0);
        if walk.left > 0 && !walk.left_out.is_empty() && Validator::new(&copy).is_ok() {
            return Some(LooseSchema {
                schema: copy,
                left_out: walk.left_out,
            });
        }
    }
    Some(LooseSchema {
        schema: names_of(schema),
        left_out: vec![Violation {
            pointer: String::new(),
            reason: fault.to_string(),
        }],
    })
}

/// True for the address of a dialect that is known.
fn is_usable(dialect: &Value) -> bool {
    Validator::new(&json!({"$schema": dialect})).is_ok()
}

/// The type, texts and names of properties of a schema.
fn names_of(schema: &Value) -> Value {
    let texts = |schema: &Value| {
        let texts = TOLD.iter().filter_map(|key| {
            let text = schema.get(*key).filter(|text| text.is_string())?;
            Some(((*key).to_owned(), text.clone()))
        });
        texts.collect::<Map<String, Value>>()
    };
    let mut whole = texts(schema);
    if schema.get("type").is_some_and(|ty| ty == "object") {
        whole.insert("type".into(), "object".into());
    }
    if let Some(Value::Object(properties)) = schema.get("properties") {
        let properties = properties.iter();
        let properties =
            properties.map(|(name, schema)| (name.clone(), Value::Object(texts(schema))));
        whole.insert("properties".into(), Value::Object(properties.collect()));
    }
    whole.into()
}

struct LooseningWalk<'a> {
    tree: SchemaTree<'a>,
    dialect: Option<&'a Value>,
    left_out: Vec<Violation>,
    /// Keywords that may still be looked at.
    left: usize,
    /// Bytes of patterns that may still be compiled: each one that is large takes a tenth of a second.
    pattern_bytes: u64,
    /// True if something was left out in a schema that references may lead to.
    has_looser_definition: bool,
}

impl LooseningWalk<'_> {
    /// Leaves out what cannot be checked in a schema at `place`. True if there was something.
    fn schema(&mut self, schema: &mut Value, place: &str, depth: usize) -> bool {
        let Value::Object(keywords) = schema else {
            return false;
        };
        if depth > MAX_DEPTH {
            self.left = 0;
            return false;
        }
        let before = self.left_out.len();
        let mut gone: Vec<&str> = Vec::new();
        let mut names: Vec<String> = keywords.keys().cloned().collect();
        names.sort_by_key(|name| !matches!(name.as_str(), "$defs" | "definitions"));
        for name in &names {
            let place = inside(place, name);
            let Some(value) = keywords.get_mut(name) else {
                continue;
            };
            if self.left == 0 {
                return false;
            }
            self.left -= 1;
            if !self.compiles(name, value) {
                self.left = 0;
                return false;
            }
            if let Some(reason) = self.fault(name, value) {
                self.left_out.push(Violation {
                    pointer: place,
                    reason,
                });
                keywords.shift_remove(name);
                gone.push(name);
                continue;
            }
            let is_turned = TURNED.contains(&name.as_str());
            let refers = is_turned && value.to_string().contains("\"$ref\"");
            let is_looser = self.parts(name, value, &place, depth);
            if matches!(name.as_str(), "$defs" | "definitions") {
                self.has_looser_definition |= is_looser;
            }
            if is_turned && (is_looser || (refers && self.has_looser_definition)) {
                turn(keywords, name);
            }
        }
        let is_looser = self.left_out.len() > before;
        // What a definition says no more was not left over before.
        if is_looser || self.has_looser_definition {
            for keyword in ["unevaluatedProperties", "unevaluatedItems"] {
                keywords.shift_remove(keyword);
            }
        }
        for (rest, of) in LEFT_OVER {
            if of.iter().any(|keyword| gone.contains(keyword)) {
                keywords.shift_remove(rest);
            }
        }
        is_looser
    }

    /// Leaves out what cannot be checked in the schemas of one keyword.
    fn parts(&mut self, name: &str, value: &mut Value, place: &str, depth: usize) -> bool {
        let before = self.left_out.len();
        match value {
            Value::Object(named) if NAMED.contains(&name) => {
                for (own, schema) in named {
                    self.schema(schema, &inside(place, own), depth + 1);
                }
            }
            Value::Array(several) if SEVERAL.contains(&name) => {
                for (at, schema) in several.iter_mut().enumerate() {
                    self.schema(schema, &format!("{place}/{at}"), depth + 1);
                }
            }
            one if ONE.contains(&name) => {
                self.schema(one, place, depth + 1);
            }
            _ => {}
        }
        self.left_out.len() > before
    }

    /// Counts the patterns of one keyword. False if all of them together are too large to be compiled one by one.
    fn compiles(&mut self, name: &str, value: &Value) -> bool {
        let patterns: Vec<&str> = match (name, value) {
            ("pattern", Value::String(pattern)) => vec![pattern],
            ("patternProperties", Value::Object(named)) => {
                named.keys().map(String::as_str).collect()
            }
            _ => return true,
        };
        // With more, the keyword is refused before any is compiled again.
        patterns.into_iter().take(MAX_PATTERNS).all(|pattern| {
            let bytes = match pattern::bytes(pattern) {
                Ok(bytes) => bytes,
                // So large that compiling it was tried in vain.
                Err(PatternFault::TooLarge) => MAX_PATTERN_BYTES / MAX_TOO_LARGE,
                Err(PatternFault::Backtracking | PatternFault::TooLong) => 0,
            };
            match self.pattern_bytes.checked_sub(bytes) {
                Some(left) => {
                    self.pattern_bytes = left;
                    true
                }
                None => false,
            }
        })
    }

    /// Returns the reason if one keyword cannot be checked; the schemas in it are not looked at.
    fn fault(&self, name: &str, value: &Value) -> Option<String> {
        if REFERENCES.contains(&name)
            && let Some(reference) = value.as_str()
        {
            let is_there = !self.tree.targets(reference).is_empty()
                || Validator::new(&json!({"$ref": reference})).is_ok();
            let shown = cut(reference, MAX_REFERENCE_CHARS);
            return (!is_there).then(|| format!("there is no {shown:?} in the schema"));
        }
        let mut alone = Map::new();
        if let Some(dialect) = self.dialect.filter(|_| name != "$schema") {
            alone.insert("$schema".into(), dialect.clone());
        }
        alone.insert(name.to_owned(), shape(name, value));
        let fault = Validator::new(&Value::Object(alone)).err()?;
        Some(fault.to_string())
    }
}

/// The value of a keyword with schemas that hold for anything in the place of its own.
fn shape(name: &str, value: &Value) -> Value {
    let any = |schema: &Value| match schema {
        Value::Object(_) => json!({}),
        other => other.clone(),
    };
    match value {
        Value::Object(named) if NAMED.contains(&name) => {
            let named = named.iter().map(|(name, own)| (name.clone(), any(own)));
            Value::Object(named.collect())
        }
        Value::Array(several) if SEVERAL.contains(&name) => several.iter().map(any).collect(),
        one if ONE.contains(&name) => any(one),
        other => other.clone(),
    }
}

/// Has a keyword hold for all for which it held before a schema in it was made looser.
fn turn(keywords: &mut Map<String, Value>, name: &str) {
    let own = keywords.shift_remove(name);
    match (name, own) {
        ("if", _) => {
            keywords.shift_remove("then");
            keywords.shift_remove("else");
        }
        ("oneOf", Some(own)) if !keywords.contains_key("anyOf") => {
            keywords.insert("anyOf".into(), own);
        }
        ("contains", Some(own)) if !keywords.contains_key("maxContains") => {
            keywords.insert("contains".into(), own);
        }
        _ => {}
    }
}

/// The JSON pointer to a member of what is at `place`.
fn inside(place: &str, name: &str) -> String {
    format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(schema: &Value) -> (Value, Vec<String>) {
        let LooseSchema { schema, left_out } = loosened(schema).unwrap();
        assert!(Validator::new(&schema).is_ok(), "{schema}");
        let places = left_out.into_iter().map(|fault| fault.pointer);
        (schema, places.collect())
    }

    #[test]
    fn a_schema_that_can_be_checked_is_left_as_it_is() {
        for schema in [
            json!({"type": "object", "properties": {"a": {"pattern": "^a$"}}}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}),
            json!(true),
        ] {
            assert_eq!(loosened(&schema), None, "{schema}");
        }
    }

    #[test]
    fn a_keyword_that_cannot_be_checked_is_left_out_and_told() {
        for (schema, rest, places) in [
            (
                json!({"properties": {"a": {"type": "string", "pattern": "^(?!x)a", "maxLength": 3}}}),
                json!({"properties": {"a": {"type": "string", "maxLength": 3}}}),
                vec!["/properties/a/pattern"],
            ),
            (
                json!({"properties": {"a": {"$ref": "#/$defs/none", "description": "d"}, "b": {"$ref": "#/$defs/b"}},
                    "$defs": {"b": {"type": "integer"}}}),
                json!({"properties": {"a": {"description": "d"}, "b": {"$ref": "#/$defs/b"}},
                    "$defs": {"b": {"type": "integer"}}}),
                vec!["/properties/a/$ref"],
            ),
            (
                json!({"properties": {"a/b": {"type": "text"}, "c": {"$ref": "https://example.com/x.json"}}, "required": ["c"]}),
                json!({"properties": {"a/b": {}, "c": {}}, "required": ["c"]}),
                vec!["/properties/a~1b/type", "/properties/c/$ref"],
            ),
            (
                json!({"properties": {"a": {"type": "string", "required": true}}}),
                json!({"properties": {"a": {"type": "string"}}}),
                vec!["/properties/a/required"],
            ),
            (
                json!({"items": {"anyOf": [{"pattern": "(a)\\1"}, {"minimum": 1}]}}),
                json!({"items": {"anyOf": [{}, {"minimum": 1}]}}),
                vec!["/items/anyOf/0/pattern"],
            ),
        ] {
            let places: Vec<String> = places.into_iter().map(str::to_owned).collect();
            assert_eq!(left_out(&schema), (rest, places), "{schema}");
        }
    }

    #[test]
    fn values_still_fit_under_a_keyword_that_negates_another() {
        let bad = json!({"pattern": "(?=a)a"});
        for schema in [
            json!({"not": bad, "type": "string"}),
            json!({"type": "string", "if": bad, "then": {"maxLength": 0}}),
            json!({"type": "string", "oneOf": [bad, {"maxLength": 9}]}),
            json!({"type": "string", "not": {"$ref": "#/$defs/a"}, "$defs": {"a": bad}}),
        ] {
            let (rest, _) = left_out(&schema);
            let validator = Validator::new(&rest).unwrap();
            for value in ["", "a", "b"] {
                assert!(validator.check(&json!(value)).is_ok(), "{rest} {value}");
            }
            assert!(validator.check(&json!(7)).is_err(), "{rest}");
        }
        let closed = json!({
            "type": "object", "properties": {"a": {}}, "patternProperties": {"^(?!x)": {}}, "additionalProperties": false,
        });
        let (rest, _) = left_out(&closed);
        let validator = Validator::new(&rest).unwrap();
        assert!(validator.check(&json!({"a": 1, "b": 2})).is_ok(), "{rest}");
    }

    /// A definition describes fewer properties than before, so that more would be left over.
    #[test]
    fn properties_beside_a_looser_definition_are_not_refused() {
        let schema = json!({
            "$defs": {"a": {"patternProperties": {"^(?!x)": {}}}},
            "properties": {"p": {"type": "object", "$ref": "#/$defs/a", "unevaluatedProperties": false}},
        });
        let (rest, _) = left_out(&schema);
        let validator = Validator::new(&rest).unwrap();
        assert!(validator.check(&json!({"p": {"b": 1}})).is_ok(), "{rest}");
        assert!(validator.check(&json!({"p": 1})).is_err(), "{rest}");
    }

    /// Each of these patterns takes long to compile.
    #[test]
    fn large_patterns_are_compiled_a_few_times() {
        let named = |pattern: &str| -> Map<String, Value> {
            let each = (0..400).map(|n| {
                let schema = json!({"pattern": format!("{pattern}{n}"), "description": "d"});
                (format!("p{n}"), schema)
            });
            each.collect()
        };
        let begun = std::time::Instant::now();
        for pattern in ["[\\p{L}]{900}", "[\\p{L}]{99999}"] {
            let mut properties = named(pattern);
            properties.insert("bad".into(), json!({"pattern": "(?=a)a"}));
            let (rest, places) = left_out(&json!({"type": "object", "properties": properties}));
            assert_eq!(places, [""], "{pattern}");
            assert_eq!(rest["properties"]["p0"], json!({"description": "d"}));
        }
        assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    }

    #[test]
    fn an_oversized_schema_keeps_the_names() {
        let mut deep = json!({"type": "string"});
        for _ in 0..300 {
            deep = json!({"items": deep});
        }
        let schema =
            json!({"type": "object", "properties": {"a": {"description": "d", "items": deep}}});
        let (rest, places) = left_out(&schema);
        assert_eq!(
            rest,
            json!({"type": "object", "properties": {"a": {"description": "d"}}})
        );
        assert_eq!(places, [""]);
    }
}
