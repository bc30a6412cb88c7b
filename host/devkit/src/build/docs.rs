//! Keeps the author's doc comments: toolchains drop the comments of WIT, so a build appends them.
//!
//! The section is `toolhold:docs` (see `toolhold_sandbox::docs::section`). A component stays valid
//! with it, another host ignores it, and the same source gives the same bytes.

use std::fs;
use std::path::Path;

use toolhold_sandbox::docs::{of_module, section};

use super::BuildError;

/// Appends the docs in the module's `wit/` folder to the component at `component`, in place of any
/// that it has. Without such a folder the component stays as it is. Returns what could not be read:
/// the toolchain understood the WIT, so this is no reason to fail.
pub fn append(module: &Path, component: &Path) -> Result<Vec<String>, BuildError> {
    if !module.join("wit").is_dir() {
        return Ok(Vec::new());
    }
    let (docs, notes) = of_module(module).map_err(BuildError::io("open the module", module))?;
    let bytes = fs::read(component).map_err(BuildError::io("read", component))?;
    let with = section::replace(&bytes, &docs).map_err(|reason| BuildError::Docs {
        path: component.to_owned(),
        reason,
    })?;
    if with != bytes {
        fs::write(component, with).map_err(BuildError::io("write", component))?;
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest component.
    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    fn module(wit: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("wit")).unwrap();
        fs::write(folder.path().join("wit/w.wit"), wit).unwrap();
        let component = folder.path().join("m.wasm");
        fs::write(&component, EMPTY).unwrap();
        (folder, component)
    }

    #[test]
    fn docs_are_appended_once_and_follow_the_source() {
        let text = "package a:b;\ninterface i {\n/// Adds.\nadd: func(n: u8) -> u8;\n}\nworld w { export i; }";
        let (folder, component) = module(text);
        assert!(append(folder.path(), &component).unwrap().is_empty());
        let first = fs::read(&component).unwrap();
        let docs = section::parse(section::find(&first, section::NAME).unwrap()).unwrap();
        let add = docs.function(Some("a:b/i"), "add").unwrap();
        assert_eq!(add.description.as_deref(), Some("Adds."));

        append(folder.path(), &component).unwrap();
        assert_eq!(fs::read(&component).unwrap(), first);

        fs::write(
            folder.path().join("wit/w.wit"),
            text.replace("/// Adds.", ""),
        )
        .unwrap();
        append(folder.path(), &component).unwrap();
        assert_eq!(fs::read(&component).unwrap(), EMPTY);
    }

    #[test]
    fn wit_that_cannot_be_read_is_a_note_and_a_core_module_an_error() {
        let (folder, component) = module("package a:b; interface {");
        let notes = append(folder.path(), &component).unwrap();
        assert!(notes.len() == 1 && notes[0].contains("w.wit"), "{notes:?}");
        fs::write(&component, b"\0asm\x01\0\0\0").unwrap();
        let error = append(folder.path(), &component).unwrap_err().to_string();
        assert!(error.contains("not a WebAssembly component"), "{error}");
    }
}
