//! One schema on its way to the grammar subset: joins what holds together, tells alternatives apart, follows references.

use super::joined::{Joined, lone_part, lone_reference, perhaps, weight};
use super::pointers::{decoded, has_ids};
use super::{ALSO, GrammarSubset, MAX_DEPTH, ObjectMembers, authored};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet, VecDeque};
use toolhold_schema::size;

/// Maximum alternatives of one schema that has other keywords beside them. With more, the schema becomes one object with the
/// properties of all alternatives.
const MAX_ALTERNATIVES: usize = 256;
/// Maximum schemas that are joined. What holds beyond them is left to validation.
const MAX_PARTS: usize = 64;
/// Work for each step of a schema's size: what stands beside alternatives, and what is referred to beside other keywords,
/// is repeated. A schema that repeats nothing takes about two. Where the work is used up, anything goes.
const WORK_PER_STEP: u64 = 12;
/// Steps of work (visits of keywords) that the smallest schema may take.
const MIN_WORK: u64 = 6_000;
/// Maximum alternatives with which a further one is compared, so that equal ones stand there once.
const MAX_COMPARED: usize = 256;
/// Maximum bytes of a keyword's value under [`ALSO`].
const MAX_TOLD_BYTES: usize = 400;

/// Drafts in which nothing beside a reference counts.
const OLD_DRAFTS: [&str; 4] = ["draft-03", "draft-04", "draft-06", "draft-07"];

/// Keywords that a grammar has not, or not beside others.
const TOLD: [&str; 26] = [
    "pattern",
    "format",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "prefixItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "not",
    "if",
    "then",
    "else",
];

pub(super) struct Reduction<'r, 's> {
    pub(super) subset: &'r mut GrammarSubset,
    root: &'s Value,
    /// Beginning of the names of its definitions.
    owner: String,
    /// Schemas of members stay as their author wrote them.
    is_verbatim: bool,
    is_old: bool,
    /// A part of the schema has an identity of its own, so that references in it lead elsewhere.
    has_ids: bool,
    /// Names of definitions, by references to them.
    names: HashMap<&'s str, String>,
    /// Definitions that are to be reduced.
    pending: VecDeque<(String, &'s Value)>,
    work: u64,
}

impl<'r, 's> Reduction<'r, 's> {
    pub fn new(subset: &'r mut GrammarSubset, root: &'s Value, owner: &str) -> Self {
        let draft = root.get("$schema").and_then(Value::as_str).unwrap_or("");
        Self {
            subset,
            root,
            owner: owner.to_owned(),
            is_verbatim: false,
            is_old: OLD_DRAFTS.iter().any(|old| draft.contains(old)),
            has_ids: has_ids(root, true),
            names: HashMap::new(),
            pending: VecDeque::new(),
            work: size(root).saturating_mul(WORK_PER_STEP) + MIN_WORK,
        }
    }

    pub fn verbatim(subset: &'r mut GrammarSubset, root: &'s Value, owner: &str) -> Self {
        Self {
            is_verbatim: true,
            ..Self::new(subset, root, owner)
        }
    }

    pub fn whole(&mut self) -> Value {
        self.all(&[self.root], 0)
    }

