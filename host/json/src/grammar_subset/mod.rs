//! JSON Schema → the part of it that every endpoint's grammar understands.
//!
//! Servers ignore, refuse or misread many keywords (docs/toolchains.md, "What grammars support"), and those
//! that ignore one answer 200. So what is sent is a wider schema made of safe keywords, and the full
//! schema is validated on our side.
//!
//! Every value that fits a schema as it is read here fits the reduced one. Four things that an author leaves open are read
//! as authors mean them (docs/protocol.md, 4.7): an object with named properties has no others, a list with positions has no
//! other kinds of items, a schema with properties and no type is one of objects, and a text of a known format is in that
//! format. Strings are bounded where asked.
//!
//! Keywords that hold together (`allOf`, `$ref` and alternatives beside others) are joined (`joined`) before they are
//! reduced (`reduction`, `typed`), because a grammar knows no keyword beside another one.

mod authored;
mod joined;
mod limits;
mod pointers;
#[cfg(test)]
mod property_tests;
mod reduction;
#[cfg(test)]
mod tests;
mod typed;

use reduction::Reduction;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// Formats that all three grammars enforce alike.
const FORMATS: [&str; 4] = ["date", "time", "date-time", "uuid"];
/// Deeper schemas are cut off into "anything"; no tool that a model can use comes near.
const MAX_DEPTH: usize = 32;
/// llama.cpp refuses grammars that repeat more than this often. Longer things are measured on our side only.
pub const MAX_REPETITIONS: u32 = 1_999;
/// Maximum characters of a definition's name, before the number that tells it from others.
const MAX_NAME_CHARS: usize = 80;

/// Key of an object in a schema that keeps descriptions: the author's keywords that no grammar has. It is no keyword, so
/// it is turned into words before the schema is sent.
pub const ALSO: &str = "x-also";

/// Keys of a reduced schema that restrict nothing.
pub const ANNOTATIONS: [&str; 4] = ["description", "default", "examples", ALSO];

/// Reduces several schemas to the grammar subset, for one document; their `$defs` are hoisted under names of their own.
#[derive(Debug)]
pub struct GrammarSubset {
    max_string: Option<u32>,
    keeps_descriptions: bool,
    definitions: Map<String, Value>,
    /// Definitions of schemas that stay as their authors wrote them, by keyword.
    authored: Map<String, Value>,
    names: DefinitionNames,
}

/// Members of an object, joined over all alternatives of its schema.
#[derive(Debug)]
pub struct ObjectMembers {
    pub properties: Map<String, Value>,
    /// Names of the properties that every alternative requires.
    pub required: Vec<String>,
    /// Schema of properties without a name; `false` if there may be none.
    pub additional: Value,
}

impl GrammarSubset {
    pub fn new(max_string: Option<u32>) -> Self {
        Self {
            max_string,
            keeps_descriptions: false,
            definitions: Map::new(),
            authored: Map::new(),
            names: DefinitionNames::default(),
        }
    }

    /// Descriptions, defaults and examples stay, numbers keep their bounds, and keywords that no grammar has stand under
    /// [`ALSO`]: this is all that a model sees of the schema, and not only its grammar.
    #[must_use]
    pub fn with_descriptions(self) -> Self {
        Self {
            keeps_descriptions: true,
            ..self
        }
    }

    pub fn keeps_descriptions(&self) -> bool {
        self.keeps_descriptions
    }

    /// `schema` in safe keywords. `owner` is the beginning of its definitions' names.
    pub fn reduce(&mut self, schema: &Value, owner: &str) -> Value {
        self.reduce_with(schema, owner, |_| ())
    }

    /// Returns `schema` in safe keywords; `change` is applied to each of its definitions before it is hoisted.
    pub fn reduce_with(
        &mut self,
        schema: &Value,
        owner: &str,
        change: impl Fn(&mut Value),
    ) -> Value {
        let mut reduction = Reduction::new(self, schema, owner);
        let reduced = reduction.whole();
        reduction.hoist(change);
        reduced
    }

