//! What modules have of the web beside their language's own library: `wasi:http` in the world that they are built
//! for; `fetch`, `console` and promises in JavaScript; and `urllib.request` in Python.

use std::fs;
use std::path::{Path, PathBuf};

use wit_parser::{Resolve, WorldItem, WorldKey};

use super::mention::mention;
use super::scratch::Scratch;
use super::{BuildError, Job, toolchain};

/// The part of WASI that our support calls.
const IO: &str = include_str!("io.wit");
const CLI: &str = include_str!("cli.wit");
const HTTP: &str = include_str!("http.wit");

/// The globals of JavaScript as TypeScript sees them; templates copy it.
pub const DECLARATIONS: &str = template!("typescript/web.d.ts");

/// `console` and promises that settle.
const WEB: &str = include_str!("web.js");
/// `fetch`, after [`WEB`] in the same file.
const FETCH: &str = include_str!("fetch.js");
/// `urllib.request` over `wasi:http`, and the module that a component then begins with.
pub const PYTHON: &[(&str, &str)] = &[
    ("toolhold_web.py", include_str!("toolhold_web.py")),
    ("toolhold_main.py", include_str!("toolhold_main.py")),
];
/// Runs componentize-qjs.
pub const COMPONENTIZE: &str = include_str!("componentize.mjs");

/// The world of the module with what it gets besides.
pub const WORLD: &str = "toolhold-build";

/// The version of WASI in our WIT.
const VERSION: &str = "@0.2.12";
/// The version that scripts are built with. `componentize-qjs` runs the component once to take its snapshot; every
/// import of WASI 0.2 is then its own WASI, in which `wasi:http` is missing, and the streams of the placeholder it
/// makes for that are other types than those of its `wasi:io`. What it does not know at all it replaces as a whole.
const UNKNOWN: &str = "@9.2.11";
/// `wasi:http/types` for Python, whose bindings would give two interfaces `types` other names than modules import.
const TYPES: &str = "httpt";
/// What becomes of these names in the finished component, each as long as it was. The version is not the one that
/// the interpreters import.
const FINAL: [(&str, &str); 2] = [("@9.2.11", "@0.2.11"), ("/httpt@", "/types@")];

/// What a world gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    /// `wasi:http`, for support that calls it as it is.
    Http,
    /// The same under [`UNKNOWN`] and [`TYPES`].
    Python,
    /// Standard error, under [`UNKNOWN`]; and `wasi:http` for `fetch`.
    JavaScript { has_fetch: bool },
}

/// Writes the module's WIT and a world [`WORLD`] into the folder `wit` of `scratch`.
pub fn wit(job: &Job<'_>, scratch: &Scratch, extension: Extension) -> Result<PathBuf, BuildError> {
    let folder = scratch.path().join("wit");
    copy(&toolchain::wit(job)?, &folder, 0)?;
    let (version, types) = match extension {
        Extension::Http => (VERSION, "types"),
        Extension::Python => (UNKNOWN, TYPES),
        Extension::JavaScript { .. } => (UNKNOWN, "types"),
    };
    let mut packages = vec![("io", IO.to_owned())];
    let mut imports = Vec::new();
    if matches!(extension, Extension::JavaScript { .. }) {
        packages.push(("cli", CLI.to_owned()));
        imports.push("wasi:cli/stderr".to_owned());
    }
    if extension != (Extension::JavaScript { has_fetch: false }) {
        let http = HTTP
            .replace("interface types {", &format!("interface {types} {{"))
            .replace("use types.{", &format!("use {types}.{{"));
        packages.push(("http", http));
        imports.push(format!("wasi:http/{types}"));
        imports.push("wasi:http/outgoing-handler".to_owned());
    }
    for (name, text) in packages {
        let package = format!("package wasi:{name}{version};");
        // The author's own text of the same package is at least as long.
        if !mention(&folder, &["wit"], &|text| text.contains(&package)) {
            let text = text.replace(VERSION, version);
            scratch.write(&format!("wit/deps/toolhold-{name}.wit"), &text)?;
        }
    }
    let imports: Vec<_> = imports
        .iter()
        .map(|import| format!("    import {import}{version};\n"))
        .collect();
    let (included, imports) = (job.world(), imports.concat());
    let world = format!("world {WORLD} {{\n    include {included};\n{imports}}}\n");
    scratch.write(&format!("wit/{WORLD}.wit"), &world)?;
    Ok(folder)
}

/// Deeper folders are no WIT: `deps` and a package's folder in it.
const DEPTH: usize = 4;

fn copy(from: &Path, to: &Path, depth: usize) -> Result<(), BuildError> {
    fs::create_dir_all(to).map_err(BuildError::io("create", to))?;
    for path in Job::listed(from, "")? {
        let Some(name) = path.file_name() else {
            continue;
        };
        let target = to.join(name);
        if path.is_file() {
            fs::copy(&path, &target).map_err(BuildError::io("copy", &path))?;
        } else if path.is_dir() && depth < DEPTH {
            copy(&path, &target, depth + 1)?;
        }
    }
    Ok(())
}

