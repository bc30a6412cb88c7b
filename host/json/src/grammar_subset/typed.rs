//! Schemas of one type, in the keywords that every grammar has.

use super::MAX_DEPTH;
use super::joined::{Joined, Perhaps, perhaps, weight};
use super::limits::{put_bounds, put_limits, put_text};
use super::reduction::{Reduction, any_of};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use toolhold_schema::size;

/// The schema of what may be anything.
static ANY: Value = Value::Bool(true);

/// Members of an object of one alternative.
#[derive(Debug)]
pub(super) struct AlternativeMembers {
    pub properties: Map<String, Value>,
    /// Names of properties that must be there, all of which have a schema.
    pub required: Vec<String>,
    /// True if the schema says what must be there, even if it is nothing.
    requires: bool,
    /// `None` if its author said nothing of properties at all.
    pub additional: Option<Value>,
}

impl AlternativeMembers {
    /// Members of any object.
    fn any() -> Self {
        Self {
            properties: Map::new(),
            required: Vec::new(),
            requires: false,
            additional: Some(json!({})),
        }
    }
}

/// Properties that an object may have because of schemas that hold in some cases.
#[derive(Debug, Default)]
struct Mentions<'s> {
    names: Vec<&'s str>,
    schemas: HashMap<&'s str, Vec<&'s Value>>,
    /// Names of properties that some case requires without a schema.
    needed: Vec<&'s str>,
    /// Schemas of properties without a name.
    additional: Vec<&'s Value>,
    is_open: bool,
    /// True if a list may have items that no part describes.
    has_items: bool,
    /// References that were followed, and whether a condition led to them.
    references: HashSet<(&'s str, bool)>,
}

/// One part's statement about the items of a list.
struct ListPart<'s> {
    prefix: &'s [Value],
    /// Schema of the items behind the prefix.
    items: Option<&'s Value>,
    /// Schemas of items that none of the two describes.
    others: Vec<&'s Value>,
}