    /// Returns the members of an object that satisfies `schema`, in safe keywords, for an object that has others beside
    /// them. Which of them go together is left to validation.
    pub fn reduce_members(
        &mut self,
        schema: &Value,
        owner: &str,
        change: impl Fn(&mut Value),
    ) -> ObjectMembers {
        let mut reduction = Reduction::new(self, schema, owner);
        let members = reduction.object();
        reduction.hoist(change);
        members
    }

    /// Returns the same members with the schemas that their author wrote.
    pub fn authored_members(&mut self, schema: &Value, owner: &str) -> ObjectMembers {
        let members = Reduction::verbatim(self, schema, owner).object();
        self.hoist_authored(schema);
        members
    }

    /// Returns `schema` as its author wrote it. References to other places than definitions lead nowhere.
    pub fn authored(&mut self, schema: &Value) -> Value {
        self.hoist_authored(schema);
        let mut own = authored::known(schema);
        if let Value::Object(keywords) = &mut own {
            for keyword in authored::DEFINITIONS {
                keywords.shift_remove(keyword);
            }
        }
        own
    }

    fn hoist_authored(&mut self, schema: &Value) {
        for keyword in authored::DEFINITIONS {
            let Some(own @ Value::Object(named)) = schema.get(keyword) else {
                continue;
            };
            for name in named.keys() {
                self.names.reserve(name);
            }
            self.authored
                .insert(keyword.to_owned(), authored::known_each(own));
        }
    }

    /// True if no schema that was reduced so far has definitions, so that what is reduced next does not depend on it.
    pub fn is_free_of_definitions(&self) -> bool {
        self.names.counts.is_empty() && self.authored.is_empty()
    }

    /// Hoists a schema that is reduced already. The names of others hold an underscore.
    pub fn define(&mut self, name: &str, schema: Value) {
        self.names.reserve(name);
        self.definitions.insert(name.to_owned(), schema);
    }

    /// `schema` with all hoisted definitions.
    pub fn finish(mut self, mut schema: Value) -> Value {
        if let Some(Value::Object(own)) = self.authored.shift_remove("$defs") {
            self.definitions.extend(own);
        }
        if let Value::Object(root) = &mut schema {
            root.extend(self.authored);
            if !self.definitions.is_empty() {
                root.insert("$defs".into(), Value::Object(self.definitions));
            }
        }
        schema
    }
}

/// Names of hoisted definitions, of which no two are one for a server. llama.cpp makes one hyphen of all characters between
/// letters and digits, so `a_b` and `a__b` would be the same rule of its grammar.
#[derive(Debug, Default)]
struct DefinitionNames {
    folded: HashSet<String>,
    /// How many names were asked for, by what they would be alone.
    counts: HashMap<String, usize>,
}

impl DefinitionNames {
    fn reserve(&mut self, name: &str) {
        self.folded.insert(folded(name));
    }

    /// A name for what `reference` of `owner`'s schema leads to.
    fn add(&mut self, owner: &str, reference: &str) -> String {
        let own = reference.trim_start_matches(['#', '/']);
        let own = ["$defs/", "definitions/"]
            .iter()
            .find_map(|folder| own.strip_prefix(folder))
            .unwrap_or(own);
        let own = if own.is_empty() { "root" } else { own };
        let alone: String = [owner, own].join("_");
        let alone = alone.chars().take(MAX_NAME_CHARS);
        let alone: String = alone
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        let count = self.counts.entry(folded(&alone)).or_insert(0);
        loop {
            *count += 1;
            let name = match *count {
                1 => alone.clone(),
                count => format!("{alone}_{count}"),
            };
            if self.folded.insert(folded(&name)) {
                return name;
            }
        }
    }
}

/// A name as the server reads it that tells the fewest apart.
fn folded(name: &str) -> String {
    let mut folded = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_ascii_alphanumeric() {
            folded.push(c);
        } else if !folded.ends_with('-') {
            folded.push('-');
        }
    }
    folded
}
