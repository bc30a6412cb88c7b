//! Doc comments and type names from WIT text.
//!
//! Packages are parsed one by one and never resolved against each other: a `.wit` file that names
//! unavailable packages still documents its own interfaces.

use super::{Docs, FunctionDocs, PartDocs, TypeDocs, TypeRef};
use std::collections::{BTreeMap, HashMap, HashSet};
use toolhold_policy::text;
use wit_parser::{
    AstItem, Function, InterfaceId, SourceMap, Type, TypeDef, TypeDefKind, TypeId, TypeOwner,
    UnresolvedPackage, WorldItem, WorldKey,
};

/// The parser recurses along chains of types. 20 000 of them, the most that fit a package, need a
/// few megabytes; threads of the runtime have two. Only what is touched is ever backed by memory.
const PARSER_STACK_BYTES: usize = 64 << 20;

/// The files of one WIT package.
#[derive(Debug, Clone, Default)]
pub struct WitPackage {
    /// Path, for messages, and text.
    pub files: Vec<(String, String)>,
}

/// The docs of all packages; a package that cannot be parsed is named in `notes`.
pub fn read_all(packages: &[WitPackage], notes: &mut Vec<String>) -> Docs {
    let mut docs = Docs::default();
    let mut exported = HashSet::new();
    for package in packages {
        match parse(package) {
            Ok(parsed) => {
                for package in &parsed {
                    let reader = PackageReader::new(package);
                    exported.extend(reader.exported());
                    reader.read(&mut docs);
                }
            }
            Err(reason) => notes.push(text::visible(&reason, 1_000)),
        }
    }
    // Interfaces that a world only imports are not the author's. Without a world, all count.
    if !exported.is_empty() {
        docs.exports
            .retain(|interface, _| interface.is_empty() || exported.contains(interface));
    }
    docs.prune();
    docs
}

/// The package and those nested in it.
fn parse(package: &WitPackage) -> Result<Vec<UnresolvedPackage>, String> {
    let parse = || {
        let mut sources = SourceMap::new();
        for (path, text) in &package.files {
            sources.push_str(path, text.as_str());
        }
        let group = sources
            .parse()
            .map_err(|(sources, error)| error.render(&sources))?;
        Ok(std::iter::once(group.main).chain(group.nested).collect())
    };
    let name = package.files.first().map_or("", |(path, _)| path);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .stack_size(PARSER_STACK_BYTES)
            .spawn_scoped(scope, parse)
            .map_err(|error| format!("{name} is not read: {error}"))?;
        thread
            .join()
            .unwrap_or_else(|_| Err(format!("{name} is not read: the WIT parser gave up on it")))
    })
}

struct PackageReader<'a> {
    package: &'a UnresolvedPackage,
    /// How a component names each interface: `ns:package/name@version`, or the plain name of one
    /// that stands inside a world.
    interfaces: HashMap<InterfaceId, String>,
}

impl<'a> PackageReader<'a> {
    fn new(package: &'a UnresolvedPackage) -> Self {
        let mut interfaces: HashMap<_, _> = package
            .interfaces
            .iter()
            .filter_map(|(id, interface)| {
                let name = interface.name.as_deref()?;
                Some((id, package.name.interface_id(name)))
            })
            .collect();
        for (foreign, items) in &package.foreign_deps {
            for (name, (item, _)) in items {
                if let AstItem::Interface(id) = item {
                    interfaces.insert(*id, foreign.interface_id(name));
                }
            }
        }
        for (_, world) in &package.worlds {
            for (key, item) in world.exports.iter().chain(&world.imports) {
                if let (WorldKey::Name(name), WorldItem::Interface { id, .. }) = (key, item) {
                    interfaces.entry(*id).or_insert_with(|| name.clone());
                }
            }
        }
        Self {
            package,
            interfaces,
        }
    }

    fn exported(&self) -> Vec<String> {
        let items = self.package.worlds.iter().flat_map(|(_, w)| &w.exports);
        items
            .filter_map(|(_, item)| match item {
                WorldItem::Interface { id, .. } => self.interfaces.get(id).cloned(),
                _ => None,
            })
            .collect()
    }

