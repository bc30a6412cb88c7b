//! TypeScript: `tsc` checks the types, `esbuild` makes one file of JavaScript, and the rest is as in
//! `javascript`.

use std::path::{Path, PathBuf};

use super::npm::{self, NODE};
use super::scratch::Scratch;
use super::{BuildError, Job, bundle, javascript, toolchain, web};

/// Pinned: what is an error differs from version to version.
pub const VERSION: &str = "5.9.3";

/// What the world looks like from TypeScript; templates copy it.
pub const DECLARATIONS: &str = template!("typescript/toolhold.d.ts");

/// For modules without a `tsconfig.json`: everything strict, and the language without a platform's
/// globals, since there is neither a DOM nor Node.
const OPTIONS: &[&str] = &[
    "--strict",
    "--noUncheckedIndexedAccess",
    "--target",
    "es2023",
    "--lib",
    "es2023",
    "--module",
    "esnext",
    "--moduleResolution",
    "bundler",
    "--allowImportingTsExtensions",
    "--skipLibCheck",
];

const ADVICE: &str = "mend what the compiler reports about `module.ts`; its top level runs once \
                      during the build";

pub fn build(job: &Job<'_>) -> Result<(), BuildError> {
    let directory = &job.manifest.directory;
    let advice = "a TypeScript module is a file `module.ts` that exports `tools`; \
                  `toolhold new-module NAME --lang typescript` makes one";
    let source = job.source("module.ts", advice)?;
    if directory.join(npm::PACKAGE).is_file() {
        npm::packages(job)?;
    }
    check(job, &source)?;
    let scratch = Scratch::create(job)?;
    let bundled = bundle::bundle(job, &scratch, &source, ADVICE)?;
    javascript::componentize_bundle(job, &scratch, &bundled, ADVICE)
}

fn check(job: &Job<'_>, source: &Path) -> Result<(), BuildError> {
    let tools = npm::tools(job, &[("typescript", VERSION)])?;
    let directory = &job.manifest.directory;
    let mut command = NODE.command();
    command
        .current_dir(directory)
        .arg(tools.join("node_modules/typescript/bin/tsc"))
        .args(["--noEmit", "--pretty", "false"]);
    if directory.join("tsconfig.json").is_file() {
        command.args(["--project", "."]);
    } else {
        let declarations = declarations(job)?;
        // `--typeRoots`: a folder without packages, or the nearest `@types` above would be read.
        let types = job.toolchains.join("types");
        command.args(OPTIONS).arg("--typeRoots").arg(types);
        command.arg(source).args(declarations);
    }
    job.log.run(&mut command, NODE, ADVICE)
}

/// The declarations beside the source, or else ours.
fn declarations(job: &Job<'_>) -> Result<Vec<PathBuf>, BuildError> {
    let mut found = Job::listed(&job.manifest.directory, ".d.ts")?;
    let mut ours = vec![("web.d.ts", web::DECLARATIONS)];
    if job.manifest.world.is_none() {
        ours.push(("toolhold.d.ts", DECLARATIONS));
    }
    ours.retain(|(name, _)| !found.iter().any(|path| path.ends_with(name)));
    let types = toolchain::shared(job, "types", &ours)?;
    found.extend(ours.iter().map(|(name, _)| types.join(name)));
    Ok(found)
}
