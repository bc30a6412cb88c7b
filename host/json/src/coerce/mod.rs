//! Coercion of slightly wrong arguments (docs/protocol.md, 7): a number in a string, a missing default, a null for
//! an absent optional, a single value instead of a list, a number or a date in another notation.
//!
//! Only values with exactly one reading are changed, and no value is made up. Coercion runs after validation
//! failed, and its result is validated again. Of arguments that are valid only dates and times are read: their formats
//! need not be a part of validation.

mod demanded;
mod notation;
#[cfg(test)]
mod tests;

use crate::numbers;
use crate::repair::{Repair, RepairKind};
use crate::rules::ReadingRules;
use crate::strict;
use demanded::DemandedNotation;
use notation::Reading;
use serde_json::{Map, Number, Value};
use std::collections::HashSet;
use toolhold_schema::{SmallPattern, allowance, short_place, size, spend};
use toolhold_text::cut;

/// Arguments are validated to be no deeper than this.
const MAX_DEPTH: usize = 64;
/// Maximum references followed on the way to one value.
const MAX_REFERENCES: usize = 8;
/// Maximum steps of one coercion: each goes over a property, a branch or a listed value of the schema, or copies 32
/// bytes of a default. Without it, the schema's size would multiply with the arguments'.
const MAX_STEPS: u64 = 1_000_000;
/// Steps that it takes to compile a pattern.
const PATTERN_STEPS: u64 = 10_000;
/// Maximum repairs of one call that are reported.
const MAX_REPORTED_REPAIRS: usize = 32;

/// Maximum characters of a value that a repair quotes.
const MAX_QUOTED_CHARS: usize = 64;
/// Keywords that say, besides a format and a pattern, how a text is to be written.
const TELLING: [&str; 7] = ["enum", "const", "allOf", "anyOf", "oneOf", "not", "if"];

/// Coerced arguments and the list of changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Coerced {
    pub arguments: Value,
    /// Each with its place: at most 32.
    pub repairs: Vec<Repair>,
    /// What was left as it is because it has more than one reading, each with its place and these: at most 32.
    pub unclear: Vec<String>,
}

/// Coerces `arguments` where `schema` allows exactly one reading; `None` if that changes nothing and nothing is
/// unclear, or if it takes too many steps.
pub fn coerce(schema: &Value, arguments: &Value) -> Option<Coerced> {
    coerce_but_for(ReadingRules::Current, schema, arguments, &[])
}

/// Coerces arguments whose parts at `open` (JSON pointers) stand for values that are not known: these parts are
/// left as they are.
pub fn coerce_but_for(
    rules: ReadingRules,
    schema: &Value,
    arguments: &Value,
    open: &[&str],
) -> Option<Coerced> {
    coerced(rules, schema, arguments, open, false)
}

/// Reads the dates and times of `arguments` that are written in another notation, where `schema` says nothing but
/// that they are such; otherwise as [`coerce_but_for`]. For arguments that are valid.
pub fn coerce_dates(
    rules: ReadingRules,
    schema: &Value,
    arguments: &Value,
    open: &[&str],
) -> Option<Coerced> {
    coerced(rules, schema, arguments, open, true)
}

fn coerced(
    rules: ReadingRules,
    schema: &Value,
    arguments: &Value,
    open: &[&str],
    only_dates: bool,
) -> Option<Coerced> {
    // In brief work no more than is left to it: the work is done again then, without that bound.
    let most = MAX_STEPS.min(allowance());
    let mut coercion = Coercion {
        rules,
        root: schema,
        open,
        only_dates,
        repairs: Vec::new(),
        unclear: Vec::new(),
        steps: most,
    };
    let mut arguments = arguments.clone();
    coercion.value(schema, &mut arguments, &mut String::new(), 0);
    let is_whole = coercion.steps > 0;
    spend(most - coercion.steps);
    let Coercion {
        repairs, unclear, ..
    } = coercion;
    (is_whole && !(repairs.is_empty() && unclear.is_empty())).then_some(Coerced {
        arguments,
        repairs,
        unclear,
    })
}

struct Coercion<'a> {
    rules: ReadingRules,
    root: &'a Value,
    /// Places that are left as they are.
    open: &'a [&'a str],
    only_dates: bool,
    repairs: Vec<Repair>,
    unclear: Vec<String>,
    /// What is left of [`MAX_STEPS`].
    steps: u64,
}

