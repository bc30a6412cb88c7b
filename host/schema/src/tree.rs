//! A schema as JSON: how large it is, and where its references may lead.

use crate::bounds::{
    MAX_BYTES, MAX_DEPTH, MAX_ENTERED, MAX_NEGATED, MAX_POINTER_BYTES, MAX_VALUES, SchemaTooCostly,
};
use crate::metered::size;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Bytes of a value in memory, for each step to look at it.
const BYTES_A_VALUE: u64 = 64;

/// A schema as JSON, with what references may lead to.
pub(crate) struct SchemaTree<'a> {
    root: &'a Value,
    /// Schemas with an `$id`, by its last segment.
    resources: Vec<(&'a str, &'a Value)>,
    anchors: HashMap<&'a str, Vec<&'a Value>>,
    /// Bytes of what one fault may copy: the largest keyword that a fault quotes.
    pub longest: u64,
}

impl<'a> SchemaTree<'a> {
    pub fn of(root: &'a Value) -> Result<Self, SchemaTooCostly> {
        let mut document = Self {
            root,
            resources: Vec::new(),
            anchors: HashMap::new(),
            longest: 0,
        };
        let mut met = Size::default();
        let mut waiting = vec![(root, 0, 0)];
        while let Some((value, depth, pointer)) = waiting.pop() {
            met.add(value, depth, pointer)?;
            match value {
                Value::Array(items) => {
                    waiting.extend(items.iter().map(|item| (item, depth + 1, pointer + 4)));
                }
                Value::Object(fields) => {
                    document.note(value, fields);
                    let copied =
                        ["not", "const"].map(|keyword| fields.get(keyword).map_or(0, size));
                    met.negated = met.negated.saturating_add(copied[0]);
                    let longest = copied[0].max(copied[1]).saturating_mul(BYTES_A_VALUE);
                    document.longest = document.longest.max(longest);
                    for (name, value) in fields {
                        met.bytes += name.len();
                        waiting.push((value, depth + 1, pointer + 1 + name.len() as u64));
                    }
                }
                _ => {}
            }
        }
        let inner = document
            .resources
            .iter()
            .filter(|(_, schema)| !std::ptr::eq(*schema, root));
        let orders = orders(inner.count() as u64);
        if orders.saturating_mul(met.values as u64) > MAX_ENTERED {
            return Err(SchemaTooCostly::Resources);
        }
        Ok(document)
    }

    fn note(&mut self, value: &'a Value, fields: &'a Map<String, Value>) {
        for keyword in ["$anchor", "$dynamicAnchor", "$id", "id"] {
            let Some(name) = fields.get(keyword).and_then(Value::as_str) else {
                continue;
            };
            match (keyword, name.strip_prefix('#')) {
                ("$anchor" | "$dynamicAnchor", _) => {
                    self.anchors.entry(name).or_default().push(value);
                }
                (_, Some(anchor)) => self.anchors.entry(anchor).or_default().push(value),
                _ => self.resources.push((last_segment(name), value)),
            }
        }
    }

    /// All that `reference` may lead to. The base that it is resolved against is not looked at, so this may
    /// be more than one schema.
    pub fn targets(&self, reference: &str) -> Vec<&'a Value> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let roots = self.resources.iter();
        let roots: Vec<&Value> = if base.is_empty() {
            std::iter::once(self.root)
                .chain(roots.map(|(_, root)| *root))
                .collect()
        } else {
            let wanted = last_segment(base);
            roots
                .filter(|(name, _)| *name == wanted)
                .map(|(_, root)| *root)
                .collect()
        };
        let fragment = percent_decoded(fragment);
        match fragment.as_str() {
            "" => roots,
            pointer if pointer.starts_with('/') => roots
                .iter()
                .filter_map(|root| root.pointer(pointer))
                .collect(),
            anchor => self.anchors.get(anchor).cloned().unwrap_or_default(),
        }
    }
}

/// In how many orders some of `count` schemas can be entered.
fn orders(count: u64) -> u64 {
    // 1, 2, 5, 16, 65, 326 …
    (1..=count).fold(1_u64, |orders, count| {
        orders.saturating_mul(count).saturating_add(1)
    })
}

/// The part of an identifier that it shares with any reference to it.
fn last_segment(uri: &str) -> &str {
    let uri = uri.split('#').next().unwrap_or(uri);
    uri.rsplit('/').next().unwrap_or(uri)
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a walk over a schema as JSON has met.
#[derive(Default)]
struct Size {
    bytes: usize,
    values: usize,
    pointers: u64,
    negated: u64,
}

impl Size {
    fn add(&mut self, value: &Value, depth: usize, pointer: u64) -> Result<(), SchemaTooCostly> {
        self.bytes += 1 + value.as_str().map_or(0, str::len);
        self.values += 1;
        self.pointers += pointer;
        if depth > MAX_DEPTH {
            Err(SchemaTooCostly::Depth)
        } else if self.bytes > MAX_BYTES {
            Err(SchemaTooCostly::Bytes)
        } else if self.values > MAX_VALUES {
            Err(SchemaTooCostly::Values)
        } else if self.pointers > MAX_POINTER_BYTES {
            Err(SchemaTooCostly::Pointers)
        } else if self.negated > MAX_NEGATED {
            Err(SchemaTooCostly::Negated)
        } else {
            Ok(())
        }
    }
}
