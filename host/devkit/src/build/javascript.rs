//! JavaScript: `componentize-qjs` snapshots the source in QuickJS as a component.

use std::path::Path;

use super::npm::{self, NODE};
use super::{BuildError, Job, bundle, toolchain};

/// Pinned: how WIT types look in JavaScript is this version's.
pub const VERSION: &str = "0.4.5";

/// What a module in JavaScript or TypeScript is written with; templates copy it.
pub const SUPPORT: &[(&str, &str)] = &[
    ("tools.js", template!("javascript/toolhold/tools.js")),
    ("tools.d.ts", template!("javascript/toolhold/tools.d.ts")),
];

const ADVICE: &str =
    "mend what the log says about `module.js`: its top level runs once during the build";

pub fn build(job: &Job<'_>) -> Result<(), BuildError> {
    let directory = &job.manifest.directory;
    let advice = "a JavaScript module is a file `module.js` that exports `tools`; \
                  `toolhold new-module NAME --lang javascript` makes one";
    let source = job.source("module.js", advice)?;
    // Packages are bundled: they come in forms that QuickJS's own resolver does not know.
    if directory.join(npm::PACKAGE).is_file() {
        let bundle = bundle::bundle(job, &source, ADVICE)?;
        return componentize(job, &bundle.file, bundle.folder(), ADVICE);
    }
    componentize(job, &source, directory, ADVICE)
}

/// Makes the component of an ES module; `root` holds everything that it imports.
pub fn componentize(
    job: &Job<'_>,
    source: &Path,
    root: &Path,
    advice: &'static str,
) -> Result<(), BuildError> {
    let folder = npm::tools(job, &[("componentize-qjs", VERSION)])?;
    let wit = toolchain::wit(job)?;
    job.compiling();
    job.publish(|component| {
        let mut command = NODE.command();
        command
            .current_dir(&job.manifest.directory)
            .arg(folder.join("node_modules/componentize-qjs/bin/componentize-qjs"))
            .arg("--wit")
            .arg(&wit)
            .arg("--js")
            .arg(source)
            .arg("--module-root")
            .arg(root)
            // `--sync`: the host does not speak the component model's async ABI. No `--stub-wasi`:
            // a stub traps, so that `Date.now()` would end the call; the host grants nothing anyway.
            .args(["--world", job.world(), "--sync", "--output"])
            .arg(component);
        job.log.run(&mut command, NODE, advice)
    })
}