impl<'a> Coercion<'a> {
    fn value(&mut self, schema: &'a Value, value: &mut Value, place: &mut String, depth: usize) {
        if depth > MAX_DEPTH || !self.pays(1 + self.open.len() as u64) {
            return;
        }
        if self.open.contains(&place.as_str()) {
            return;
        }
        let may_be_null = self.accepts_null(schema);
        let meant = self.followed(schema);
        let schema = meant.schema;
        if !self.pays(listed_values(schema)) {
            return;
        }
        let types = types(schema);
        if self.only_dates {
            self.other_notation(meant, &types, value, place);
        } else if may_be_null && is_null_in_words(&types, value) {
            self.note(place, RepairKind::NullAsText);
            *value = Value::Null;
        } else if let Some(read) = read(self.rules, &types, value) {
            self.note(place, read.kind);
            *value = read.value;
        } else {
            self.other_notation(meant, &types, value, place);
        }
        match value {
            Value::Object(fields) => self.object(schema, fields, place, depth),
            Value::Array(items) => {
                let first = schema.get("prefixItems").and_then(Value::as_array);
                let length = place.len();
                for (index, item) in items.iter_mut().enumerate() {
                    let own = first.and_then(|first| first.get(index));
                    let Some(schema) = own.or_else(|| schema.get("items")) else {
                        break;
                    };
                    place.push('/');
                    place.push_str(&index.to_string());
                    self.value(schema, item, place, depth + 1);
                    place.truncate(length);
                }
            }
            _ => {}
        }
    }

    /// Reads a text that is a number, a date or a time in another notation.
    fn other_notation(&mut self, meant: Meant<'_>, types: &[&str], value: &mut Value, place: &str) {
        let Value::String(text) = &*value else {
            return;
        };
        let is = |ty: &str| types.contains(&ty);
        let (kind, reading) = if is("string") || types.is_empty() {
            let moment = self.moment(meant, text);
            (
                RepairKind::DateNotation,
                moment.map(|it| it.map(Value::from)),
            )
        } else if (is("number") || is("integer")) && !self.only_dates {
            let number = notation::number(self.rules, text).map(|it| it.map(Value::from));
            (RepairKind::NumberNotation, number)
        } else {
            return;
        };
        match reading {
            Some(Reading::Unclear(why)) if self.unclear.len() < MAX_REPORTED_REPAIRS => {
                self.unclear.push(match place {
                    "" => why,
                    place => format!("{}: {why}", short_place(place)),
                });
            }
            None | Some(Reading::Unclear(_)) => {}
            Some(Reading::One(read)) => {
                let read = match read {
                    Value::Number(number) if number.is_f64() && !is("number") => {
                        match whole(&number) {
                            Some(whole) => whole.into(),
                            None => return,
                        }
                    }
                    read => read,
                };
                if self.repairs.len() < MAX_REPORTED_REPAIRS {
                    let to = read
                        .as_str()
                        .map_or_else(|| read.to_string(), str::to_owned);
                    let quoted = |text: &str| cut(text, MAX_QUOTED_CHARS);
                    let place = short_place(place);
                    self.repairs
                        .push(kind.changing(&place, quoted(text), quoted(&to)));
                }
                *value = read;
            }
        }
    }

    /// Reads a date or a time as the schema wants it written. A pattern is compiled for texts alone that are such.
    fn moment(&mut self, meant: Meant<'_>, text: &str) -> Option<Reading<String>> {
        if !meant.is_free {
            return None;
        }
        let format = meant.schema.get("format").and_then(Value::as_str);
        let Some(pattern) = meant.pattern else {
            return notation::moment(self.rules, format?, text);
        };
        // A valid text has the notation that the pattern demands.
        let demanded = DemandedNotation::of(self.rules, format, text);
        let demanded = demanded.filter(|_| !self.only_dates)?;
        if !self.pays(PATTERN_STEPS) {
            return None;
        }
        demanded.by(&SmallPattern::new(pattern)?)
    }