impl<'s> Reduction<'_, 's> {
    pub(super) fn typed(&mut self, joined: &Joined<'s>, depth: usize) -> Value {
        let types = match joined.types() {
            Some(types) => types,
            None if joined.each("properties").next().is_some() => vec!["object"],
            None => return json!({}),
        };
        let mut branches: Vec<Value> = types
            .iter()
            .map(|ty| self.one_type(ty, joined, depth))
            .collect();
        match branches.len() {
            0 => json!({}),
            1 => branches.remove(0),
            _ => json!({"anyOf": branches}),
        }
    }

    fn one_type(&mut self, ty: &str, joined: &Joined<'s>, depth: usize) -> Value {
        let mut out = Map::new();
        out.insert("type".into(), json!(ty));
        match ty {
            "object" => {
                let members = self.members(joined, depth);
                if members.requires {
                    out.insert("required".into(), json!(members.required));
                }
                if !members.properties.is_empty() {
                    out.insert("properties".into(), Value::Object(members.properties));
                }
                if let Some(additional) = members.additional {
                    out.insert("additionalProperties".into(), additional);
                }
            }
            "array" => {
                let (items, most) = self.items(joined, depth);
                out.insert("items".into(), items);
                put_bounds(joined, "minItems", "maxItems", most, &mut out);
            }
            "string" => put_text(joined, self.subset.max_string, &mut out),
            "integer" => put_limits(joined, true, &mut out),
            // One grammar ignores limits of numbers, so they are only there to be read.
            "number" if self.subset.keeps_descriptions => put_limits(joined, false, &mut out),
            _ => {}
        }
        Value::Object(out)
    }

    pub(super) fn members(&mut self, joined: &Joined<'s>, depth: usize) -> AlternativeMembers {
        if !self.spends(joined.size() as u64) {
            return AlternativeMembers::any();
        }
        let mut names: Vec<&'s str> = Vec::new();
        let mut schemas: HashMap<&'s str, Vec<&'s Value>> = HashMap::new();
        for (name, schema) in joined.named("properties") {
            schemas
                .entry(name)
                .or_insert_with(|| {
                    names.push(name);
                    Vec::new()
                })
                .push(schema);
        }
        let is_free = names.is_empty();
        let closing: Vec<&'s Value> = joined.each("additionalProperties").collect();
        for part in &joined.parts {
            let Some(others) = part.get("additionalProperties").filter(|own| is_told(own)) else {
                continue;
            };
            let patterns = part.get("patternProperties").and_then(Value::as_object);
            if patterns.is_some_and(|patterns| !patterns.is_empty()) {
                continue;
            }
            let own = part.get("properties").and_then(Value::as_object);
            for (name, all) in &mut schemas {
                if own.is_none_or(|own| !own.contains_key(*name)) {
                    all.push(others);
                }
            }
        }
        let mut properties = Map::new();
        for name in names {
            let all = schemas.remove(name).unwrap_or_default();
            // A property that nothing satisfies is not there.
            if !all.iter().any(|schema| **schema == Value::Bool(false)) {
                properties.insert(name.to_owned(), self.all(&all, depth + 1));
            }
        }
        let mentions = self.mentions(joined, depth);
        let mut additional = self.additional(joined, &closing, &mentions, is_free, depth);
        if closing.is_empty() {
            let others = additional.as_ref().filter(|own| **own != false);
            for name in &mentions.names {
                if let (false, Some(own)) =
                    (properties.contains_key(*name), mentions.schemas.get(name))
                {
                    let each: Vec<_> = own.iter().map(|schema| vec![*schema]).collect();
                    let mut branches = vec![self.any(&each, depth + 1)];
                    // Where the case does not hold, the property is one of the others.
                    branches.extend(others.map(|others| {
                        if self.spends(size(others)) {
                            others.clone()
                        } else {
                            json!({})
                        }
                    }));
                    properties.insert((*name).to_owned(), any_of(branches));
                }
            }
            for name in &mentions.needed {
                if !properties.contains_key(*name) {
                    properties.insert((*name).to_owned(), json!({}));
                }
            }
        }
        if additional.is_none() && !(is_free && properties.is_empty()) {
            additional = Some(if is_free { json!({}) } else { json!(false) });
        }
        let mut members = AlternativeMembers {
            properties,
            required: Vec::new(),
            requires: false,
            additional,
        };
        self.require(joined, !closing.is_empty(), is_free, &mut members);
        members
    }

    /// Schema of properties without a name; `None` where nothing is said of them. `is_free`: no part names a property.
    fn additional(
        &mut self,
        joined: &Joined<'s>,
        closing: &[&'s Value],
        mentions: &Mentions<'s>,
        is_free: bool,
        depth: usize,
    ) -> Option<Value> {
        let is_possible = |schema: &&Value| **schema != Value::Bool(false);
        let patterns = joined.named("patternProperties").map(|(_, schema)| schema);
        let mut each: Vec<Vec<&'s Value>> = patterns
            .filter(is_possible)
            .map(|schema| vec![schema])
            .collect();
        if closing.is_empty() {
            if joined.is_open || mentions.is_open || (is_free && has_other_names(joined)) {
                return Some(json!({}));
            }
            let unevaluated = joined.each("unevaluatedProperties");
            let others = unevaluated.chain(mentions.additional.iter().copied());
            each.extend(others.filter(is_possible).map(|schema| vec![schema]));
            return (!each.is_empty()).then(|| self.any(&each, depth + 1));
        }
        if closing.iter().all(is_possible) {
            each.push(closing.to_vec());
        }
        if each.is_empty() {
            return Some(json!(false));
        }
        Some(self.any(&each, depth + 1))
    }

    /// Names that must be there. One without a schema of its own confuses two of three grammars.
    fn require(
        &mut self,
        joined: &Joined<'s>,
        is_closed: bool,
        is_free: bool,
        members: &mut AlternativeMembers,
    ) {
        let mut seen: HashSet<&'s str> = HashSet::new();
        for own in joined.each("required").filter_map(Value::as_array) {
            members.requires = true;
            for name in own.iter().filter_map(Value::as_str) {
                if !seen.insert(name) {
                    continue;
                }
                if !members.properties.contains_key(name) {
                    let schema = match &members.additional {
                        Some(Value::Bool(false)) if is_closed => continue,
                        Some(own) if is_closed && self.spends(size(own)) => own.clone(),
                        _ => json!({}),
                    };
                    members.properties.insert(name.to_owned(), schema);
                    if is_free && members.additional.is_none() {
                        members.additional = Some(json!({}));
                    }
                }
                members.required.push(name.to_owned());
            }
        }
    }

    fn mentions(&mut self, joined: &Joined<'s>, depth: usize) -> Mentions<'s> {
        let mut mentions = Mentions::default();
        for part in &joined.parts {
            mentions.needed.extend(dependents(part));
        }
        for perhaps in &joined.perhaps {
            self.mention(*perhaps, &mut mentions, depth);
        }
        mentions
    }

    /// Finds the properties that a schema names, wherever in it.
    fn mention(&mut self, perhaps_holds: Perhaps<'s>, found: &mut Mentions<'s>, depth: usize) {
        let Value::Object(keywords) = perhaps_holds.schema else {
            return;
        };
        if depth > MAX_DEPTH || !self.spends(weight(keywords)) {
            found.is_open = true;
            found.has_items = true;
            return;
        }
        let Perhaps { is_condition, .. } = perhaps_holds;
        let as_told = |schema: &'s Value| if is_condition { &ANY } else { schema };
        let named = move |keyword: &str| keywords.get(keyword).and_then(Value::as_object);
        for (name, schema) in named("properties").into_iter().flatten() {
            let all = found.schemas.entry(name).or_insert_with(|| {
                found.names.push(name);
                Vec::new()
            });
            all.push(as_told(schema));
        }
        if !is_condition {
            let names = keywords.get("required").and_then(Value::as_array);
            let names = names.into_iter().flatten().filter_map(Value::as_str);
            found.needed.extend(names);
            found.needed.extend(dependents(keywords));
        }
        for (_, schema) in named("patternProperties").into_iter().flatten() {
            found.additional.push(as_told(schema));
        }
        for keyword in ["additionalProperties", "unevaluatedProperties"] {
            if let Some(schema) = keywords.get(keyword).filter(|own| **own != false) {
                found.additional.push(as_told(schema));
            }
        }
        let lists = [
            "items",
            "prefixItems",
            "additionalItems",
            "unevaluatedItems",
            "contains",
        ];
        found.has_items |= lists.iter().any(|keyword| keywords.contains_key(*keyword));
        if ["$dynamicRef", "$recursiveRef"]
            .iter()
            .any(|keyword| keywords.contains_key(*keyword))
        {
            found.is_open = true;
            found.has_items = true;
        }
        if let Some(Value::String(reference)) = keywords.get("$ref") {
            match self.target(reference) {
                _ if !found.references.insert((reference.as_str(), is_condition)) => {}
                Some(schema) => {
                    let target = Perhaps {
                        schema,
                        is_condition,
                    };
                    self.mention(target, found, depth + 1);
                }
                None => {
                    found.is_open = true;
                    found.has_items = true;
                }
            }
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let parts = keywords.get(keyword).and_then(Value::as_array);
            for schema in parts.into_iter().flatten() {
                let part = Perhaps {
                    schema,
                    is_condition,
                };
                self.mention(part, found, depth + 1);
            }
        }
        for inner in perhaps(keywords) {
            let inner = Perhaps {
                is_condition: is_condition || inner.is_condition,
                ..inner
            };
            self.mention(inner, found, depth + 1);
        }
    }

    /// Schema of a list's items, and how many there may be because of it.
    fn items(&mut self, joined: &Joined<'s>, depth: usize) -> (Value, Option<u64>) {
        let parts: Vec<ListPart<'s>> = joined.parts.iter().map(|part| list_part(part)).collect();
        let first = parts.iter().position(|part| !part.prefix.is_empty());
        let Some(first) = first.and_then(|first| parts.get(first)) else {
            let all: Vec<&'s Value> = parts.iter().filter_map(|part| part.items).collect();
            if all.iter().any(|items| **items == Value::Bool(false)) {
                return (json!({}), Some(0));
            }
            let items = match all.as_slice() {
                [] => json!({}),
                all => self.all(all, depth + 1),
            };
            return (items, None);
        };
        let mut each: Vec<&'s Value> = first.prefix.iter().collect();
        let mut most = None;
        match first.items {
            Some(Value::Bool(false)) => most = Some(first.prefix.len() as u64),
            Some(items) => each.push(items),
            // What comes behind the positions is what others say of it.
            None => {
                let mentions = self.mentions(joined, depth);
                if joined.is_open || mentions.has_items || mentions.is_open {
                    return (json!({}), None);
                }
                for part in &parts {
                    each.extend(part.prefix);
                    each.extend(part.items);
                    each.extend(&part.others);
                }
            }
        }
        each.retain(|schema| **schema != Value::Bool(false));
        let each: Vec<_> = each.into_iter().map(|schema| vec![schema]).collect();
        (self.any(&each, depth + 1), most)
    }
}

/// Names that must be there if another one is.
fn dependents(keywords: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let lists = ["dependentRequired", "dependencies"].into_iter();
    lists
        .filter_map(move |keyword| keywords.get(keyword)?.as_object())
        .flat_map(Map::values)
        .filter_map(Value::as_array)
        .flatten()
        .filter_map(Value::as_str)
}

/// True if there are patterns of names, and names that fit none of them may have any value. By JSON Schema they may, where
/// nothing closes the object, so a grammar with the type of the patterns alone would be narrower than the schema. An author
/// who means no other names says so (`"additionalProperties": false`), and the grammar has that type.
fn has_other_names(joined: &Joined<'_>) -> bool {
    let mut patterns = joined.named("patternProperties").map(|(name, _)| name);
    let says_of_others = joined.each("unevaluatedProperties").next().is_some();
    let has_patterns = joined.named("patternProperties").next().is_some();
    has_patterns && !says_of_others && !patterns.any(|pattern| fits_every_name(pattern))
}

/// True for a pattern of all names, as generators of schemas write it for a map.
fn fits_every_name(pattern: &str) -> bool {
    let inner = pattern.strip_prefix('^').unwrap_or(pattern);
    let inner = inner.strip_suffix('$').unwrap_or(inner);
    matches!(inner, ".*" | "(.*)") || pattern.is_empty()
}

/// True if a schema says something.
fn is_told(schema: &Value) -> bool {
    match schema {
        Value::Bool(is_any) => !is_any,
        Value::Object(keywords) => !keywords.is_empty(),
        _ => false,
    }
}

fn list_part(keywords: &Map<String, Value>) -> ListPart<'_> {
    let prefix = keywords.get("prefixItems").and_then(Value::as_array);
    let items = keywords.get("items");
    // Before draft 2020-12 the list of positions is under `items`.
    let (prefix, items) = match items.and_then(Value::as_array) {
        Some(positions) => (Some(positions), keywords.get("additionalItems")),
        None => (prefix, items),
    };
    let others = ["unevaluatedItems", "contains"].into_iter();
    ListPart {
        prefix: prefix.map(Vec::as_slice).unwrap_or_default(),
        items,
        others: others.filter_map(|keyword| keywords.get(keyword)).collect(),
    }
}
