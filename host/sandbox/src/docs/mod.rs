//! What people wrote about a component's functions and types, from wherever it survived.
//!
//! Today's toolchains drop the doc comments of WIT and the names of its types. [`section`] reads and
//! writes our own custom section, [`wit`] reads `.wit` files (`files` finds them), [`package`] reads
//! the `package-docs` of wit-component. All give the same [`Docs`]. Everything in them was written
//! by the module's author: nothing here is believed, and what is shown goes through [`text::visible`].

pub mod package;
pub mod section;
pub mod wit;

pub(crate) mod files;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use toolhold_policy::text;
pub use toolhold_policy::tool::{Claims, DocsSource};

/// Characters of one field's description: enough for a sentence or three, at every use of a type.
const MAX_PART_CHARS: usize = 400;
/// Names that stand for one another, followed no further: `type a = b` may go in circles.
const MAX_ALIAS_STEPS: usize = 16;

/// Docs of a component's exports. Sorted maps, so that the same docs are the same bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Docs {
    /// Interface → function → docs. The world's own functions are under the empty name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub exports: BTreeMap<String, BTreeMap<String, FunctionDocs>>,
    /// Named types, by names that mean something only to the [`TypeRef`]s beside them. Their last
    /// part, after `#`, is what the author called them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub types: BTreeMap<String, TypeDocs>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FunctionDocs {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Claims::is_empty")]
    pub annotations: Claims,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<ExampleDocs>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, PartDocs>,
    #[serde(skip_serializing_if = "TypeRef::is_plain")]
    pub result: TypeRef,
}

/// A call worth showing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExampleDocs {
    pub task: String,
    pub arguments: Value,
    pub output: Value,
    pub answer: String,
}

/// A parameter, a field, or a case, whose type is then its payload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartDocs {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "TypeRef::is_plain")]
    pub ty: TypeRef,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TypeDocs {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Fields, cases, names of an enum or of flags.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, PartDocs>,
    /// The type it is another name for.
    #[serde(rename = "type", skip_serializing_if = "TypeRef::is_plain")]
    pub ty: TypeRef,
}

/// Where a value's type is documented.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TypeRef {
    /// Nothing is known of it: `null`.
    #[default]
    Plain,
    /// A key of [`Docs::types`].
    Named(String),
    /// The parts of a type without a name, in their order: a list's item, an option's value, a
    /// tuple's items, a result's two sides, a map's key and value.
    Parts(Vec<TypeRef>),
}

/// Reads the docs in the `wit/` folder of a module, and what is wrong with it.
///
/// # Errors
/// If the folder itself cannot be opened.
pub fn of_module(folder: &Path) -> std::io::Result<(Docs, Vec<String>)> {
    let folder = cap_std::fs::Dir::open_ambient_dir(folder, cap_std::ambient_authority())?;
    let (packages, mut notes) = files::beside(&folder, None);
    let docs = wit::read_all(&packages, &mut notes);
    Ok((docs, notes))
}

impl Docs {
    pub fn is_empty(&self) -> bool {
        self.exports.is_empty()
    }

    /// The docs of a function. Another version of its interface will do, and so will an interface
    /// named without its package, as `package-docs` does.
    pub fn function(&self, interface: Option<&str>, function: &str) -> Option<&FunctionDocs> {
        let Some(interface) = interface else {
            return self.exports.get("")?.get(function);
        };
        let bare = |name: &str| name.rsplit('/').next().map(str::to_owned);
        let unversioned = without_version(interface);
        self.exports
            .get(interface)
            .or_else(|| {
                let mut same = self
                    .exports
                    .iter()
                    .filter(|(name, _)| without_version(name) == unversioned);
                same.next().map(|(_, functions)| functions)
            })
            .or_else(|| self.exports.get(&bare(unversioned)?))?
            .get(function)
    }

    /// Drops functions without docs and types that no function leads to.
    pub(crate) fn prune(&mut self) {
        let types = &self.types;
        let mut used = BTreeSet::new();
        self.exports.retain(|_, functions| {
            functions.retain(|_, function| {
                let refs = || {
                    let parameters = function.parameters.values().map(|p| &p.ty);
                    parameters.chain([&function.result])
                };
                let bare = FunctionDocs {
                    parameters: BTreeMap::new(),
                    result: TypeRef::Plain,
                    ..function.clone()
                };
                let documented = bare != FunctionDocs::default()
                    || function
                        .parameters
                        .values()
                        .any(|p| p.description.is_some())
                    || refs().any(|ty| is_known(types, ty));
                if documented {
                    // What was reached before is not walked again: the cost is that of the docs, and not that of
                    // each function's.
                    refs().for_each(|ty| reach(types, ty, &mut used));
                }
                documented
            });
            !functions.is_empty()
        });
        let used: BTreeSet<String> = used.into_iter().map(str::to_owned).collect();
        self.types.retain(|name, _| used.contains(name));
    }
}

