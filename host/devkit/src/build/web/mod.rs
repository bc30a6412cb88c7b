//! What modules have of the web beside their language's own library: `wasi:http` in the world that they are built
//! for; `fetch`, `console` and promises in JavaScript; and `urllib.request` in Python.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use wit_parser::{Resolve, WorldItem, WorldKey};

use super::mention::mention;
use super::scratch::Scratch;
use super::{BuildError, Job, toolchain};

/// The part of WASI that our support calls.
const IO: &str = include_str!("io.wit");
const CLI: &str = include_str!("cli.wit");
const HTTP: &str = include_str!("http.wit");
/// A clock to wait with, for the requests that a module gives a time.
const CLOCKS: &str = include_str!("clocks.wit");

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
/// What becomes of our imports in the finished component: names that are as long. The version is not one that the
/// interpreters import.
const FINAL: [(&str, &str); 8] = [
    ("wasi:cli/stderr@9.2.11", "wasi:cli/stderr@0.2.11"),
    (
        "wasi:clocks/monotonic-clock@9.2.11",
        "wasi:clocks/monotonic-clock@0.2.11",
    ),
    ("wasi:http/httpt@9.2.11", "wasi:http/types@0.2.11"),
    (
        "wasi:http/outgoing-handler@9.2.11",
        "wasi:http/outgoing-handler@0.2.11",
    ),
    ("wasi:http/types@9.2.11", "wasi:http/types@0.2.11"),
    ("wasi:io/error@9.2.11", "wasi:io/error@0.2.11"),
    ("wasi:io/poll@9.2.11", "wasi:io/poll@0.2.11"),
    ("wasi:io/streams@9.2.11", "wasi:io/streams@0.2.11"),
];

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
    copy(&toolchain::wit(job)?, scratch)?;
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
    if matches!(
        extension,
        Extension::Http | Extension::JavaScript { has_fetch: true }
    ) {
        packages.push(("clocks", CLOCKS.to_owned()));
        imports.push("wasi:clocks/monotonic-clock".to_owned());
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

/// Most files and folders of a module's WIT, and most bytes of its texts together.
const MOST_ENTRIES: usize = 1000;
const MOST_BYTES: u64 = 8 << 20;

/// Copies the texts of WIT in `from` (`*.wit`, `deps/*.wit`, `deps/*/*.wit`) to the folder `wit` of `scratch`. A link is
/// an error: a module that others wrote could name any file of this machine.
pub fn copy(from: &Path, scratch: &Scratch) -> Result<(), BuildError> {
    let (Some(module), Some(name)) = (from.parent(), from.file_name()) else {
        return Ok(());
    };
    let folder = Dir::open_ambient_dir(module, ambient_authority())
        .and_then(|module| module.open_dir(name))
        .map_err(BuildError::io("open", from))?;
    let mut open = vec![(folder, PathBuf::new())];
    let (mut entries, mut left) = (0, MOST_BYTES);
    while let Some((folder, place)) = open.pop() {
        let here = from.join(&place);
        for entry in folder.entries().map_err(BuildError::io("list", &here))? {
            let entry = entry.map_err(BuildError::io("list", &here))?;
            entries += 1;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else {
                continue;
            };
            let (path, place) = (here.join(name), place.join(name));
            let refused = |why: String| BuildError::io("copy", &path)(io::Error::other(why));
            if entries > MOST_ENTRIES {
                return Err(refused(format!(
                    "the WIT of a module has at most {MOST_ENTRIES} files and folders"
                )));
            }
            let kind = entry.file_type().map_err(BuildError::io("read", &path))?;
            let depth = place.components().count();
            if kind.is_symlink() {
                let why = "links are not followed; put the file or folder itself in its place";
                return Err(refused(why.to_owned()));
            } else if kind.is_dir() {
                if name == "deps" || depth == 2 {
                    let inner = entry.open_dir().map_err(BuildError::io("open", &path))?;
                    open.push((inner, place));
                }
            } else if kind.is_file() && path.extension().is_some_and(|end| end == "wit") {
                let file = entry.open().map_err(BuildError::io("open", &path))?;
                let mut text = String::new();
                let read = file.take(left + 1).read_to_string(&mut text);
                let size = read.map_err(BuildError::io("read", &path))? as u64;
                left = left.checked_sub(size).ok_or_else(|| {
                    let most = MOST_BYTES >> 20;
                    refused(format!("the WIT of a module has at most {most} MiB"))
                })?;
                scratch.write(&format!("wit/{}", place.display()), &text)?;
            }
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
    text.push_str("isBuilt = true;\n");
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

/// Gives our imports in a component that was built with [`UNKNOWN`] their [`FINAL`] names.
pub fn finish(component: &Path) -> Result<(), BuildError> {
    let mut bytes = fs::read(component).map_err(BuildError::io("read", component))?;
    rename(&mut bytes)
        .and_then(|()| match wit_component::decode(&bytes) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{error:#}")),
        })
        .map_err(|reason| BuildError::Imports {
            path: component.to_owned(),
            reason,
        })?;
    fs::write(component, bytes).map_err(BuildError::io("write", component))
}

/// Changes whole names in the sections of a component's own imports, and nothing else.
fn rename(component: &mut [u8]) -> Result<(), String> {
    const HEADER: usize = 8;
    const IMPORTS: u8 = 10;
    let cut = || "its sections cannot be read".to_owned();
    let mut at = HEADER;
    while let Some((&id, rest)) = component.get(at..).and_then(<[u8]>::split_first) {
        let (size, length) = leb128(rest).ok_or_else(cut)?;
        let start = at + 1 + length;
        let end = start.checked_add(size).ok_or_else(cut)?;
        let section = component.get_mut(start..end).ok_or_else(cut)?;
        if id == IMPORTS {
            for (_, to) in FINAL {
                if find(section, to).is_some() {
                    return Err(format!(
                        "its world imports `{to}` itself, which the build adds: import another version of 0.2"
                    ));
                }
            }
            for (from, to) in FINAL {
                while let Some(place) = find(section, from) {
                    let name = section.get_mut(place..place + to.len()).ok_or_else(cut)?;
                    name.copy_from_slice(to.as_bytes());
                }
            }
        }
        at = end;
    }
    Ok(())
}

/// Where a whole name begins: its length stands before it, which no name contains.
fn find(section: &[u8], name: &str) -> Option<usize> {
    let length = u8::try_from(name.len()).ok()?;
    let is_name = |bytes: &[u8]| {
        let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
        *first == length && rest == name.as_bytes()
    };
    let found = section.windows(name.len() + 1).position(is_name);
    found.map(|at| at + 1)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A custom section, imports and a custom section, each with the same names.
    fn component(names: &[&str]) -> Vec<u8> {
        let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
        for id in [0, 10, 0] {
            let mut section = Vec::new();
            for name in names {
                section.push(u8::try_from(name.len()).unwrap());
                section.extend(name.as_bytes());
            }
            bytes.extend([id, u8::try_from(section.len()).unwrap()]);
            bytes.extend(section);
        }
        bytes
    }

    #[test]
    fn only_the_names_of_our_own_imports_are_changed() {
        let names = [
            "wasi:http/httpt@9.2.11",
            "acme:lib/httpt@1.0.0",
            "acme:x/y@9.2.11",
            "wasi:io/poll@9.2.110",
        ];
        let mut renamed = component(&names);
        rename(&mut renamed).unwrap();
        let text = String::from_utf8_lossy(&renamed);
        assert_eq!(text.matches("wasi:http/types@0.2.11").count(), 1);
        assert_eq!(text.matches(names[0]).count(), 2);
        for kept in &names[1..] {
            assert_eq!(text.matches(kept).count(), 3, "{kept}");
        }
        // What is cut off, or has a final name already, is no component that is published.
        let cut = renamed.len() - 3;
        assert!(rename(&mut renamed[..cut]).is_err());
        let twice = rename(&mut component(&[
            "wasi:io/poll@0.2.11",
            "wasi:io/poll@9.2.11",
        ]));
        assert!(twice.unwrap_err().contains("`wasi:io/poll@0.2.11` itself"));
    }

    #[test]
    fn only_texts_of_wit_are_copied_and_no_link_is_followed() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("outside/secret.wit", "secret");
        for path in ["w.wit", "deps/a.wit", "deps/b/b.wit"] {
            write(&format!("module/wit/{path}"), path);
        }
        for path in ["notes.txt", ".hidden.wit", "other/o.wit", "deps/b/c/c.wit"] {
            write(&format!("module/wit/{path}"), path);
        }
        let wit = root.path().join("module/wit");
        let copied = || {
            let scratch = Scratch::at(root.path().join("refused"));
            copy(&wit, &scratch).map_err(|error| error.to_string())
        };
        let scratch = Scratch::at(root.path().join("scratch"));
        copy(&wit, &scratch).unwrap();
        let mut found = Vec::new();
        let mut open = vec![scratch.path().to_owned()];
        while let Some(folder) = open.pop() {
            for path in fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().path())
            {
                if path.is_dir() {
                    open.push(path);
                } else {
                    found.push(path.strip_prefix(scratch.path()).unwrap().to_owned());
                }
            }
        }
        found.sort();
        let expected = ["wit/deps/a.wit", "wit/deps/b/b.wit", "wit/w.wit"];
        assert_eq!(found, expected.map(PathBuf::from));

        // A sparse file of any size.
        let large = wit.join("large.wit");
        fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
        assert!(copied().unwrap_err().contains("at most 8 MiB"));
        fs::remove_file(&large).unwrap();
        for place in ["wit/x.wit", "wit/deps/x", "wit/deps/b/x.wit"] {
            let link = root.path().join("module").join(place);
            std::os::unix::fs::symlink(root.path().join("outside"), &link).unwrap();
            let error = copied().unwrap_err();
            assert!(error.contains("links are not followed"), "{place}: {error}");
            fs::remove_file(&link).unwrap();
        }
        fs::rename(&wit, root.path().join("module/w")).unwrap();
        std::os::unix::fs::symlink(root.path().join("outside"), &wit).unwrap();
        assert!(copied().unwrap_err().contains("cannot open"));
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