    fn object(
        &mut self,
        schema: &'a Value,
        fields: &mut Map<String, Value>,
        place: &mut String,
        depth: usize,
    ) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let names = schema.get("required").and_then(Value::as_array);
        let names = names.into_iter().flatten().filter_map(Value::as_str);
        let names: HashSet<&str> = names.collect();
        let required = |name: &str| names.contains(name);
        let properties_len = properties.map_or(0, Map::len);
        if !self.pays((names.len() + properties_len) as u64) {
            return;
        }
        let length = place.len();
        for (name, property) in properties.into_iter().flatten() {
            push_name(place, name);
            let may_be_null = self.accepts_null(property);
            let meant = self.meant(property);
            match fields.get_mut(name) {
                Some(Value::Null) if may_be_null => {}
                Some(Value::Null) | None if self.only_dates => {}
                Some(Value::Null) => {
                    // Written out where it should have been left out.
                    if let Some(default) = meant.get("default") {
                        if self.pays(size(default)) {
                            fields.insert(name.clone(), default.clone());
                        }
                        self.note(place, RepairKind::NullForDefault);
                    } else if !required(name) {
                        fields.shift_remove(name);
                        self.note(place, RepairKind::NullForAbsent);
                    }
                }
                Some(value) => self.value(property, value, place, depth + 1),
                None if required(name) => {
                    if let Some(default) = meant.get("default") {
                        if self.pays(size(default)) {
                            fields.insert(name.clone(), default.clone());
                        }
                        self.note(place, RepairKind::MissingDefault);
                    }
                }
                None => {}
            }
            place.truncate(length);
        }
        // Where names match patterns, it is not known here which are additional.
        let others = schema.get("additionalProperties");
        let has_patterns = schema.get("patternProperties").is_some();
        if let Some(others) = others.filter(|others| others.is_object() && !has_patterns) {
            let is_known = |name: &str| properties.is_some_and(|known| known.contains_key(name));
            for (name, value) in fields.iter_mut().filter(|(name, _)| !is_known(name)) {
                push_name(place, name);
                self.value(others, value, place, depth + 1);
                place.truncate(length);
            }
        }
    }

    /// The schema behind references within the document, and behind "this or null".
    fn meant(&mut self, schema: &'a Value) -> &'a Value {
        self.followed(schema).schema
    }

    fn followed(&mut self, mut schema: &'a Value) -> Meant<'a> {
        let (mut is_free, mut pattern) = (true, None);
        for _ in 0..MAX_REFERENCES {
            if !self.pays(listed_values(schema)) {
                break;
            }
            let target = schema.get("$ref").and_then(Value::as_str);
            let only = only_branch(schema).filter(|_| target.is_none());
            // The branches themselves are one of these words.
            let own = usize::from(only.is_some());
            let told = TELLING.iter().filter(|word| schema.get(**word).is_some());
            is_free &= told.count() == own;
            if let Some(own) = schema.get("pattern") {
                is_free &= pattern.is_none() && self.rules.are_from_4();
                pattern = own.as_str();
            }
            let next = match target {
                Some(target) => target
                    .strip_prefix('#')
                    .and_then(|target| self.root.pointer(target)),
                None => only,
            };
            match next {
                Some(next) => schema = next,
                None => {
                    return Meant {
                        schema,
                        is_free,
                        pattern,
                    };
                }
            }
        }
        // What the last one says was not looked at.
        Meant {
            schema,
            is_free: false,
            pattern,
        }
    }

    fn accepts_null(&mut self, schema: &'a Value) -> bool {
        if !self.pays(listed_values(schema)) {
            return false;
        }
        if branches(schema)
            .is_some_and(|branches| branches.iter().any(|branch| types(branch) == ["null"]))
        {
            return true;
        }
        let schema = self.meant(schema);
        let types = types(schema);
        let is_open = types.is_empty()
            && ["enum", "const"]
                .iter()
                .all(|key| schema.get(*key).is_none());
        is_open || types.contains(&"null")
    }

    /// Takes `steps`; `false` if there are not as many, now and from now on.
    fn pays(&mut self, steps: u64) -> bool {
        self.steps = self.steps.saturating_sub(steps);
        self.steps > 0
    }

    fn note(&mut self, place: &str, kind: RepairKind) {
        if self.repairs.len() < MAX_REPORTED_REPAIRS {
            self.repairs.push(kind.at(&short_place(place)));
        }
    }
}

/// What a schema comes to.
#[derive(Clone, Copy)]
struct Meant<'a> {
    schema: &'a Value,
    /// True if nothing on the way says how a text is to be written, besides a format and one pattern.
    is_free: bool,
    pattern: Option<&'a str>,
}

struct ReadText {
    value: Value,
    kind: RepairKind,
}

