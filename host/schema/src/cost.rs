//! What a schema may cost, looked at before anything is built from it (docs/security.md, "Work that schemas cause").
//!
//! jsonschema follows references while it builds and while it validates, without a bound of its own. Here
//! the schema is walked once, each subschema is counted once, and what a reference repeats is added up, so
//! 2³⁶ copies take as long to refuse as two.
//!
//! A keyword applies *in place* (`allOf`, `$ref`, `if` and the like: to the same value) or *below*
//! (`properties`, `items`: to a part of it). Only what applies in place multiplies without a value that
//! pays for it, so that is what is bounded; what applies below is counted while a value is read.

use crate::bounds::{
    MAX_IN_PLACE, MAX_IN_PLACE_DEPTH, MAX_PATTERN_BYTES, MAX_PATTERNS, MAX_TRACKED, SchemaTooCostly,
};
use crate::metered::{FAR, size};
use crate::pattern;
use crate::tree::SchemaTree;
use crate::weights::Weights;
use serde_json::{Map, Value};
use std::collections::HashMap;
use toolhold_text::cut;

/// Steps of a fault that is written down, without what it copies: about 600 bytes.
const FAULT_STEPS: u64 = 64;
/// Bytes that a fault copies, for one step.
const FAULT_BYTES_A_STEP: u64 = 4;
/// Steps to divide by a `multipleOf` that is a fraction.
const STEPS_OF_FACTOR: u64 = 8;
/// Steps to divide by one that is far from 1: bit by bit.
const STEPS_OF_FAR_FACTOR: u64 = 300;
/// Schemas in place that do not read the value, for one step.
const SILENT_A_STEP: u64 = 4;
/// What checks a format, or content that is encoded, looks at each byte of a text.
const TEXT_BY_BYTE: u64 = 32;

/// The cost of checks by a schema, and of keeping it.
pub(crate) struct SchemaCost {
    pub weights: Weights,
    /// The most entries that apply to one value.
    pub entries: u64,
    /// Bytes of its compiled patterns.
    pub pattern_bytes: u64,
}

/// The cost of a schema.
///
/// # Errors
/// Why the schema is refused.
pub(crate) fn weigh(schema: &Value) -> Result<SchemaCost, SchemaTooCostly> {
    let document = SchemaTree::of(schema)?;
    let mut weighing = Weighing::new(&document);
    weighing.below.push((schema, String::new()));
    while let Some((schema, place)) = weighing.below.pop() {
        weighing.in_place(schema, &place, 0)?;
    }
    if weighing.pattern_bytes > MAX_PATTERN_BYTES || weighing.patterns.len() > MAX_PATTERNS {
        return Err(SchemaTooCostly::Patterns);
    }
    let weights = Weights {
        child: 1 + weighing.silent / SILENT_A_STEP,
        text: weighing.text,
        number: weighing.number,
        name: 1 + weighing.name,
        constant: 1 + weighing.constant,
        fault: FAULT_STEPS + document.longest / FAULT_BYTES_A_STEP,
    };
    Ok(SchemaCost {
        weights,
        entries: weighing.entries,
        pattern_bytes: weighing.pattern_bytes,
    })
}

/// What one schema does to one value, with references followed.
#[derive(Debug, Clone, Copy, Default)]
struct InPlace {
    /// Keywords and their entries.
    entries: u64,
    /// Schemas that do not read the value.
    silent: u64,
    /// The weights of `patternProperties`.
    names: u64,
    height: usize,
}

impl InPlace {
    fn add(&mut self, inner: Self) {
        self.entries = self.entries.saturating_add(inner.entries);
        self.silent = self.silent.saturating_add(inner.silent);
        self.names = self.names.saturating_add(inner.names);
        self.height = self.height.max(inner.height + 1);
    }

    /// `unevaluated…` looks at all of it again, to know what was evaluated.
    fn again(self) -> Self {
        Self {
            entries: self.entries.saturating_mul(3),
            silent: self.silent.saturating_mul(3),
            names: self.names.saturating_mul(3),
            height: self.height,
        }
    }
}

/// The meta-schemas that jsonschema has built in: what one of them does to one value.
const META: InPlace = InPlace {
    entries: 512,
    silent: 32,
    names: 1,
    height: 4,
};

const META_SCHEMAS: [&str; 2] = [
    "http://json-schema.org/draft-",
    "https://json-schema.org/draft/",
];
/// Maximum characters of a place in a message.
const MAX_SHOWN: usize = 200;