/// The module that a component in JavaScript begins with: our globals, then the author's module with its exports, in
/// which functions may return promises. `wit` is what [`wit`] wrote.
pub fn entry(job: &Job<'_>, wit: &Path, has_fetch: bool) -> Result<String, BuildError> {
    let mut text = WEB.to_owned();
    if has_fetch {
        text.push_str(FETCH);
    }
    if job.manifest.world.is_none() {
        text.push_str("asToolError = (error) => TOOL_ERRORS.get(error) ?? error;\n");
    }
    // Not a static import, which would run before the globals are there.
    text.push_str("const module = await import(\"./module.js\");\n");
    let names = exports(wit).map_err(|reason| BuildError::World {
        path: job.manifest.directory.clone(),
        world: job.world().to_owned(),
        reason,
    })?;
    for (index, name) in names.iter().enumerate() {
        let export = format!("export{index}");
        let lines = [
            format!("const {export} = exported(module.{name});\n"),
            format!("export {{ {export} as {name} }};\n"),
        ];
        text.extend(lines);
    }
    Ok(text)
}

/// The names of the world's exports as JavaScript has them.
fn exports(wit: &Path) -> Result<Vec<String>, String> {
    let mut resolve = Resolve::default();
    let world = resolve
        .push_dir(wit)
        .and_then(|(package, _)| resolve.select_world(&[package], Some(WORLD)))
        .map_err(|error| format!("{error:#}"))?;
    let exports = &resolve.worlds[world].exports;
    let mut names: Vec<_> = exports
        .iter()
        .filter(|(_, item)| !matches!(item, WorldItem::Type { .. }))
        .filter_map(|(key, _)| match key {
            WorldKey::Name(name) => Some(lower_camel(name)),
            WorldKey::Interface(id) => resolve.interfaces[*id].name.as_deref().map(lower_camel),
        })
        .collect();
    // Two versions of an interface have one name in JavaScript.
    names.sort();
    names.dedup();
    Ok(names)
}

/// `list-tools` as `listTools`.
fn lower_camel(name: &str) -> String {
    let mut words = name.split('-').map(str::to_lowercase);
    let mut camel = words.next().unwrap_or_default();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        camel.push_str(letters.as_str());
    }
    camel
}

/// Gives the imports of a component that was built with [`UNKNOWN`] their [`FINAL`] names.
pub fn finish(component: &Path) -> Result<(), BuildError> {
    let mut bytes = fs::read(component).map_err(BuildError::io("read", component))?;
    rename(&mut bytes);
    fs::write(component, bytes).map_err(BuildError::io("write", component))
}

/// Nothing of a component's own but the names of its imports is in the sections that are changed.
fn rename(component: &mut [u8]) {
    const HEADER: usize = 8;
    const IMPORTS: u8 = 10;
    let mut at = HEADER;
    while let Some((&id, rest)) = component.get(at..).and_then(<[u8]>::split_first) {
        let Some((size, length)) = leb128(rest) else {
            return;
        };
        let start = at + 1 + length;
        let Some(section) = start
            .checked_add(size)
            .and_then(|end| component.get_mut(start..end))
        else {
            return;
        };
        if id == IMPORTS {
            for (from, to) in FINAL {
                replace(section, from.as_bytes(), to.as_bytes());
            }
        }
        at = start + size;
    }
}

/// A number and how many bytes it takes.
fn leb128(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(5).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    for at in 0..bytes.len() {
        if let Some(found) = bytes.get_mut(at..at + from.len())
            && found == from
        {
            found.copy_from_slice(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_versions_of_imports_are_changed() {
        // A custom section, an import and a custom section, each with the same text.
        let text = b"wasi:io/httpt@9.2.11";
        let section = |id: u8| {
            let mut bytes = vec![id, u8::try_from(text.len()).unwrap()];
            bytes.extend(text);
            bytes
        };
        let mut component = b"\0asm\x0d\0\x01\0".to_vec();
        for id in [0, 10, 0] {
            component.extend(section(id));
        }
        rename(&mut component);
        let changed = String::from_utf8_lossy(&component);
        let found: Vec<_> = changed
            .match_indices("io/")
            .map(|(at, _)| &changed[at + 3..at + 15])
            .collect();
        assert_eq!(found, ["httpt@9.2.11", "types@0.2.11", "httpt@9.2.11"]);
        // What is cut off is left as it is.
        let mut cut = component[..component.len() - 3].to_vec();
        rename(&mut cut);
        assert_eq!(cut, component[..component.len() - 3]);
    }

    #[test]
    fn names_are_those_of_javascript() {
        for (name, expected) in [
            ("call", "call"),
            ("list-tools", "listTools"),
            ("get-URL2-x", "getUrl2X"),
        ] {
            assert_eq!(lower_camel(name), expected);
        }
    }
}
