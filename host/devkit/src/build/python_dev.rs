//! Dev builds of modules in Python: an edit is put into the memory of a base, an interpreter that has imported what the
//! module needs, instead of having `componentize-py` compile and start the interpreter anew.
//!
//! The base is of the module's import statements. An edit that imports something else gets a base of its own; one that
//! opens a file or prints while it is imported cannot be made so, and is built as a whole.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Map, Value, json};
use toolhold_files::temporary_name;
use toolhold_policy::Digest;
use toolhold_sandbox::base::{BaseOutcome, BaseRunner};

use super::python::COMPONENTIZE;
use super::scratch::Scratch;
use super::{BuildError, BuildStep, Failure, Job, web};

/// The module that a base begins with.
pub const SHIM: (&str, &str) = ("toolhold_dev.py", include_str!("toolhold_dev.py"));
/// Its name, and that of the world it is built for.
pub const SHIM_MODULE: &str = "toolhold_dev";
pub const WORLD: &str = "toolhold-dev";

/// What the shim does in place of the interpreter's runtime, which has done it before an edit is put in.
const ENVIRONMENT: &str = "package wasi:cli@0.2.9;

interface environment {
  get-environment: func() -> list<tuple<string, string>>;
  get-arguments: func() -> list<string>;
  initial-cwd: func() -> option<string>;
}
";

/// Most files of a module's own sources, and most bytes of them together.
const MAX_FILES: usize = 1_000;
const MAX_BYTES: u64 = 4 << 20;
/// Deeper folders are not looked into.
const MAX_DEPTH: usize = 8;
/// Bases that are kept: of one module, and of all. One has 20 MB.
const MAX_OF_MODULE: usize = 2;
const MAX_KEPT: usize = 16;

/// What a dev build is made with.
pub struct DevSources<'a> {
    /// The folders of the search path, in their order; the first is the module's. `true`: what is in it is put in with
    /// each edit, and is no part of the base.
    pub folders: &'a [(PathBuf, bool)],
    /// The WIT that the module is built for, and its world.
    pub wit: &'a Path,
    pub world: &'a str,
}

/// The component of a module whose sources were put into its base, or nothing: why is in the log, and it is to be built as a
/// whole. `componentize` builds a base: from which WIT, with which further folder, into which file.
///
/// # Errors
/// The module's own code raised an exception, or the build was stopped.
pub fn component(
    job: &Job<'_>,
    runner: &BaseRunner,
    sources: &DevSources<'_>,
    scratch: &Scratch,
    componentize: &dyn Fn(&Path, &Path, &Path) -> Result<(), BuildError>,
) -> Result<Option<Vec<u8>>, BuildError> {
    let not = |reason: &str| {
        job.log.note(&format!("built as a whole: {reason}"))?;
        Ok(None)
    };
    let mut edit = Edit::default();
    for (index, (folder, is_edited)) in sources.folders.iter().enumerate() {
        if *is_edited && let Err(reason) = edit.add(folder, &format!("/{index}")) {
            return not(&reason.to_string());
        }
    }
    let wit = match dev_wit(sources, scratch) {
        Ok(wit) => wit,
        Err(reason) => return not(&reason.to_string()),
    };
    let bases = job.toolchains.join("python-bases");
    fs::create_dir_all(&bases).map_err(BuildError::io("create", &bases))?;
    let path = bases.join(edit.base_name(&job.manifest.directory, sources, &wit.1));
    if !path.is_file() {
        let module = job.manifest.name.clone();
        (job.progress)(BuildStep::Base { module });
        let shim = scratch.write(&format!("dev/{}", SHIM.0), SHIM.1)?;
        let shim = shim.parent().unwrap_or(scratch.path());
        let name = temporary_name("base.", ".part").map_err(BuildError::io("name", &bases))?;
        let unfinished = bases.join(name);
        let made = componentize(&wit.0, shim, &unfinished)
            .and_then(|()| fs::rename(&unfinished, &path).map_err(BuildError::io("write", &path)));
        if let Err(error) = made {
            let _ = fs::remove_file(&unfinished);
            // The author's own fault is told by the whole build, as ever.
            return match error {
                error @ (BuildError::Cancelled | BuildError::Deadline { .. }) => Err(error),
                error => not(&error.to_string()),
            };
        }
        prune(&bases, &path).map_err(BuildError::io("clear", &bases))?;
    }
    let base = fs::read(&path).map_err(BuildError::io("read", &path))?;
    if let Ok(file) = File::options().append(true).open(&path) {
        // Without it, it is only made anew too early.
        let _ = file.set_modified(SystemTime::now());
    }
    match runner.call(base, &job.manifest.directory, edit.arguments()) {
        Ok(BaseOutcome::Component(component)) => Ok(Some(component)),
        Ok(BaseOutcome::Message(message)) => {
            let told = serde_json::from_str(&message).unwrap_or(message);
            job.log.note(&told)?;
            Err(Box::new(Failure {
                command: "import app".to_owned(),
                status: "an exception".to_owned(),
                tail: told.trim_end().to_owned(),
                advice: "mend what it says about the module: it is imported once during the build, so an \
                         exception at its top level ends it",
                log: job.log.path.clone(),
            })
            .into())
        }
        Err(error) => not(&error.to_string()),
    }
}

