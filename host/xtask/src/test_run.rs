//! `cargo xtask test`: all tests, for contributors and for `.ci/run`. The workspace's tests run last, so that
//! their summary is the last line.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Instant, SystemTime};

use anyhow::{Result, bail};
use clap::Args;
use toolhold_needs::Need;

use crate::left_out::{self, LeftOutFolder};
use crate::local_model::{Choice, LocalModel, Model};
use crate::modules::ModuleFolder;
use crate::project::{self, Beside, Profile};
use crate::test_budget::Extent;
use crate::{interrupt, long_tests, modules, narrate, nextest, test_budget};

const BASE_URL: &str = "TOOLHOLD_E2E_BASE_URL";
const MODEL: &str = "TOOLHOLD_E2E_MODEL";
const WEIGHTS: &str = "TOOLHOLD_E2E_WEIGHTS";
const SWITCH: &str = "TOOLHOLD_E2E";

/// Tells the tests' support, and the setup script of `.config/nextest.toml`, that `toolhold` is built.
const IS_BUILT: &str = "TOOLHOLD_TEST_BINARY";

/// Memory of the server beside the weights: contexts, prompt cache, Python.
const SERVER_MIB: u64 = 900;
/// Memory of the server that a test starts with a template's options: a window of 32 768 tokens, buffers, and weights in the
/// order of its kernels.
const TEMPLATE_SERVER_MIB: u64 = 1400;
/// Memory of the tests; results of a swapping machine would be meaningless.
const TESTS_MIB: u64 = 1500;

#[derive(Args, Debug)]
#[command(
    after_help = "  cargo xtask test                          all of them\n  \
    cargo xtask test -- decision              those whose name has decision in it\n  \
    cargo xtask test -- -p toolhold-agent     those of a crate\n  \
    cargo xtask test -- --test hostile        those of a binary of tests/\n  \
    cargo xtask test --long                   what takes most of an hour\n\n\
    Environment: TOOLHOLD_E2E=off leaves the real model out; \
    TOOLHOLD_E2E_BASE_URL and TOOLHOLD_E2E_MODEL test against an endpoint of yours; \
    TOOLHOLD_E2E_WEIGHTS is the GGUF file that llama-server is then started with; \
    TOOLHOLD_TEST_REQUIRED=chromium,dbus,model,modules,nginx,postgresql,processor,programs,promtool,registries,systemd-analyze fails \
    tests that would be left out for want of these."
)]
pub struct TestArguments {
    /// Passed on to `cargo nextest run`, after `--`; leaves the modules' tests and the documentation's out
    #[arg(last = true)]
    chosen: Vec<OsString>,
    /// Run them with `cargo test` even where nextest is there
    #[arg(long)]
    without_nextest: bool,
    /// Fail where a test takes longer than its class may, and print the slowest
    #[arg(long, conflicts_with_all = ["without_nextest", "long"])]
    budget: bool,
    /// In place of them, what takes longer: the soak, fuzzing, the whole selftest of a release build, more cases
    #[arg(long, conflicts_with_all = ["chosen", "without_nextest"])]
    long: bool,
}

pub fn run(arguments: &TestArguments) -> Result<ExitCode> {
    if arguments.long {
        return long_tests::run();
    }
    // A named test is one of the host's.
    let is_all = arguments.chosen.is_empty();
    let modules_pass = !is_all || modules_pass()?;
    narrate::line("building toolhold for the tests");
    let toolhold = project::build_toolhold(Profile::Dev, Beside::Tests)?;
    build_what_is_not_committed(&toolhold)?;

    let nextest = if arguments.without_nextest {
        None
    } else {
        nextest::program()
    };
    let has_report = nextest.is_some();
    // `cargo test` runs them with the rest.
    let examples_pass = nextest.is_none() || !is_all || examples_pass()?;
    let mut test = nextest.map_or_else(cargo_test, |program| nextest::command(program, is_all));
    if !names_packages(&arguments.chosen) {
        test.arg("--workspace");
    }
    test.args(&arguments.chosen).env(IS_BUILT, "built");
    let local = real_model()?;
    if let Some(local) = &local {
        test.env(BASE_URL, &local.base_url)
            .env(MODEL, local.name)
            .env(WEIGHTS, &local.weights);
    }
    let left_out = LeftOutFolder::create()?;
    test.env(toolhold_needs::FOLDER, left_out.path());
    let root = project::root();
    test_budget::remove_report(&root)?;
    let begun = Instant::now();
    let status = project::run(&mut test)?;
    let took = begun.elapsed();
    left_out.tell()?;
    if is_all {
        left_out::tell_ignored(&root)?;
    }
    if arguments.budget && !has_report {
        narrate::line("SKIPPED: the budget of the tests' time: cargo-nextest alone reports it");
    } else if arguments.budget && status.success() {
        let ran = if is_all { Extent::All } else { Extent::Chosen };
        test_budget::check(&root, took, ran)?;
    }
    if status.success() && !modules_pass {
        bail!("the host's tests pass, but those of the modules do not: see above");
    }
    if status.success() && !examples_pass {
        bail!("the host's tests pass, but examples of its documentation do not: see above");
    }
    Ok(project::exit_code(status))
}

fn cargo_test() -> Command {
    let mut test = project::cargo();
    test.arg("test");
    test
}