struct Weighing<'a> {
    document: &'a SchemaTree<'a>,
    /// Schemas that apply to parts of a value, with their places.
    below: Vec<(&'a Value, String)>,
    /// By address; `None` while it is looked at.
    known: HashMap<*const Value, Option<InPlace>>,
    patterns: HashMap<&'a str, u64>,
    pattern_bytes: u64,
    tracked: u64,
    entries: u64,
    silent: u64,
    text: u64,
    name: u64,
    number: u64,
    constant: u64,
}

impl<'a> Weighing<'a> {
    fn new(document: &'a SchemaTree<'a>) -> Self {
        Self {
            document,
            below: Vec::new(),
            known: HashMap::new(),
            patterns: HashMap::new(),
            pattern_bytes: 0,
            tracked: 0,
            entries: 0,
            silent: 0,
            text: 1,
            name: 0,
            number: 1,
            constant: 0,
        }
    }

    /// What `schema` does to one value.
    fn in_place(
        &mut self,
        schema: &'a Value,
        place: &str,
        depth: usize,
    ) -> Result<InPlace, SchemaTooCostly> {
        let address = std::ptr::from_ref(schema);
        match self.known.get(&address) {
            Some(Some(known)) => return Ok(*known),
            Some(None) => {
                return Err(SchemaTooCostly::Endless {
                    place: shown(place),
                });
            }
            None if depth > MAX_IN_PLACE_DEPTH => {
                return Err(SchemaTooCostly::Chain {
                    place: shown(place),
                });
            }
            None => {}
        }
        self.known.insert(address, None);
        let whole = match schema {
            Value::Object(keywords) => self.keywords(keywords, place, depth)?,
            _ => InPlace {
                entries: 1,
                silent: 1,
                ..InPlace::default()
            },
        };
        if whole.entries > MAX_IN_PLACE {
            return Err(SchemaTooCostly::Expanded {
                place: shown(place),
            });
        }
        if whole.height > MAX_IN_PLACE_DEPTH {
            return Err(SchemaTooCostly::Chain {
                place: shown(place),
            });
        }
        self.entries = self.entries.max(whole.entries);
        self.silent = self.silent.max(whole.silent);
        self.name = self.name.max(whole.names);
        self.known.insert(address, Some(whole));
        Ok(whole)
    }

    fn keywords(
        &mut self,
        keywords: &'a Map<String, Value>,
        place: &str,
        depth: usize,
    ) -> Result<InPlace, SchemaTooCostly> {
        let mut whole = InPlace {
            entries: 1,
            ..InPlace::default()
        };
        for (keyword, value) in keywords {
            let at = format!("{place}/{}", escaped(keyword));
            whole.entries = whole.entries.saturating_add(1 + entries(value));
            let inner = match applied(keyword) {
                Applied::InPlace => parts(keyword, value, &at),
                Applied::Reference => self.referred(value, &at, &mut whole)?,
                Applied::Below => {
                    self.below.extend(parts(keyword, value, &at));
                    Vec::new()
                }
                Applied::Nowhere => {
                    self.assertion(keyword, value, &at)?;
                    Vec::new()
                }
            };
            if keyword == "patternProperties" {
                for pattern in value.as_object().into_iter().flat_map(Map::keys) {
                    let bytes = self.pattern(pattern, &at)?;
                    whole.names = whole.names.saturating_add(pattern::weight(bytes));
                }
            }
            for (schema, at) in inner {
                let inner = self.in_place(schema, &at, depth + 1)?;
                whole.add(inner);
            }
        }
        if !is_read(keywords) {
            whole.silent = whole.silent.saturating_add(1);
        }
        let tracks = ["unevaluatedProperties", "unevaluatedItems"];
        if tracks.iter().any(|keyword| keywords.contains_key(*keyword)) {
            whole = whole.again();
            self.tracked = self.tracked.saturating_add(whole.entries);
            if self.tracked > MAX_TRACKED {
                return Err(SchemaTooCostly::Tracked);
            }
        }
        Ok(whole)
    }

    /// The schemas that a reference may lead to.
    fn referred(
        &self,
        reference: &'a Value,
        place: &str,
        whole: &mut InPlace,
    ) -> Result<Vec<(&'a Value, String)>, SchemaTooCostly> {
        let Value::String(reference) = reference else {
            return Ok(Vec::new());
        };
        let targets = self.document.targets(reference);
        if targets.is_empty() {
            if !META_SCHEMAS.iter().any(|meta| reference.starts_with(meta)) {
                return Err(SchemaTooCostly::Elsewhere {
                    place: shown(place),
                    reference: shown(reference),
                });
            }
            whole.add(META);
        }
        let place = reference.split_once('#').map_or("", |(_, place)| place);
        let targets = targets.into_iter();
        Ok(targets.map(|target| (target, place.to_owned())).collect())
    }