/// Removes the bases of the module: what they kept of its earlier sources is no part of the next dev build.
///
/// # Errors
/// One of them cannot be removed.
pub fn forget(job: &Job<'_>) -> Result<(), BuildError> {
    let bases = job.toolchains.join("python-bases");
    let Ok(entries) = fs::read_dir(&bases) else {
        return Ok(());
    };
    let module = module_part(&job.manifest.directory);
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&module) {
            let path = entry.path();
            fs::remove_file(&path).map_err(BuildError::io("remove", &path))?;
        }
    }
    Ok(())
}

/// The first digits of a digest: enough for a name.
fn short(text: &str) -> String {
    let digest = Digest::of(text.as_bytes()).to_string();
    let digits = digest.trim_start_matches("sha256:").chars();
    digits.take(32).collect()
}

/// What the names of a module's bases begin with.
fn module_part(module: &Path) -> String {
    short(&module.display().to_string()) + "-"
}

/// The WIT with the world of a base, and all of its text.
fn dev_wit(sources: &DevSources<'_>, scratch: &Scratch) -> Result<(PathBuf, String), BuildError> {
    let folder = scratch.path().join("wit");
    if sources.wit != folder {
        web::copy(sources.wit, scratch)?;
    }
    let world = format!(
        "world {WORLD} {{\n    include {};\n    import wasi:cli/environment@0.2.9;\n}}\n",
        sources.world
    );
    scratch.write("wit/deps/toolhold-cli.wit", ENVIRONMENT)?;
    scratch.write("wit/toolhold-dev.wit", &world)?;
    let mut files = Vec::new();
    listed(&folder, "wit", 0, &mut files).map_err(BuildError::io("list", &folder))?;
    let mut text = String::new();
    for path in files {
        let _ = writeln!(text, "{}", path.display().to_string().len());
        text.push_str(&fs::read_to_string(&path).map_err(BuildError::io("read", &path))?);
    }
    Ok((folder, text))
}

/// The author's sources.
#[derive(Debug, Default)]
struct Edit {
    /// The folders that they are in, as the interpreter sees them.
    roots: Vec<String>,
    files: Map<String, Value>,
    bytes: u64,
    /// Lines that import something, in all of them.
    imports: Vec<String>,
}

impl Edit {
    fn add(&mut self, folder: &Path, root: &str) -> io::Result<()> {
        let mut paths = Vec::new();
        listed(folder, "py", 0, &mut paths)?;
        for path in paths {
            let mut text = String::new();
            let file = toolhold_files::open(&path, toolhold_files::Links::Refuse)?;
            file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
            self.bytes += text.len() as u64;
            if self.bytes > MAX_BYTES || self.files.len() == MAX_FILES {
                return Err(io::Error::other(format!(
                    "a dev build takes at most {MAX_FILES} files and {} MiB of sources",
                    MAX_BYTES >> 20
                )));
            }
            let imports = text.lines().map(str::trim).filter(|line| {
                ["import ", "from "]
                    .iter()
                    .any(|word| line.starts_with(word))
                    || line.contains("import_module(")
            });
            self.imports.extend(imports.map(str::to_owned));
            let place = path.strip_prefix(folder).unwrap_or(&path).display();
            self.files.insert(format!("{root}/{place}"), json!(text));
        }
        self.roots.push(root.to_owned());
        Ok(())
    }

    /// The module's part comes first. What a base is made of is in the name.
    fn base_name(&self, module: &Path, sources: &DevSources<'_>, wit: &str) -> String {
        let mut imports = self.imports.clone();
        imports.sort();
        imports.dedup();
        let of = json!([
            COMPONENTIZE.version,
            SHIM.1,
            wit,
            web::PYTHON,
            sources.folders,
            imports
        ]);
        format!("{}{}.wasm", module_part(module), short(&of.to_string()))
    }