/// The one other way to read a value of the wrong type, if there is one.
fn read(rules: ReadingRules, types: &[&str], value: &Value) -> Option<ReadText> {
    let is = |ty: &str| types.contains(&ty);
    let wants_number = is("integer") || is("number");
    let found = |value: Value, kind: RepairKind| Some(ReadText { value, kind });
    match value {
        _ if types.is_empty() => None,
        Value::String(_) if is("string") => None,
        Value::String(text) => {
            if let Some(number) = number(rules, text).filter(|_| wants_number) {
                let is_whole = number.is_i64() || number.is_u64();
                let number = if is("number") || is_whole {
                    number
                } else {
                    whole(&number)?
                };
                return found(number.into(), RepairKind::NumberAsText);
            }
            if is("boolean") && ["true", "false"].iter().any(|word| is_word(text, word)) {
                return found(is_word(text, "true").into(), RepairKind::BooleanAsText);
            }
            match strict::parse_under(rules, text) {
                Ok(parsed @ (Value::Object(_) | Value::Array(_))) if is(type_of(&parsed)) => {
                    found(parsed, RepairKind::JsonAsText)
                }
                _ => listed(types, value),
            }
        }
        Value::Number(number)
            if is("integer") && number.as_i64().is_none() && number.as_u64().is_none() =>
        {
            found(whole(number)?.into(), RepairKind::WholeNumberAsFraction)
        }
        Value::Number(_) if wants_number => None,
        // A fraction or a huge number has lost its spelling: 3.10 is parsed as 3.1.
        Value::Number(number) if is("string") && (number.is_i64() || number.is_u64()) => {
            found(number.to_string().into(), RepairKind::TextAsNumber)
        }
        other if is(type_of(other)) => None,
        _ => listed(types, value),
    }
}

/// A single value where only a list is due.
fn listed(types: &[&str], value: &Value) -> Option<ReadText> {
    let only_list =
        types.contains(&"array") && types.iter().all(|ty| ["array", "null"].contains(ty));
    (only_list && !value.is_array() && !value.is_null()).then(|| ReadText {
        value: Value::Array(vec![value.clone()]),
        kind: RepairKind::SingleForList,
    })
}

/// Null as a word, where no word is wanted.
fn is_null_in_words(types: &[&str], value: &Value) -> bool {
    let wants_other = !types.is_empty() && !types.contains(&"string");
    let words = ["null", "none"];
    wants_other
        && value
            .as_str()
            .is_some_and(|text| words.iter().any(|word| is_word(text, word)))
}

/// As JSON and Python write it.
fn is_word(text: &str, word: &str) -> bool {
    let text = text.trim();
    let capital = |text: &str| text.get(..1).map(str::to_ascii_uppercase);
    text == word || (capital(word).as_deref() == text.get(..1) && text.get(1..) == word.get(1..))
}

/// A whole number that is written with a fraction or an exponent.
fn whole(number: &Number) -> Option<Number> {
    let whole = number
        .as_f64()
        .filter(|n| n.fract() == 0.0 && n.abs() < 9e15)?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "whole, and within what f64 holds exactly"
    )]
    Some((whole as i64).into())
}

/// As JSON writes it: no spaces, no plus, no hexadecimal.
fn number(rules: ReadingRules, text: &str) -> Option<Number> {
    let text = text.trim();
    let is_kept = |_: &Number| numbers::check_literal_under(rules, text).is_ok();
    serde_json::from_str(text).ok().filter(is_kept)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The types that are said, or those of the values that are listed.
fn types(schema: &Value) -> Vec<&str> {
    match (schema.get("type"), schema.get("enum"), schema.get("const")) {
        (Some(Value::String(one)), ..) => vec![one],
        (Some(Value::Array(many)), ..) => many.iter().filter_map(Value::as_str).collect(),
        (None, Some(Value::Array(values)), _) => {
            let mut types: Vec<_> = values.iter().map(type_of).collect();
            types.sort_unstable();
            types.dedup();
            types
        }
        (None, None, Some(value)) => vec![type_of(value)],
        _ => Vec::new(),
    }
}

/// The branches of a schema, with the values that they and it list.
fn listed_values(schema: &Value) -> u64 {
    let own = |schema: &Value| {
        let listed = schema.get("enum").and_then(Value::as_array);
        1 + listed.map_or(0, Vec::len) as u64
    };
    let branches = branches(schema).into_iter().flatten();
    own(schema) + branches.map(own).sum::<u64>()
}

fn push_name(place: &mut String, name: &str) {
    place.push('/');
    place.push_str(&name.replace('~', "~0").replace('/', "~1"));
}

/// The branches of `anyOf` or `oneOf`.
fn branches(schema: &Value) -> Option<&Vec<Value>> {
    ["anyOf", "oneOf"]
        .iter()
        .find_map(|key| schema.get(*key)?.as_array())
}

/// The only branch besides null, if there is exactly one.
fn only_branch(schema: &Value) -> Option<&Value> {
    let mut others = branches(schema)?
        .iter()
        .filter(|branch| types(branch) != ["null"]);
    others.next().filter(|_| others.next().is_none())
}
