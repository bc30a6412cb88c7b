//! `toolhold new-module`: creates a small, complete module that builds and can be called at once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::build;
use crate::build::{DECLARATIONS, Language, WEB_DECLARATIONS, WIT};
use toolhold_policy::is_name;

/// The kind of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offers {
    Tools,
    /// A verdict on what runs and tools say.
    Shield,
}

/// Creates the folder `parent/name` with a module in `language` and returns its path.
///
/// The folder must not exist yet; if something fails half-way it is removed again.
pub fn create(
    parent: &Path,
    name: &str,
    language: Language,
    offers: Offers,
) -> Result<PathBuf, ScaffoldError> {
    let template = match (offers, language) {
        (Offers::Tools, Language::Rust) => &RUST,
        (Offers::Tools, Language::C) => &C,
        (Offers::Tools, Language::Go) => &GO,
        (Offers::Tools, Language::Python) => &PYTHON,
        (Offers::Tools, Language::JavaScript) => &JAVASCRIPT,
        (Offers::Tools, Language::TypeScript) => &TYPESCRIPT,
        (Offers::Shield, Language::Rust) => &RUST_SHIELD,
        (Offers::Shield, _) => return Err(ScaffoldError::NoShield { language }),
    };
    if !is_name(name) {
        let name = name.to_owned();
        return Err(ScaffoldError::Name { name });
    }
    let folder = parent.join(name);
    fs::create_dir_all(parent).map_err(ScaffoldError::io(parent))?;
    let path = folder.clone();
    fs::create_dir(&folder).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => ScaffoldError::Exists { path },
        _ => ScaffoldError::Io { path, source },
    })?;
    let written = write(&folder, name, language, template);
    if written.is_err() {
        // The first error is reported.
        let _ = fs::remove_dir_all(&folder);
    }
    written.map(|()| folder)
}

/// Why the module could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ScaffoldError {
    #[error(
        "`{name}` cannot be a module's name: use up to 48 lower-case letters, digits \
         and `_`, beginning with a letter"
    )]
    Name { name: String },

    #[error(
        "there is no template for a shield in {language}: use --lang rust; a shield in another language \
         exports toolhold:module/shields of wit/shield.wit"
    )]
    NoShield { language: Language },

    #[error("{path} exists already: choose another name or remove it", path = path.display())]
    Exists { path: PathBuf },

    #[error("cannot write {path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl ScaffoldError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// Files of one language besides the common ones.