/// Whether a type of `types` is named in `from`.
fn is_known(types: &BTreeMap<String, TypeDocs>, from: &TypeRef) -> bool {
    let mut open = vec![from];
    while let Some(ty) = open.pop() {
        match ty {
            TypeRef::Parts(parts) => open.extend(parts),
            TypeRef::Named(name) if types.contains_key(name) => return true,
            TypeRef::Named(_) | TypeRef::Plain => {}
        }
    }
    false
}

/// Collects the names that `from` leads to. Without recursion: an author chose how deep it goes.
fn reach<'a: 'b, 'b>(
    types: &'a BTreeMap<String, TypeDocs>,
    from: &'b TypeRef,
    used: &mut BTreeSet<&'a str>,
) {
    let mut open = vec![from];
    while let Some(ty) = open.pop() {
        match ty {
            TypeRef::Plain => {}
            TypeRef::Parts(parts) => open.extend(parts),
            TypeRef::Named(name) => {
                if let Some((name, docs)) = types.get_key_value(name)
                    && used.insert(name)
                {
                    open.push(&docs.ty);
                    open.extend(docs.parts.values().map(|part| &part.ty));
                }
            }
        }
    }
}

fn without_version(interface: &str) -> &str {
    interface.split('@').next().unwrap_or(interface)
}

impl TypeRef {
    pub fn is_plain(&self) -> bool {
        *self == Self::Plain
    }
}

/// The docs of one type while its shape is walked. Docs that do not fit the shape are never found.
#[derive(Clone, Copy)]
pub(crate) struct Glossary<'a> {
    types: Option<&'a BTreeMap<String, TypeDocs>>,
    at: &'a TypeRef,
}

/// The docs of one type.
#[derive(Default)]
pub(crate) struct GlossaryEntry<'a> {
    /// What its author calls it.
    pub name: Option<String>,
    pub description: Option<String>,
    parts: Option<&'a BTreeMap<String, PartDocs>>,
    children: &'a [TypeRef],
}

impl<'a> Glossary<'a> {
    pub const EMPTY: Glossary<'static> = Glossary {
        types: None,
        at: &TypeRef::Plain,
    };

    pub fn new(docs: &'a Docs, at: &'a TypeRef) -> Self {
        Self {
            types: Some(&docs.types),
            at,
        }
    }

    pub fn entry(self) -> GlossaryEntry<'a> {
        let mut entry = GlossaryEntry::default();
        let mut at = self.at;
        for _ in 0..MAX_ALIAS_STEPS {
            match at {
                TypeRef::Plain => break,
                TypeRef::Parts(children) => {
                    entry.children = children;
                    break;
                }
                TypeRef::Named(key) => {
                    let name = key.rsplit('#').next().unwrap_or(key);
                    entry.name.get_or_insert_with(|| shown(name));
                    let Some(docs) = self.types.and_then(|types| types.get(key)) else {
                        break;
                    };
                    if entry.description.is_none() {
                        entry.description = docs.description.as_deref().map(shown);
                    }
                    entry.parts = Some(&docs.parts);
                    at = &docs.ty;
                }
            }
        }
        entry
    }

    /// Of the field or case `name`: what is said of it, and the docs of its type.
    pub fn part(self, entry: &GlossaryEntry<'a>, name: &str) -> (Option<String>, Self) {
        match entry.parts.and_then(|parts| parts.get(name)) {
            Some(part) => (
                part.description.as_deref().map(shown),
                Self {
                    at: &part.ty,
                    ..self
                },
            ),
            None => (None, Self::EMPTY),
        }
    }

    /// Of the `index`th part of a type without a name.
    pub fn child(self, entry: &GlossaryEntry<'a>, index: usize) -> Self {
        let at = entry.children.get(index).unwrap_or(&TypeRef::Plain);
        Self { at, ..self }
    }
}

/// A part's description as a model sees it.
pub(crate) fn shown(text: &str) -> String {
    text::visible(text.trim(), MAX_PART_CHARS)
}
