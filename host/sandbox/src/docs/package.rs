//! The custom section `package-docs` of wit-component: a version byte, then JSON.
//!
//! Read by hand and leniently: `wit-parser` rejects the section as a whole when it names a world or
//! an item that the component does not have. It names interfaces without their package, and keeps no
//! relation between functions and types, so only what it says of functions is of use.

use super::{Docs, FunctionDocs};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use toolhold_json::bounded;

/// The section's name.
pub const NAME: &str = "package-docs";
/// As for our own section.
pub const MAX_BYTES: usize = super::section::MAX_BYTES;

/// Reads the content of the section.
///
/// # Errors
/// Why it is ignored: too large, of an unknown version, not JSON.
pub fn parse(content: &[u8]) -> Result<Docs, String> {
    if content.len() > MAX_BYTES {
        return Err(format!(
            "it has {} bytes, more than the {MAX_BYTES} that are read",
            content.len()
        ));
    }
    let json = match content.split_first() {
        Some((0 | 1, json)) => json,
        Some((version, _)) => return Err(format!("its version {version} is unknown")),
        None => return Err("it is empty".into()),
    };
    let document: Value = bounded::from_slice(json).map_err(|error| error.to_string())?;
    let mut docs = Docs::default();
    interfaces(&document, "interfaces", &mut docs);
    for (_, world) in entries(&document, "worlds") {
        // Imports stand among these too; a component exports none of them by mistake.
        interfaces(world, "interfaces", &mut docs);
        interfaces(world, "interface_exports", &mut docs);
        for kind in ["funcs", "func_exports"] {
            add(&mut docs, "", functions(world, kind));
        }
    }
    Ok(docs)
}

fn interfaces(of: &Value, kind: &str, docs: &mut Docs) {
    for (name, interface) in entries(of, kind) {
        add(docs, name, functions(interface, "funcs"));
    }
}

fn add(docs: &mut Docs, interface: &str, functions: BTreeMap<String, FunctionDocs>) {
    if !functions.is_empty() {
        let known = docs.exports.entry(interface.to_owned()).or_default();
        for (name, function) in functions {
            known.entry(name).or_insert(function);
        }
    }
}

/// Version 0 has the text itself, version 1 an object with `docs`.
fn functions(of: &Value, kind: &str) -> BTreeMap<String, FunctionDocs> {
    entries(of, kind)
        .filter_map(|(name, function)| {
            let text = function
                .as_str()
                .or_else(|| function.get("docs")?.as_str())?;
            let docs = FunctionDocs {
                description: Some(text.to_owned()),
                ..FunctionDocs::default()
            };
            Some((name.clone(), docs))
        })
        .collect()
}

fn entries<'a>(of: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    of.get(key)
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::iter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_versions_are_read() {
        let json = r#"{"interfaces": {"book": {"funcs": {"a": "zero", "b": {"docs": "one", "stability": 1}, "c": 3}}},
            "worlds": {"w": {"func_exports": {"own": "the world's"}, "funcs": []}}}"#;
        for version in [0_u8, 1] {
            let docs = parse(&[&[version], json.as_bytes()].concat()).unwrap();
            let said = |interface, function| {
                docs.function(interface, function)
                    .and_then(|f| f.description.as_deref())
            };
            assert_eq!(said(Some("x:y/book@1.0.0"), "a"), Some("zero"));
            assert_eq!(said(Some("x:y/book@1.0.0"), "b"), Some("one"));
            assert_eq!(said(Some("x:y/book@1.0.0"), "c"), None);
            assert_eq!(said(None, "own"), Some("the world's"));
        }
        assert!(parse(b"").is_err() && parse(b"\x02{}").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let _ = parse(&[b"\x01", &bytes[..]].concat());
        }
    }
}
