//! JavaScript: `componentize-qjs` snapshots the source in QuickJS as a component.

use std::fs;
use std::path::Path;

use super::command::Tool;
use super::{BuildError, Job, toolchain};

/// Pinned: how WIT types look in JavaScript is this version's.
const VERSION: &str = "0.4.5";

const NODE: Tool = Tool {
    program: "node",
    language: "javascript",
    install: "install Node.js 20 or newer, then build again",
};
const NPM: Tool = Tool {
    program: if cfg!(windows) { "npm.cmd" } else { "npm" },
    ..NODE
};

pub fn build(job: &Job<'_>) -> Result<(), BuildError> {
    let source = job.manifest.directory.join("module.js");
    if !source.is_file() {
        let advice = "a JavaScript module is a file `module.js` that exports `tools`; \
                      `toolhold new-module NAME --lang javascript` makes one";
        return Err(BuildError::NoSource {
            path: source,
            advice,
        });
    }
    let folder = toolchain::folder(job, "componentize-qjs", VERSION, |folder| {
        install(job, folder)
    })?;
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
            .arg(&source)
            .arg("--module-root")
            .arg(&job.manifest.directory)
            // `--sync`: the host does not speak the component model's async ABI. No `--stub-wasi`:
            // a stub traps, so that `Date.now()` would end the call; the host grants nothing anyway.
            .args(["--world", job.world(), "--sync", "--output"])
            .arg(component);
        job.log.run(
            &mut command,
            NODE,
            "mend what the log says about `module.js`: its top level runs once during the build",
        )
    })
}

fn install(job: &Job<'_>, folder: &Path) -> Result<(), BuildError> {
    // Without a package of its own, npm would install into the nearest folder above that is one.
    let package = folder.join("package.json");
    fs::write(&package, "{ \"private\": true }\n").map_err(BuildError::io("write", &package))?;
    let requirement = format!("componentize-qjs@{VERSION}");
    job.log.run(
        NPM.command()
            .current_dir(folder)
            .args(["install", "--no-audit", "--no-fund", "--save-exact"])
            .arg(requirement),
        NPM,
        "check that npm reaches its registry (network, proxy, `npm config get registry`)",
    )
}