    /// Members of the object that the schema describes.
    pub fn object(&mut self) -> ObjectMembers {
        let mut joined = Joined::default();
        self.take(&mut joined, self.root);
        let mut alternatives = self.alternatives(&joined).unwrap_or_default();
        if alternatives.is_empty() {
            joined.fold();
            alternatives.push(joined);
        }
        let mut each = Vec::new();
        for alternative in &mut alternatives {
            // The properties of values are not looked for.
            alternative.is_open |= alternative.values().is_some();
            let types = alternative.types();
            let is_object = types.is_none_or(|types| types.contains(&"object"));
            let is_silent = alternative.each("properties").next().is_none();
            let mut members = self.members(alternative, 0);
            // An object of which nothing is said may have any properties.
            if is_object && is_silent {
                members.additional.get_or_insert_with(|| json!({}));
            }
            each.push(members);
        }
        let mut names: Vec<String> = Vec::new();
        let mut known: HashMap<String, Vec<Value>> = HashMap::new();
        for name in each.iter().flat_map(|members| members.properties.keys()) {
            known.entry(name.clone()).or_insert_with(|| {
                names.push(name.clone());
                Vec::new()
            });
        }
        let mut required = names.clone();
        let mut additional = Vec::new();
        for members in each {
            let mut properties = members.properties;
            let others = members.additional.unwrap_or(Value::Bool(false));
            let own: HashSet<&String> = members.required.iter().collect();
            required.retain(|name| own.contains(name));
            for name in &names {
                let Some(schemas) = known.get_mut(name) else {
                    continue;
                };
                match properties.swap_remove(name) {
                    Some(own) => push(schemas, own),
                    None if others == Value::Bool(false) => {}
                    // Without a name of its own, it is one of the others. Each name of each alternative has a copy.
                    None if self.spends(size(&others)) => push(schemas, others.clone()),
                    None => push(schemas, json!({})),
                }
            }
            if others != Value::Bool(false) {
                push(&mut additional, others);
            }
        }
        let mut properties = Map::new();
        for name in names {
            let schemas = known.remove(&name).unwrap_or_default();
            properties.insert(name, any_of(schemas));
        }
        let additional = if additional.is_empty() {
            Value::Bool(false)
        } else {
            any_of(additional)
        };
        ObjectMembers {
            properties,
            required,
            additional,
        }
    }

    /// Hoists all definitions that are referred to.
    pub fn hoist(mut self, change: impl Fn(&mut Value)) {
        while let Some((name, schema)) = self.pending.pop_front() {
            let mut reduced = self.all(&[schema], 0);
            change(&mut reduced);
            self.subset.definitions.insert(name, reduced);
        }
    }

