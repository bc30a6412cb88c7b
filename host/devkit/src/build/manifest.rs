//! The part of `module.toml` that a build needs. The sandbox owns the whole file and checks it when
//! the module is loaded; a build must work before there is anything to load.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toolhold_files::Links;
use toolhold_policy::is_name;

use super::sources::SourceArchives;
use super::{BuildError, Language};

/// What to build, and where the result belongs. Paths are absolute.
#[derive(Debug)]
pub struct BuildManifest {
    pub name: String,
    pub language: Language,
    /// The world to implement, for a module with a `wit/` folder of its own.
    pub world: Option<String>,
    /// Files of others that are fetched for the build.
    pub sources: Option<SourceArchives>,
    /// A Rust module contains C: the build provides a compiler for it.
    pub c_compiler: bool,
    pub directory: PathBuf,
    pub component: PathBuf,
}

#[derive(Deserialize)]
struct Document {
    name: Option<String>,
    component: Option<String>,
    build: Option<Build>,
}

#[derive(Deserialize)]
struct Build {
    language: String,
    world: Option<String>,
    sources: Option<SourceArchives>,
    #[serde(default)]
    c_compiler: bool,
}

/// Most bytes of a file that says what to build: a watch reads it at each change.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// The text of such a file.
pub fn read_text(path: &Path) -> Result<String, BuildError> {
    toolhold_files::read_text(path, MAX_TEXT_BYTES, Links::Follow)
        .map_err(BuildError::io("read", path))
}

impl BuildManifest {
    pub fn read(module_dir: &Path) -> Result<Self, BuildError> {
        let directory =
            fs::canonicalize(module_dir).map_err(BuildError::io("open the module", module_dir))?;
        let path = directory.join("module.toml");
        let text = read_text(&path)?;
        let document: Document = toml::from_str(&text).map_err(|source| BuildError::Manifest {
            path: path.clone(),
            source: Box::new(source),
        })?;
        let Some(build) = document.build else {
            return Err(BuildError::NoRecipe { path });
        };
        let language = build.language.parse();
        let language = language.map_err(|source| BuildError::Language {
            path: path.clone(),
            source,
        })?;
        let bad = |key, found, wanted| BuildError::BadValue {
            path: path.clone(),
            key,
            found,
            wanted,
        };
        if let Some(sources) = &build.sources
            && let Some(wanted) = sources.fault()
        {
            return Err(bad("build.sources", format!("{sources:?}"), wanted));
        }
        let folder = directory.file_name();
        let folder = folder.map(|name| name.to_string_lossy().into_owned());
        let name = document.name.or(folder).unwrap_or_default();
        // The name becomes part of file names, the component's the target of a rename.
        if !is_name(&name) {
            let wanted = "a name of lower-case letters, digits and `_` that begins with a letter";
            return Err(bad("name", name, wanted));
        }
        let component = document.component.unwrap_or_else(|| format!("{name}.wasm"));
        if Path::new(&component).file_name() != Some(component.as_ref()) {
            let wanted = "the name of a file in the module's folder, without a path";
            return Err(bad("component", component, wanted));
        }
        Ok(Self {
            name,
            language,
            world: build.world,
            sources: build.sources,
            c_compiler: build.c_compiler,
            component: directory.join(component),
            directory,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BuildManifest, String> {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("folder");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("module.toml"), text).unwrap();
        BuildManifest::read(&directory).map_err(|error| error.to_string())
    }

    #[test]
    fn names_default_to_the_folder() {
        let manifest = read("[build]\nlanguage = \"js\"\n[limits]\nfuel = 1").unwrap();
        assert_eq!(
            (manifest.name.as_str(), manifest.language),
            ("folder", Language::JavaScript)
        );
        assert!(manifest.component.ends_with("folder/folder.wasm"));
    }

    #[test]
    fn fault_is_named_with_its_place() {
        let cases = [
            ("name = \"x\"", "add\n[build]\nlanguage"),
            ("[build]\nlanguage = \"cobol\"", "`cobol` is not a language"),
            (
                "name = \"../x\"\n[build]\nlanguage = \"rust\"",
                "must be a name of lower-case",
            ),
            (
                "component = \"../x.wasm\"\n[build]\nlanguage = \"rust\"",
                "without a path",
            ),
            ("name = ", "is not a module manifest"),
        ];
        for (text, expected) in cases {
            let error = read(text).unwrap_err();
            assert!(
                error.contains(expected) && error.contains("module.toml"),
                "{text}: {error}"
            );
        }
    }
}
