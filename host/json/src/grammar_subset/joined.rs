//! Keywords that hold together, from wherever in a schema they are.

use serde_json::{Map, Value};
use std::collections::HashMap;
use toolhold_schema::size;

/// Keywords that say something about a reduced schema. Beside others than these, alternatives stay as they are.
const TELLING: [&str; 24] = [
    "type",
    "enum",
    "const",
    "properties",
    "patternProperties",
    "additionalProperties",
    "required",
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
];

/// Keywords that hold lists, or schemas by names, all of which are looked at together.
const LISTS: [&str; 11] = [
    "allOf",
    "anyOf",
    "oneOf",
    "properties",
    "patternProperties",
    "required",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "prefixItems",
    "items",
];

/// Keywords that combine schemas, or refer to one.
const COMBINING: [&str; 7] = ["allOf", "anyOf", "oneOf", "if", "then", "else", "$ref"];

/// Keywords with the schemas of an object's members and a list's items.
const DESCRIBED: [&str; 5] = [
    "properties",
    "patternProperties",
    "additionalProperties",
    "items",
    "prefixItems",
];

/// The types of JSON Schema.
const TYPES: [&str; 7] = [
    "object", "array", "string", "integer", "number", "boolean", "null",
];

/// A schema that may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Perhaps<'s> {
    pub schema: &'s Value,
    /// True for a condition. Where it does not hold, the properties that it names may have any value.
    pub is_condition: bool,
}

/// Schemas that all hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Joined<'s> {
    /// Keywords of each, without what combines them.
    pub parts: Vec<&'s Map<String, Value>>,
    /// Alternatives: of each list, at least one holds.
    pub unions: Vec<&'s [Value]>,
    /// Schemas that hold in some cases, because of which there may be properties that no part names.
    pub perhaps: Vec<Perhaps<'s>>,
    /// References whose schemas are among the parts.
    pub references: Vec<&'s str>,
    /// True if a schema that holds is not known, so that there may be any property.
    pub is_open: bool,
}

impl<'s> Joined<'s> {
    /// True if the parts say nothing that changes the alternatives.
    pub fn is_bare(&self) -> bool {
        !self.is_open
            && self.perhaps.is_empty()
            && !self.parts.iter().any(|part| {
                let opens = part.get("unevaluatedProperties");
                opens.is_some_and(|own| *own != Value::Bool(false))
                    || TELLING.iter().any(|keyword| part.contains_key(*keyword))
            })
    }

    /// Values of `keyword`, in the order of the parts.
    pub fn each<'j>(&'j self, keyword: &'j str) -> impl Iterator<Item = &'s Value> + 'j {
        self.parts.iter().filter_map(move |part| part.get(keyword))
    }

    /// Schemas by name under `keyword`.
    pub fn named<'j>(
        &'j self,
        keyword: &'j str,
    ) -> impl Iterator<Item = (&'s String, &'s Value)> + 'j {
        self.each(keyword).filter_map(Value::as_object).flatten()
    }

    /// The shortest list of values that hold everything that fits, with its keyword.
    pub fn values(&self) -> Option<(&'static str, &'s Value)> {
        let each = self.parts.iter().filter_map(|part| {
            let only = part.get("const").map(|only| (1, "const", only));
            only.or_else(|| {
                let values = part.get("enum")?;
                Some((values.as_array()?.len(), "enum", values))
            })
        });
        let shortest = each
            .filter(|(count, ..)| *count > 0)
            .min_by_key(|(count, ..)| *count);
        shortest.map(|(_, keyword, values)| (keyword, values))
    }

    /// The types that a value may have; `None` if no part names one.
    pub fn types(&self) -> Option<Vec<&'s str>> {
        let mut all: Option<Vec<&'s str>> = None;
        for part in &self.parts {
            let Some(own) = types(part) else { continue };
            all = Some(match all {
                None => own,
                Some(before) => both(&before, &own),
            });
        }
        all
    }

    /// Properties that the parts name, counted once for each part.
    pub fn size(&self) -> usize {
        let named = self.each("properties").filter_map(Value::as_object);
        self.parts.len() + named.map(Map::len).sum::<usize>()
    }

    /// Work of copying it.
    pub fn weight(&self) -> u64 {
        let copied = [
            self.parts.len(),
            self.unions.len(),
            self.perhaps.len(),
            self.references.len(),
        ];
        1 + copied.iter().sum::<usize>() as u64
    }

    /// Size of the schemas of its members. `sizes` has those of parts that were measured before.
    pub fn described(&self, sizes: &mut HashMap<*const Map<String, Value>, u64>) -> u64 {
        let measured = |part: &&Map<String, Value>| {
            let members = DESCRIBED.iter().filter_map(|keyword| part.get(*keyword));
            1 + members.map(size).sum::<u64>()
        };
        let each = self.parts.iter().map(|part| {
            let known = sizes.entry(std::ptr::from_ref(*part));
            *known.or_insert_with(|| measured(part))
        });
        each.sum()
    }

    /// Makes the alternatives what may hold: too many of them hold beside each other.
    pub fn fold(&mut self) {
        for union in std::mem::take(&mut self.unions) {
            self.perhaps.extend(union.iter().map(|schema| Perhaps {
                schema,
                is_condition: false,
            }));
        }
    }
}