struct Template {
    title: &'static str,
    /// The file an author edits.
    source: &'static str,
    /// The end of the README.
    notes: &'static str,
    /// Files of modules in every language.
    common: Files,
    files: Files,
    /// The folder of the source's support, and the files in it.
    support: (&'static str, Files),
}

/// Name and text of each file.
type Files = &'static [(&'static str, &'static str)];

/// A file that cargo or git would act on has the suffix `.in` in our tree, which is removed here.
const COMMON: Files = &[
    ("module.toml", template!("module.toml.in")),
    ("README.md", template!("README.md.in")),
    ("wit/toolhold.wit", WIT),
];

/// The same of a shield.
const COMMON_OF_SHIELDS: Files = &[
    ("module.toml", template!("shield/module.toml.in")),
    ("README.md", template!("shield/README.md.in")),
    ("wit/toolhold.wit", WIT),
];

const RUST: Template = Template {
    title: "Rust",
    source: "src/lib.rs",
    notes: "`cargo test` runs the examples natively. `vendor/toolhold-guest` is the helper crate that \
            derives\nschemas and exports the world: an ordinary crate, yours to change.",
    common: COMMON,
    files: &[
        ("Cargo.toml", template!("rust/Cargo.toml.in")),
        ("src/lib.rs", template!("rust/lib.rs.in")),
        (".gitignore", "/target/\n"),
    ],
    support: ("", RUST_SUPPORT),
};

const RUST_SHIELD: Template = Template {
    notes: "`cargo test` holds it against what it should block and pass. `vendor/toolhold-guest` is the helper\n\
            crate that exports the world: an ordinary crate, yours to change.",
    common: COMMON_OF_SHIELDS,
    files: &[
        ("Cargo.toml", template!("shield/Cargo.toml.in")),
        ("src/lib.rs", template!("shield/lib.rs.in")),
        (".gitignore", "/target/\n"),
    ],
    ..RUST
};

/// The text of a file of the helper crate.
macro_rules! sdk {
    ($path:literal) => {
        include_str!(concat!("../../../modules/sdk/", $path))
    };
}

/// The helper crate, and the world that it finds beside `toolhold.wit`.
const RUST_SUPPORT: Files = &[
    ("wit/shield.wit", include_str!("../../../wit/shield.wit")),
    ("wit/jobs.wit", include_str!("../../../wit/jobs.wit")),
    (
        "wit/extractor.wit",
        include_str!("../../../wit/extractor.wit"),
    ),
    ("vendor/toolhold-guest/Cargo.toml", sdk!("Cargo.toml")),
    ("vendor/toolhold-guest/src/lib.rs", sdk!("src/lib.rs")),
    ("vendor/toolhold-guest/src/check.rs", sdk!("src/check.rs")),
    (
        "vendor/toolhold-guest/src/current_call.rs",
        sdk!("src/current_call.rs"),
    ),
    ("vendor/toolhold-guest/src/http.rs", sdk!("src/http.rs")),
    ("vendor/toolhold-guest/src/jobs.rs", sdk!("src/jobs.rs")),
    ("vendor/toolhold-guest/src/schema.rs", sdk!("src/schema.rs")),
    ("vendor/toolhold-guest/src/shield.rs", sdk!("src/shield.rs")),
    (
        "vendor/toolhold-guest/src/extractor.rs",
        sdk!("src/extractor.rs"),
    ),
    ("vendor/toolhold-guest/src/tool.rs", sdk!("src/tool.rs")),
];

const C: Template = Template {
    title: "C",
    source: "module.c",
    notes: "The tables of the structs become the schemas: `toolhold/schema.h` says how. Every `.c` file of the folder is \
            compiled,\nwith the flags of `compile_flags.txt`. `toolhold/` reads and writes JSON and exports the world; it is \
            yours to change.",
    common: COMMON,
    files: &[
        ("module.c", template!("c/module.c")),
        ("compile_flags.txt", template!("c/compile_flags.txt")),
    ],
    support: ("toolhold", build::C_SUPPORT),
};

const GO: Template = Template {
    title: "Go",
    source: "main.go",
    notes: "The arguments' struct becomes the schema of the input, the result's that of the output, by their tags: \
            `toolhold/schema.go`\nsays which. The build fetches what `go.mod` requires, unless there is a `vendor/`. \
            `toolhold/` exports the world;\n`toolhold/abi_wasip1.go` is delicate and says why.",
    common: COMMON,
    files: &[
        ("main.go", template!("go/main.go")),
        ("go.mod", template!("go/go.mod.in")),
    ],
    support: ("toolhold", build::GO_SUPPORT),
};

const PYTHON: Template = Template {
    title: "Python",
    source: "app.py",
    notes: "Annotations and dataclasses become the schemas: `toolhold/__init__.py` says how. `app.py` may import the \
            standard\nlibrary, other files of this folder, and the packages of a `requirements.txt` that are pure Python.",
    common: COMMON,
    files: &[
        ("app.py", template!("python/app.py")),
        (".gitignore", "__pycache__/\n"),
    ],
    support: ("toolhold", build::PYTHON_SUPPORT),
};

const JAVASCRIPT: Template = Template {
    title: "JavaScript",
    source: "module.js",
    notes: "`toolhold/tools.js` makes the schemas from what `input` and `output` say. `module.js` may import other files \
            of this\nfolder. With a `package.json` beside it, npm packages are installed and bundled by the build.",
    common: COMMON,
    files: &[
        ("module.js", template!("javascript/module.js")),
        ("toolhold.d.ts", DECLARATIONS),
        (".gitignore", "/node_modules/\n"),
    ],
    support: ("toolhold", build::JAVASCRIPT_SUPPORT),
};

const TYPESCRIPT: Template = Template {
    title: "TypeScript",
    source: "module.ts",
    notes: "`input` and `output` become the schemas, and the types of `run`: `toolhold/tools.d.ts` says how. The build \
            checks types\nas `tsconfig.json` says; `toolhold.d.ts` is the contract as types, and `web.d.ts` has \
            `fetch` and `console`. With a\n`package.json` beside them, npm packages are installed and bundled by the \
            build.",
    common: COMMON,
    files: &[
        ("module.ts", template!("typescript/module.ts")),
        ("tsconfig.json", template!("typescript/tsconfig.json")),
        ("toolhold.d.ts", DECLARATIONS),
        ("web.d.ts", WEB_DECLARATIONS),
        (".gitignore", "/node_modules/\n"),
    ],
    support: ("toolhold", build::JAVASCRIPT_SUPPORT),
};

fn write(
    folder: &Path,
    name: &str,
    language: Language,
    template: &Template,
) -> Result<(), ScaffoldError> {
    let (support_folder, support) = template.support;
    let own = template.common.iter().chain(template.files);
    let own = own.map(|(file, text)| (PathBuf::from(file), text));
    let support = support.iter();
    let support = support.map(|(file, text)| (Path::new(support_folder).join(file), text));
    for (file, text) in own.chain(support) {
        let text = text
            .replace("{{name}}", name)
            .replace("{{language}}", language.name())
            .replace("{{title}}", template.title)
            .replace("{{source}}", template.source)
            .replace("{{notes}}", template.notes);
        let path = folder.join(file);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(ScaffoldError::io(directory))?;
        }
        fs::write(&path, text).map_err(ScaffoldError::io(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANGUAGES: [Language; 6] = [
        Language::Rust,
        Language::C,
        Language::Go,
        Language::Python,
        Language::JavaScript,
        Language::TypeScript,
    ];

    #[test]
    fn every_language_is_complete_and_has_no_placeholder_left() {
        let shield = (Language::Rust, Offers::Shield);
        for (language, offers) in LANGUAGES
            .map(|language| (language, Offers::Tools))
            .into_iter()
            .chain([shield])
        {
            let parent = tempfile::tempdir().unwrap();
            let modules = parent.path().join("modules");
            let folder = create(&modules, "my_tool", language, offers).unwrap();
            let manifest = fs::read_to_string(folder.join("module.toml")).unwrap();
            assert!(manifest.contains("name = \"my_tool\""), "{manifest}");
            assert!(
                manifest.contains(&format!("language = \"{language}\"")),
                "{manifest}"
            );
            assert_eq!(
                fs::read_to_string(folder.join("wit/toolhold.wit")).unwrap(),
                WIT
            );
            for path in files(&folder) {
                let text = fs::read_to_string(&path).unwrap();
                // In C, two braces also begin a table of records.
                let mut after = text.split("{{").skip(1);
                let left = after.find(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
                assert_eq!(left, None, "{}", path.display());
            }
        }
    }

    #[test]
    fn the_helper_crate_is_copied_whole() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules/sdk/src");
        for source in files(&sources) {
            let name = format!(
                "vendor/toolhold-guest/src/{}",
                source.file_name().unwrap().display()
            );
            assert!(
                RUST_SUPPORT.iter().any(|(file, _)| *file == name),
                "{name} is not in RUST_SUPPORT"
            );
        }
    }

    #[test]
    fn names_that_no_tool_could_have_are_refused() {
        let parent = tempfile::tempdir().unwrap();
        let long = "a".repeat(49);
        for name in [
            "",
            "1st",
            "Upper",
            "kebab-case",
            "../up",
            "a/b",
            "ümlaut",
            "_a",
            &long,
        ] {
            let error = create(parent.path(), name, Language::Rust, Offers::Tools).unwrap_err();
            assert!(
                matches!(error, ScaffoldError::Name { .. }),
                "{name}: {error}"
            );
        }
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_shield_without_a_template_is_refused_before_anything_is_written() {
        for language in LANGUAGES.into_iter().skip(1) {
            let parent = tempfile::tempdir().unwrap();
            let error = create(parent.path(), "words", language, Offers::Shield).unwrap_err();
            assert!(error.to_string().contains("use --lang rust"), "{error}");
            assert_eq!(files(parent.path()), [] as [PathBuf; 0]);
        }
    }

    #[test]
    fn an_existing_folder_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("taken");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("precious"), "work").unwrap();
        let error = create(parent.path(), "taken", Language::Python, Offers::Tools).unwrap_err();
        assert!(matches!(error, ScaffoldError::Exists { .. }));
        assert_eq!(files(&folder), [folder.join("precious")]);
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files.extend(self::files(&path));
            } else {
                files.push(path);
            }
        }
        files
    }
}