    /// Reduces `parts`, which all hold, to one schema.
    pub(super) fn all(&mut self, parts: &[&'s Value], depth: usize) -> Value {
        if self.is_verbatim {
            let work: u64 = parts.iter().map(|part| size(part)).sum();
            if !self.spends(work) {
                return json!({});
            }
            let mut each: Vec<Value> = parts.iter().map(|part| authored::known(part)).collect();
            return match each.len() {
                1 => each.remove(0),
                _ => json!({"allOf": each}),
            };
        }
        if depth > MAX_DEPTH || !self.spends(1) {
            return json!({});
        }
        if let [only] = parts
            && let Value::Object(keywords) = *only
        {
            let reduced = if let Some(reference) = lone_reference(keywords, self.is_old) {
                Some(self.reference(reference))
            } else {
                lone_part(keywords).map(|only| self.all(&[only], depth + 1))
            };
            if let Some(mut reduced) = reduced {
                self.annotate(&mut reduced, &[keywords]);
                return reduced;
            }
        }
        let mut joined = Joined::default();
        for part in parts {
            self.take(&mut joined, part);
        }
        let mut reduced = self.joined(&joined, depth);
        self.annotate(&mut reduced, &joined.parts);
        reduced
    }

    /// Reduces `alternatives` to one schema. Each is a list of schemas that all hold.
    pub(super) fn any(&mut self, alternatives: &[Vec<&'s Value>], depth: usize) -> Value {
        let mut branches = Vec::new();
        for parts in alternatives {
            let branch = self.all(parts, depth);
            push(&mut branches, branch);
        }
        any_of(branches)
    }

    fn joined(&mut self, joined: &Joined<'s>, depth: usize) -> Value {
        if let Some(values) = self.values(joined) {
            return values;
        }
        match joined.unions.as_slice() {
            [] => self.typed(joined, depth),
            [only] if joined.is_bare() => {
                let possible = only.iter().filter(|branch| **branch != Value::Bool(false));
                let branches: Vec<Value> = possible
                    .map(|branch| self.all(&[branch], depth + 1))
                    .collect();
                if branches.is_empty() {
                    return json!({});
                }
                json!({"anyOf": branches})
            }
            _ => {
                let Some(alternatives) = self.alternatives(joined) else {
                    let mut folded = joined.clone();
                    folded.fold();
                    return self.typed(&folded, depth);
                };
                let mut branches = Vec::new();
                for alternative in &alternatives {
                    let values = self.values(alternative);
                    let mut branch = values.unwrap_or_else(|| self.typed(alternative, depth));
                    let own = alternative.parts.get(joined.parts.len()..);
                    self.annotate(&mut branch, own.unwrap_or_default());
                    push(&mut branches, branch);
                }
                any_of(branches)
            }
        }
    }

    /// The values that a schema lists.
    fn values(&mut self, joined: &Joined<'s>) -> Option<Value> {
        let (keyword, values) = joined.values()?;
        let reduced = if self.spends(size(values)) {
            json!({keyword: values})
        } else {
            json!({})
        };
        Some(reduced)
    }

    /// The alternatives that `joined` has, each with all that holds beside it; none if they are too many, or repeat too much.
    fn alternatives(&mut self, joined: &Joined<'s>) -> Option<Vec<Joined<'s>>> {
        let mut whole = Vec::new();
        let mut open = vec![joined.clone()];
        let mut needed = 0;
        let mut sizes = HashMap::new();
        let mut copies = self.work / 4;
        while let Some(mut next) = open.pop() {
            let Some(union) = next.unions.pop() else {
                let is_impossible = next.types().is_some_and(|types| types.is_empty());
                if !is_impossible {
                    needed += next.described(&mut sizes);
                    whole.push(next);
                }
                continue;
            };
            // The first is taken next.
            let possible = union.iter().filter(|branch| **branch != Value::Bool(false));
            for branch in possible.rev() {
                // Each has a copy of all that holds beside it.
                let is_full = open.len() + whole.len() >= MAX_ALTERNATIVES;
                copies = copies.checked_sub(next.weight()).filter(|_| !is_full)?;
                if !self.spends(next.weight()) {
                    return None;
                }
                let mut with = next.clone();
                self.take(&mut with, branch);
                open.push(with);
            }
        }
        // What stands beside the alternatives is reduced with each of them, and more is to come.
        (!whole.is_empty() && needed <= self.work / 2).then_some(whole)
    }

    /// Adds a schema, and what it combines, to those that hold.
    fn take(&mut self, joined: &mut Joined<'s>, schema: &'s Value) {
        let Value::Object(keywords) = schema else {
            // `true` says nothing; of what satisfies `false`, which is nothing, all is right.
            return;
        };
        if joined.parts.len() >= MAX_PARTS || !self.spends(weight(keywords)) {
            joined.is_open = true;
            return;
        }
        let reference = keywords.get("$ref").and_then(Value::as_str);
        let is_only_reference = self.is_old && reference.is_some();
        if !is_only_reference {
            joined.parts.push(keywords);
        }
        if let Some(reference) = reference {
            match self.target(reference) {
                // It holds already.
                _ if joined.references.contains(&reference) => {}
                Some(target) if joined.references.len() < MAX_PARTS => {
                    joined.references.push(reference);
                    self.take(joined, target);
                }
                _ => joined.is_open = true,
            }
        }
        if is_only_reference {
            return;
        }
        let dynamic = ["$dynamicRef", "$recursiveRef"];
        joined.is_open |= dynamic.iter().any(|key| keywords.contains_key(*key));
        let list = move |keyword: &str| keywords.get(keyword).and_then(Value::as_array);
        for part in list("allOf").into_iter().flatten() {
            self.take(joined, part);
        }
        for keyword in ["anyOf", "oneOf"] {
            let union = list(keyword).filter(|branches| !branches.is_empty());
            joined.unions.extend(union.map(Vec::as_slice));
        }
        joined.perhaps.extend(perhaps(keywords));
    }

    /// A reference to a definition that is hoisted; anything where it leads nowhere.
    fn reference(&mut self, reference: &'s str) -> Value {
        if let Some(name) = self.names.get(reference) {
            return json!({"$ref": format!("#/$defs/{name}")});
        }
        let Some(target) = self.end(reference) else {
            return json!({});
        };
        let name = self.subset.names.add(&self.owner, reference);
        let reduced = json!({"$ref": format!("#/$defs/{name}")});
        self.pending.push_back((name.clone(), target));
        self.names.insert(reference, name);
        reduced
    }

    /// Follows a reference to a schema that is no reference itself; `None` if it leads nowhere, or round.
    fn end(&self, reference: &'s str) -> Option<&'s Value> {
        let mut target = self.target(reference)?;
        for _ in 0..MAX_DEPTH {
            let Value::Object(keywords) = target else {
                return Some(target);
            };
            if let Some(next) = lone_reference(keywords, self.is_old) {
                target = self.target(next)?;
            } else if let Some(only) = lone_part(keywords) {
                target = only;
            } else {
                return Some(target);
            }
        }
        None
    }

    /// The part of the schema that a reference names. Names (`#anchor`) and addresses are not looked up.
    pub(super) fn target(&self, reference: &str) -> Option<&'s Value> {
        if self.has_ids {
            return None;
        }
        let root: &'s Value = self.root;
        root.pointer(&decoded(reference.strip_prefix('#')?)?)
    }

    /// False if the work of the reduction is used up.
    pub(super) fn spends(&mut self, work: u64) -> bool {
        match self.work.checked_sub(work) {
            Some(left) => {
                self.work = left;
                true
            }
            None => false,
        }
    }

    /// Adds what describes a schema, and what no grammar has of it, where a model is to read it.
    fn annotate(&mut self, reduced: &mut Value, parts: &[&'s Map<String, Value>]) {
        if !self.subset.keeps_descriptions {
            return;
        }
        let told = self.told(reduced, parts);
        let mut annotations = Map::new();
        for keyword in ["description", "default", "examples"] {
            let mut own = parts.iter().filter_map(|part| part.get(keyword));
            if let Some(value) = own.find(|own| own.is_string() || keyword != "description")
                && self.spends(size(value))
            {
                annotations.insert(keyword.to_owned(), value.clone());
            }
        }
        if !told.is_empty() {
            annotations.insert(ALSO.to_owned(), Value::Object(told));
        }
        if let Value::Object(reduced) = reduced {
            reduced.extend(annotations);
        }
    }

    /// Keywords of `parts` that are not in the reduced schema.
    fn told(&mut self, reduced: &Value, parts: &[&'s Map<String, Value>]) -> Map<String, Value> {
        let mut told = Map::new();
        // A list of values says all.
        if reduced
            .get("const")
            .or_else(|| reduced.get("enum"))
            .is_some()
        {
            return told;
        }
        let branches = reduced.get("anyOf").and_then(Value::as_array);
        for keyword in TOLD {
            let mut own = parts.iter().filter_map(|part| part.get(keyword));
            let Some(value) = own.next().filter(|value| **value != Value::Bool(false)) else {
                continue;
            };
            let is_same = |schema: &Value| schema.get(keyword) == Some(value);
            if is_same(reduced) || branches.is_some_and(|each| each.iter().any(is_same)) {
                continue;
            }
            if !self.spends(size(value)) {
                return told;
            }
            let text = value.to_string();
            // What it refers to has another name here.
            if text.len() <= MAX_TOLD_BYTES && !text.contains("\"$ref\"") {
                told.insert(keyword.to_owned(), value.clone());
            }
        }
        told
    }
}

/// Adds an alternative, unless it is there already.
fn push(branches: &mut Vec<Value>, branch: Value) {
    let mut before = branches.iter().take(MAX_COMPARED);
    if !before.any(|known| *known == branch) {
        branches.push(branch);
    }
}

/// One schema for several, of which the first is enough if it takes anything.
pub(super) fn any_of(mut branches: Vec<Value>) -> Value {
    let is_any = |branch: &Value| branch.as_object().is_some_and(Map::is_empty);
    if branches.is_empty() || branches.iter().any(is_any) {
        return json!({});
    }
    if branches.len() == 1 {
        return branches.remove(0);
    }
    json!({"anyOf": branches})
}
