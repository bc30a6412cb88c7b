//! JavaScript: `componentize-qjs` snapshots the source in QuickJS as a component, with `fetch` and `console` of `web`.

use std::fs;
use std::path::Path;

use super::mention::{has_word, mention};
use super::npm::{self, NODE};
use super::scratch::Scratch;
use super::web::{self, Extension};
use super::{BuildError, Job, bundle, toolchain};

/// Pinned: how WIT types look in JavaScript is this version's.
pub const VERSION: &str = "0.4.5";

/// What a module in JavaScript or TypeScript is written with; templates copy it.
pub const SUPPORT: &[(&str, &str)] = &[
    ("tools.js", template!("javascript/toolhold/tools.js")),
    ("tools.d.ts", template!("javascript/toolhold/tools.d.ts")),
];

const ENDS: &[&str] = &["js", "mjs"];

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
    let has_fetch = mention(directory, ENDS, &|text| has_word(text, &["fetch"]));
    // A file that imports resolve from, and not `module.js`, or the entry could not import that.
    let base = directory.join("module.toml");
    componentize(job, &scratch, directory, &base, has_fetch, ADVICE)
}

/// Whether the sources are bundled: packages come in forms that QuickJS's own resolver does not know, and
/// asynchronous functions are compiled to others. The rest is taken as it is, so that errors have the author's lines.
pub fn is_bundled(directory: &Path) -> bool {
    directory.join(npm::PACKAGE).exists()
        || mention(directory, ENDS, &|text| has_word(text, &["async", "await"]))
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
        web::finish(component)
    })
}