    /// A keyword that holds no schema.
    fn assertion(
        &mut self,
        keyword: &str,
        value: &'a Value,
        place: &str,
    ) -> Result<(), SchemaTooCostly> {
        match (keyword, value) {
            ("const" | "enum", _) => self.constant = self.constant.max(size(value)),
            ("pattern", Value::String(pattern)) => {
                let bytes = self.pattern(pattern, place)?;
                self.text = self.text.max(pattern::weight(bytes));
            }
            ("format" | "contentEncoding" | "contentMediaType", _) => {
                self.text = self.text.max(TEXT_BY_BYTE);
            }
            ("multipleOf", Value::Number(factor)) if !factor.is_u64() => {
                let size = factor.as_f64().unwrap_or_default().abs();
                let is_far = !(1.0 / FAR..FAR).contains(&size);
                let steps = if is_far {
                    STEPS_OF_FAR_FACTOR
                } else {
                    STEPS_OF_FACTOR
                };
                self.number = self.number.max(steps);
            }
            _ => {}
        }
        Ok(())
    }

    /// Bytes of a compiled pattern.
    fn pattern(&mut self, pattern: &'a str, place: &str) -> Result<u64, SchemaTooCostly> {
        if let Some(known) = self.patterns.get(pattern) {
            return Ok(*known);
        }
        if self.patterns.len() >= MAX_PATTERNS {
            return Err(SchemaTooCostly::Patterns);
        }
        let bytes = pattern::bytes(pattern).map_err(|fault| SchemaTooCostly::Pattern {
            place: shown(place),
            fault,
        })?;
        self.pattern_bytes += bytes;
        if self.pattern_bytes > MAX_PATTERN_BYTES {
            return Err(SchemaTooCostly::Patterns);
        }
        self.patterns.insert(pattern, bytes);
        Ok(bytes)
    }
}

/// Where the schemas apply that a keyword holds.
enum Applied {
    InPlace,
    Reference,
    Below,
    /// It holds none.
    Nowhere,
}

fn applied(keyword: &str) -> Applied {
    match keyword {
        "$ref" | "$dynamicRef" | "$recursiveRef" => Applied::Reference,
        "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" | "dependentSchemas"
        | "dependencies" => Applied::InPlace,
        "properties"
        | "patternProperties"
        | "additionalProperties"
        | "propertyNames"
        | "unevaluatedProperties"
        | "items"
        | "prefixItems"
        | "additionalItems"
        | "contains"
        | "unevaluatedItems"
        | "contentSchema" => Applied::Below,
        _ => Applied::Nowhere,
    }
}

/// The schemas within a keyword's value: itself, a list of them, or a map of them.
fn parts<'a>(keyword: &str, value: &'a Value, place: &str) -> Vec<(&'a Value, String)> {
    let is_map = matches!(
        keyword,
        "properties" | "patternProperties" | "dependentSchemas" | "dependencies"
    );
    match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items
                .map(|(index, item)| (item, format!("{place}/{index}")))
                .collect()
        }
        // Of `dependencies` some are lists of names.
        Value::Object(fields) if is_map => {
            let schemas = fields.iter().filter(|(_, value)| !value.is_array());
            schemas
                .map(|(name, value)| (value, format!("{place}/{}", escaped(name))))
                .collect()
        }
        schema => vec![(schema, place.to_owned())],
    }
}

/// Whether each evaluation of a schema with these keywords reads the value, and so pays for itself.
fn is_read(keywords: &Map<String, Value>) -> bool {
    // Below draft 2019-09 a reference puts all other keywords out of force.
    if keywords.contains_key("$ref") {
        return false;
    }
    keywords
        .iter()
        .any(|(keyword, value)| match keyword.as_str() {
            "type" | "const" | "pattern" | "minimum" | "maximum" | "exclusiveMinimum"
            | "exclusiveMaximum" | "multipleOf" | "uniqueItems" => true,
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties"
            | "maxProperties" => value.as_f64().is_some_and(|least| least > 0.0),
            "enum" | "required" | "properties" | "contains" => entries(value) > 0,
            _ => false,
        })
}

/// Entries of a keyword's value that are looked at one by one.
fn entries(value: &Value) -> u64 {
    let length = |value: &Value| value.as_array().map_or(0, |items| items.len() as u64);
    match value {
        Value::Object(fields) => fields.values().map(|inner| 1 + length(inner)).sum(),
        list => length(list),
    }
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// A place, or a reference, in a message.
fn shown(text: &str) -> String {
    cut(text, MAX_SHOWN)
}
