//! JavaScript: `componentize-qjs` snapshots the source in QuickJS as a component, with `fetch` and `console` of `web`.

use std::fs;
use std::path::Path;

use super::npm::{self, NODE};
use super::scratch::Scratch;
use super::web::{self, Extension};
use super::{BuildError, Job, bundle, toolchain};

/// Pinned: how WIT types look in JavaScript is this version's.
pub const VERSION: &str = "0.4.5";

const ADVICE: &str =
    "mend what the log says about `module.js`: its top level runs once during the build";

/// In place of other advice where a world imports what our own support imports.
const OWN_IMPORTS: &str = "leave `wasi:http`, `wasi:io` and what uses them out of the module's world: they cannot be \
                           linked with QuickJS, and without an import of them modules have `fetch` and `console`";

pub fn build(job: &Job<'_>) -> Result<(), BuildError> {
    let directory = &job.manifest.directory;
    let advice = "a JavaScript module is a file `module.js` that exports `tools`; \
                  `toolhold new-module NAME --lang javascript` makes one";
    let source = job.source("module.js", advice)?;
    let scratch = Scratch::create(job)?;
    if is_bundled(directory) {
        let bundled = bundle::bundle(job, &scratch, &source, ADVICE)?;
        return componentize_bundle(job, &scratch, &bundled, ADVICE);
    }
    let has_fetch = mention(directory, &["fetch"], 0);
    // A file that imports resolve from, and not `module.js`, or the entry could not import that.
    let base = directory.join("module.toml");
    componentize(job, &scratch, directory, &base, has_fetch, ADVICE)
}

/// Whether the sources are bundled: packages come in forms that QuickJS's own resolver does not know, and
/// asynchronous functions are compiled to others. The rest is taken as it is, so that errors have the author's lines.
pub fn is_bundled(directory: &Path) -> bool {
    directory.join(npm::PACKAGE).exists() || mention(directory, &["async", "await"], 0)
}

/// Deeper folders are not looked into: what is in them is bundled.
const DEPTH: usize = 8;

/// Whether a JavaScript file of the folder has one of these words, or could not be looked into.
fn mention(folder: &Path, words: &[&str], depth: usize) -> bool {
    let Ok(entries) = fs::read_dir(folder) else {
        return true;
    };
    entries.into_iter().any(|entry| {
        let Ok(entry) = entry else {
            return true;
        };
        let (path, kind) = (entry.path(), entry.file_type().ok());
        if kind.is_some_and(|kind| kind.is_dir()) {
            return depth == DEPTH || mention(&path, words, depth + 1);
        }
        let end = path.extension().and_then(|end| end.to_str());
        if !end.is_some_and(|end| ["js", "mjs"].contains(&end)) {
            return path.is_dir();
        }
        // A link leads out of the folder, and a pipe would not end.
        let is_read = kind.is_some_and(|kind| kind.is_file());
        let text = is_read.then(|| fs::read_to_string(&path).ok()).flatten();
        text.is_none_or(|text| has_word(&text, words))
    })
}

fn has_word(text: &str, words: &[&str]) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
    text.split(|letter| !is_part(letter))
        .any(|word| words.contains(&word))
}

/// Makes the component of the bundle in `scratch`.
pub fn componentize_bundle(
    job: &Job<'_>,
    scratch: &Scratch,
    bundle: &Path,
    advice: &'static str,
) -> Result<(), BuildError> {
    let text = fs::read_to_string(bundle).map_err(BuildError::io("read", bundle))?;
    let has_fetch = has_word(&text, &["fetch"]);
    let base = scratch.write("base.js", "")?;
    componentize(job, scratch, scratch.path(), &base, has_fetch, advice)
}

/// Makes the component of the ES module `module.js` in `root`, which holds everything that it imports.
fn componentize(
    job: &Job<'_>,
    scratch: &Scratch,
    root: &Path,
    base: &Path,
    has_fetch: bool,
    advice: &'static str,
) -> Result<(), BuildError> {
    let folder = npm::tools(job, &[("componentize-qjs", VERSION)])?;
    let wit = web::wit(job, scratch, Extension::JavaScript { has_fetch })?;
    let entry = scratch.write("entry.js", &web::entry(job, &wit, has_fetch)?)?;
    let script = toolchain::shared(job, "web", &[("componentize.mjs", web::COMPONENTIZE)])?;
    // `sync`: the host does not speak the component model's async ABI. No `stubWasi`: a stub traps, so that
    // `Date.now()` would end the call; the host grants nothing anyway.
    let options = serde_json::json!({
        "witPath": wit,
        "world": web::WORLD,
        "moduleRoot": root,
        "jsPath": base,
        "sync": true,
    });
    job.compiling();
    job.publish(|component| {
        let mut command = NODE.command();
        command
            .current_dir(&job.manifest.directory)
            .arg(script.join("componentize.mjs"))
            .arg(folder.join("node_modules/componentize-qjs"))
            .arg(options.to_string())
            .arg(&entry)
            .arg(component);
        job.log
            .run(&mut command, NODE, advice)
            .map_err(|error| match error {
                BuildError::Command(mut failure)
                    if failure.tail.contains("mismatched resource types") =>
                {
                    failure.advice = OWN_IMPORTS;
                    failure.into()
                }
                other => other,
            })?;
        let mut bytes = fs::read(component).map_err(BuildError::io("read", component))?;
        web::finish(&mut bytes);
        fs::write(component, bytes).map_err(BuildError::io("write", component))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_is_seen_in_all_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("module.js", "const prefetch = 1; // asynchronous");
        write("notes.txt", "async await fetch");
        assert!(!is_bundled(folder.path()));
        assert!(!mention(folder.path(), &["fetch"], 0));
        write(
            "lib/a/b.mjs",
            "export const get = async (url) => fetch(url);",
        );
        assert!(is_bundled(folder.path()));
        assert!(mention(folder.path(), &["fetch"], 0));
    }
}