/// The types of one schema, each once; `None` if it names none, or one that is unknown.
fn types(keywords: &Map<String, Value>) -> Option<Vec<&str>> {
    let mut types = Vec::new();
    let own = keywords.get("type")?;
    let own = own
        .as_array()
        .map_or(std::slice::from_ref(own), Vec::as_slice);
    for ty in own {
        let ty = ty.as_str().filter(|ty| TYPES.contains(ty))?;
        // Each type reduces the parts again: one that is listed twice doubles them at each level.
        if !types.contains(&ty) {
            types.push(ty);
        }
    }
    if keywords.get("nullable") == Some(&Value::Bool(true)) && !types.contains(&"null") {
        types.push("null");
    }
    Some(types)
}

/// Types of values that are of one of `a` and of one of `b`.
fn both<'s>(a: &[&'s str], b: &[&'s str]) -> Vec<&'s str> {
    let mut types = Vec::new();
    for ty in a {
        let ty = match *ty {
            ty if b.contains(&ty) => ty,
            "integer" if b.contains(&"number") => "integer",
            "number" if b.contains(&"integer") => "integer",
            _ => continue,
        };
        if !types.contains(&ty) {
            types.push(ty);
        }
    }
    types
}

/// The reference that a schema is, where it says nothing else. Before draft 2019-09 nothing beside one counts.
pub(super) fn lone_reference(keywords: &Map<String, Value>, is_old: bool) -> Option<&str> {
    let reference = keywords.get("$ref")?.as_str()?;
    let is_lone = || says_only(keywords, "$ref");
    (is_old || is_lone()).then_some(reference)
}

/// The only schema of an `allOf`, where nothing else is said.
pub(super) fn lone_part(keywords: &Map<String, Value>) -> Option<&Value> {
    match keywords.get("allOf")?.as_array()?.as_slice() {
        [only] if says_only(keywords, "allOf") => Some(only),
        _ => None,
    }
}

fn says_only(keywords: &Map<String, Value>, only: &str) -> bool {
    let others = ["unevaluatedProperties", "$dynamicRef", "$recursiveRef"];
    let mut telling = TELLING.iter().chain(&COMBINING).chain(&others);
    !telling.any(|keyword| *keyword != only && keywords.contains_key(*keyword))
}

/// Schemas of a schema that hold in some cases.
pub(super) fn perhaps(keywords: &Map<String, Value>) -> impl Iterator<Item = Perhaps<'_>> {
    let conditional = ["if", "then", "else"]
        .into_iter()
        .filter_map(move |keyword| {
            Some(Perhaps {
                schema: keywords.get(keyword)?,
                is_condition: keyword == "if",
            })
        });
    let dependent = ["dependentSchemas", "dependencies"].into_iter();
    let dependent = dependent
        .filter_map(move |keyword| keywords.get(keyword)?.as_object())
        .flat_map(Map::values)
        .map(|schema| Perhaps {
            schema,
            is_condition: false,
        });
    conditional.chain(dependent)
}

/// Work of looking at the keywords of one schema, without the schemas in it.
pub(super) fn weight(keywords: &Map<String, Value>) -> u64 {
    let length = |keyword: &&str| match keywords.get(*keyword) {
        Some(Value::Array(items)) => items.len(),
        // One schema.
        Some(Value::Object(_)) if *keyword == "items" => 0,
        Some(Value::Object(named)) => {
            let inner = named.values().filter_map(Value::as_array);
            named.len() + inner.map(Vec::len).sum::<usize>()
        }
        _ => 0,
    };
    1 + LISTS.iter().map(length).sum::<usize>() as u64
}
