//! `toolhold modules test`: the table of what a module says of itself and what it does.

use super::{built_on_first_use, module};
use crate::exit::Exit;
use crate::terminal::columns::{Column, wrapped_row};
use crate::terminal::output;
use crate::terminal::output::paint;
use crate::terminal::progress::Loading;
use crate::terminal::style::{bad, bold, dim, good, line};
use anyhow::Result;
use serde_json::json;
use toolhold_devkit::module_test::{CheckOutcome, CheckSubject, ModuleCheck, ModuleTester};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_sandbox::Registry;

pub const ABOUT: &str = "Test one module: run the worked examples of its tools, check schemas and results, ask twice \
which tools it has, and compare what the examples take with its limits.

A test uses none of the module's grants, needs no pin, and reads and writes none of your files: for each directory \
that module.toml asks for, an example gets a temporary copy of the folder testdata beside it. A module that is only \
source is built first, where that runs in the sandbox. If a tool fails that needs variables, HTTP, secrets or tools of \
other modules, its example is told as not run. Exit code 1 if a check failed.";

/// The check, the tool, and what was found; with the mark and what is between them: 100 cells.
const LAYOUT: [Column; 3] = [Column::Left(11), Column::Left(24), Column::Left(59)];
const GAP: u16 = 2;

/// Dropped, it ends the test and removes its temporary files.
pub async fn test(config: &Configuration, name: &str, json: bool) -> Result<Exit> {
    let mut tester = ModuleTester::new(config)?;
    load(config, tester.registry(), name).await?;
    if built_on_first_use(config, tester.registry()).await? {
        tester = ModuleTester::new(config)?;
        load(config, tester.registry(), name).await?;
    }
    let module = module(config, tester.registry(), name)?;
    let checks = tester.test(&module).await?;
    let count = |outcome| checks.iter().filter(|it| it.outcome == outcome).count();
    let (passed, failed) = (count(CheckOutcome::Passed), count(CheckOutcome::Failed));
    let not_run = count(CheckOutcome::NotRun);
    if json {
        output::json(&json!({
            "module": module.name,
            "digest": module.digest.to_string(),
            "checks": checks,
            "passed": passed,
            "failed": failed,
            "not_run": not_run,
        }))?;
    } else {
        for check in &checks {
            show(check);
        }
        output::tell(&format!(
            "{}: {passed} passed, {failed} failed, {not_run} not run",
            paint(bold, &module.slot)
        ));
    }
    Ok(Exit::of(failed == 0))
}

async fn load(config: &Configuration, registry: &Registry, name: &str) -> Result<()> {
    let loading = Loading::default();
    let only = [name.to_owned()];
    host::load(registry, config, Some(&only), &|event| {
        loading.on_event(event);
    })
    .await
}

fn show(check: &ModuleCheck) {
    let (mark, colour): (_, fn(&str) -> String) = match check.outcome {
        CheckOutcome::Passed => ("✓", good),
        CheckOutcome::Failed => ("✗", bad),
        CheckOutcome::NotRun => ("–", dim),
    };
    let subject = match check.check {
        CheckSubject::Description => "description",
        CheckSubject::ListTools => "list-tools",
        CheckSubject::Example => "example",
        CheckSubject::Limits => "limits",
    };
    let tool = check.tool.as_deref().unwrap_or_default();
    let cells = [subject, tool, &line(&check.detail)];
    for (index, row) in wrapped_row(LAYOUT, GAP, cells).iter().enumerate() {
        let mark = if index == 0 { mark } else { " " };
        output::tell(&format!("{} {row}", paint(colour, mark)));
    }
}