    fn arguments(self) -> String {
        json!({"roots": self.roots, "files": self.files}).to_string()
    }
}

/// The files with this extension in a folder and those in it, sorted. What begins with a dot, what interpreters write, and
/// an environment of another Python are nothing of the author's.
fn listed(folder: &Path, end: &str, depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || name == "__pycache__" || name == "node_modules" {
            continue;
        }
        // Not what a link leads to.
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_dir() && depth < MAX_DEPTH && !path.join("pyvenv.cfg").exists() {
            listed(&path, end, depth + 1, found)?;
        } else if kind.is_file() && path.extension().is_some_and(|found| found == end) {
            found.push(path);
            if found.len() > MAX_FILES {
                return Err(io::Error::other(format!("more than {MAX_FILES} files")));
            }
        }
    }
    Ok(())
}

/// Removes the bases that were used least recently. `made` stays.
fn prune(bases: &Path, made: &Path) -> io::Result<()> {
    let module = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.split('-').next().unwrap_or_default().to_owned()
    };
    let mut others = Vec::new();
    for entry in fs::read_dir(bases)? {
        let entry = entry?;
        let path = entry.path();
        if path != made && path.extension().is_some_and(|end| end == "wasm") {
            others.push((entry.metadata()?.modified()?, path));
        }
    }
    others.sort();
    others.reverse();
    let (mut of_module, mut kept) = (1, 1);
    for (_, path) in others {
        let is_same = module(&path) == module(made);
        if kept == MAX_KEPT || is_same && of_module == MAX_OF_MODULE {
            fs::remove_file(&path)?;
        } else {
            kept += 1;
            of_module += usize::from(is_same);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn name(edit: &Edit) -> String {
        let sources = DevSources {
            folders: &[],
            wit: Path::new("wit"),
            world: "w",
        };
        edit.base_name(Path::new("m"), &sources, "world")
    }

    fn edit(text: &str) -> Edit {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("parts")).unwrap();
        fs::write(folder.path().join("app.py"), text).unwrap();
        fs::write(folder.path().join("parts/one.py"), "import json\n").unwrap();
        fs::write(folder.path().join("notes.txt"), "import x\n").unwrap();
        let mut edit = Edit::default();
        edit.add(folder.path(), "/0").unwrap();
        edit
    }

    #[test]
    fn an_edit_has_the_authors_sources_and_a_base_for_what_they_import() {
        let first = edit("import re\nx = 1\n");
        let names: Vec<_> = first.files.keys().collect();
        assert_eq!(names, ["/0/app.py", "/0/parts/one.py"]);
        assert_eq!(first.imports, ["import re", "import json"]);
        assert_eq!(name(&first), name(&edit("x = 2\nimport re\n")));
        assert_ne!(name(&first), name(&edit("import re, csv\nx = 1\n")));
        let arguments: Value = serde_json::from_str(&first.arguments()).unwrap();
        assert_eq!(arguments["files"]["/0/app.py"], "import re\nx = 1\n");
    }

    #[test]
    fn sources_that_are_too_large_or_links_are_left_to_a_whole_build() {
        let folder = tempfile::tempdir().unwrap();
        let large = File::create(folder.path().join("a.py")).unwrap();
        large.set_len(MAX_BYTES + 1).unwrap();
        assert!(Edit::default().add(folder.path(), "/0").is_err());
        large.set_len(MAX_BYTES).unwrap();
        Edit::default().add(folder.path(), "/0").unwrap();
        for number in 0..=MAX_FILES {
            File::create(folder.path().join(format!("b{number}.py"))).unwrap();
        }
        assert!(Edit::default().add(folder.path(), "/0").is_err());
    }

    #[test]
    fn few_bases_are_kept_and_those_used_last() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, age: u64| {
            let path = folder.path().join(name);
            let file = File::create(&path).unwrap();
            let used = SystemTime::now() - Duration::from_secs(age);
            file.set_modified(used).unwrap();
            path
        };
        let (old, new) = (make("a-1.wasm", 20), make("a-2.wasm", 10));
        let made = make("a-3.wasm", 0);
        prune(folder.path(), &made).unwrap();
        assert!(!old.exists() && new.exists() && made.exists());
        for number in 0..30 {
            make(&format!("m{number}-1.wasm"), 100 + number);
        }
        prune(folder.path(), &made).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), MAX_KEPT);
        assert!(made.exists() && new.exists() && folder.path().join("m0-1.wasm").exists());
    }
}