/// With `--workspace` besides, a package that is named would be one of all.
fn names_packages(chosen: &[OsString]) -> bool {
    let mut words = chosen.iter().filter_map(|word| word.to_str());
    words.any(|word| word.starts_with("--package") || word.starts_with("-p"))
}

/// The examples of the documentation, which nextest does not run.
fn examples_pass() -> Result<bool> {
    narrate::line("testing the examples of the documentation");
    let mut test = project::cargo();
    test.args(["test", "--workspace", "--doc"]);
    Ok(project::run(&mut test)?.success())
}

/// The modules are a workspace of their own; their logic is tested natively.
fn modules_pass() -> Result<bool> {
    narrate::line("testing the modules' own logic");
    let mut rust = project::cargo();
    rust.arg("test").current_dir(modules::folder());
    let mut python = Command::new("python3");
    python
        .arg("python/test_app.py")
        .current_dir(modules::folder());
    let rust = project::run(&mut rust)?.success();
    Ok(project::run(&mut python)?.success() && rust)
}

/// A failure is reported but does not end the run, unless the run requires modules: most tests work without these
/// components, and the others report that they are missing. An older component is removed, so that no test passes with it.
fn build_what_is_not_committed(toolhold: &Path) -> Result<()> {
    let root = project::root();
    for module in modules::all(&root)? {
        if !module.is_ignored()? || is_fresh(&module, &root) {
            continue;
        }
        narrate::line(&format!("{module} is not committed ready built"));
        let Err(error) = modules::build(toolhold, &root, std::slice::from_ref(&module)) else {
            continue;
        };
        if interrupt::happened() || Need::Module.is_required() {
            return Err(error);
        }
        project::remove_if_there(&module.component(&root))?;
        narrate::line(&format!("WITHOUT {module}: {error:#}"));
    }
    Ok(())
}

/// Whether the component is there and younger than its source and the contract.
fn is_fresh(module: &ModuleFolder, root: &Path) -> bool {
    let component = module.component(root);
    let sources = [module.folder(root), root.join("wit")];
    let newest = sources.iter().map(|folder| newest(folder, &component));
    modified(&component).is_some_and(|built| newest.max().is_none_or(|source| built >= source))
}

/// When the last of the files below `folder` was changed, the component itself aside.
fn newest(folder: &Path, component: &Path) -> SystemTime {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let times = entries.filter_map(|entry| {
        let path = entry.path();
        // Build outputs are no sources.
        if path == component
            || ["__pycache__", "node_modules"]
                .iter()
                .any(|made| entry.file_name() == *made)
        {
            None
        } else if path.is_dir() {
            Some(newest(&path, component))
        } else {
            modified(&path)
        }
    });
    times.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|file| file.modified()).ok()
}

/// A local model for the end-to-end tests, unless there is an endpoint, it is switched off, or the machine cannot
/// run one. The reason is printed, because skipped tests must be noticed.
fn real_model() -> Result<Option<LocalModel>> {
    if env::var_os(BASE_URL).is_some() {
        narrate::line(&format!("end-to-end tests use the endpoint of {BASE_URL}"));
        return Ok(None);
    }
    let started = match env::var(SWITCH).as_deref() {
        Ok("off") => Err(anyhow::anyhow!("{SWITCH}=off")),
        Ok("" | "on") | Err(_) => Choice::Smaller.model().and_then(start),
        Ok(other) => bail!("{SWITCH} is {other:?}: set it to on or off"),
    };
    match started {
        Err(error) if interrupt::happened() || Need::Model.is_required() => Err(error),
        Err(error) => {
            narrate::line(&format!("SKIPPED: tests with a real model: {error:#}"));
            Ok(None)
        }
        Ok(local) => Ok(Some(local)),
    }
}

fn start(model: &'static Model) -> Result<LocalModel> {
    let needed = (model.bytes >> 20) + SERVER_MIB + TEMPLATE_SERVER_MIB + TESTS_MIB;
    if let Some(available) = available_mib().filter(|available| *available < needed) {
        bail!("{available} MiB of memory are available and {needed} are needed");
    }
    LocalModel::borrow_or_start(model)
}

/// Known on Linux only; elsewhere it is not checked.
fn available_mib() -> Option<u64> {
    parse_available(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_package_is_chosen_instead_of_all() {
        let names = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(OsString::from).collect();
            names_packages(&words)
        };
        assert!(names(&["-p", "toolhold-agent"]) && names(&["decision", "--package=xtask"]));
        assert!(!names(&[]) && !names(&["--test", "hostile", "decision"]));
    }

    #[test]
    fn memory_is_read_in_mebibytes() {
        let meminfo = "MemTotal:       25000000 kB\nMemAvailable:    2097152 kB\n";
        assert_eq!(parse_available(meminfo), Some(2048));
        assert_eq!(parse_available("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn the_component_is_no_source_of_itself() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str, seconds: u64| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            fs::File::create(&path).unwrap().set_modified(time).unwrap();
            path
        };
        at("module.toml", 10);
        at("src/app.py", 20);
        at("__pycache__/app.pyc", 40);
        let component = at("python.wasm", 30);
        let newest = newest(folder.path(), &component);
        assert_eq!(newest, SystemTime::UNIX_EPOCH + Duration::from_secs(20));
    }
}