    fn read(&self, docs: &mut Docs) {
        for (id, interface) in &self.package.interfaces {
            let Some(name) = self.interfaces.get(&id) else {
                continue;
            };
            if !interface.functions.is_empty() {
                let functions = docs.exports.entry(name.clone()).or_default();
                for (name, function) in &interface.functions {
                    functions.insert(name.clone(), self.function(function));
                }
            }
        }
        for (_, world) in &self.package.worlds {
            for (key, item) in &world.exports {
                if let (WorldKey::Name(name), WorldItem::Function(function)) = (key, item) {
                    let functions = docs.exports.entry(String::new()).or_default();
                    functions
                        .entry(name.clone())
                        .or_insert_with(|| self.function(function));
                }
            }
        }
        for (id, ty) in &self.package.types {
            // A type of another package is documented by that package.
            if !matches!(ty.kind, TypeDefKind::Unknown)
                && let Some(key) = self.key(id)
            {
                docs.types.insert(key, self.ty(ty));
            }
        }
    }

    fn function(&self, function: &Function) -> FunctionDocs {
        let parameters = function.params.iter().map(|param| {
            let docs = PartDocs {
                description: None,
                ty: self.reference(&param.ty),
            };
            (param.name.clone(), docs)
        });
        FunctionDocs {
            description: function.docs.contents.clone(),
            parameters: parameters.filter(|(_, docs)| !docs.ty.is_plain()).collect(),
            result: function
                .result
                .as_ref()
                .map_or(TypeRef::Plain, |ty| self.reference(ty)),
            ..FunctionDocs::default()
        }
    }

    fn ty(&self, ty: &TypeDef) -> TypeDocs {
        let part = |name: &str, docs: &wit_parser::Docs, ty: Option<&Type>| {
            let docs = PartDocs {
                description: docs.contents.clone(),
                ty: ty.map_or(TypeRef::Plain, |ty| self.reference(ty)),
            };
            (name.to_owned(), docs)
        };
        let parts: BTreeMap<_, _> = match &ty.kind {
            TypeDefKind::Record(record) => record
                .fields
                .iter()
                .map(|field| part(&field.name, &field.docs, Some(&field.ty)))
                .collect(),
            TypeDefKind::Variant(variant) => variant
                .cases
                .iter()
                .map(|case| part(&case.name, &case.docs, case.ty.as_ref()))
                .collect(),
            TypeDefKind::Enum(names) => names
                .cases
                .iter()
                .map(|case| part(&case.name, &case.docs, None))
                .collect(),
            TypeDefKind::Flags(flags) => flags
                .flags
                .iter()
                .map(|flag| part(&flag.name, &flag.docs, None))
                .collect(),
            _ => BTreeMap::new(),
        };
        TypeDocs {
            description: ty.docs.contents.clone(),
            parts: parts
                .into_iter()
                .filter(|(_, docs)| *docs != PartDocs::default())
                .collect(),
            ty: self.unnamed(&ty.kind),
        }
    }

    fn reference(&self, ty: &Type) -> TypeRef {
        let Type::Id(id) = ty else {
            return TypeRef::Plain;
        };
        match self.key(*id) {
            Some(key) => TypeRef::Named(key),
            None => self.unnamed(&self.package.types[*id].kind),
        }
    }

    /// The parts of a type that has them in an order and not by name. The parser bounds how deep.
    fn unnamed(&self, kind: &TypeDefKind) -> TypeRef {
        let optional =
            |ty: &Option<Type>| ty.as_ref().map_or(TypeRef::Plain, |ty| self.reference(ty));
        let parts = match kind {
            TypeDefKind::Type(ty) => return self.reference(ty),
            TypeDefKind::Option(ty)
            | TypeDefKind::List(ty)
            | TypeDefKind::FixedLengthList(ty, _) => vec![self.reference(ty)],
            TypeDefKind::Tuple(tuple) => tuple.types.iter().map(|ty| self.reference(ty)).collect(),
            TypeDefKind::Result(result) => vec![optional(&result.ok), optional(&result.err)],
            TypeDefKind::Map(key, value) => vec![self.reference(key), self.reference(value)],
            _ => Vec::new(),
        };
        if parts.iter().all(TypeRef::is_plain) {
            TypeRef::Plain
        } else {
            TypeRef::Parts(parts)
        }
    }

    /// The key of a type that has a name.
    fn key(&self, id: TypeId) -> Option<String> {
        let ty = &self.package.types[id];
        let name = ty.name.as_deref()?;
        let owner = match ty.owner {
            TypeOwner::Interface(id) => self.interfaces.get(&id).map_or("", String::as_str),
            TypeOwner::World(_) | TypeOwner::None => "",
        };
        Some(format!("{owner}#{name}"))
    }
}
