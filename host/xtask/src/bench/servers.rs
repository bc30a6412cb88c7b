//! `cargo xtask bench servers`: MCP servers over stdio, one table of one run. They run the same component where they can, and
//! else the same function: `show` of `tests/components/units`. The load and the table are
//! `host/cli/examples/mcp_load`. A server that this machine cannot have is in the table, too, with the reason.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::narrate::{self, Narration};
use crate::nextest;
use crate::project::{self, Beside, Profile};
use crate::wheels::Wheel;

/// The name under which it is chosen.
pub const BENCH: &str = "servers";

const COMPONENT: &str = "tests/components/units/units.wasm";
const CALL: &str = r#"show={"quantity":{"value":1.5,"unit":"kilometre"},"decimals":1}"#;

/// Size of the measurement, and servers besides ours.
pub struct ServersRun<'a> {
    /// Titles and command lines. Each takes the place of the server whose title begins so, or is one more.
    pub given: &'a [(String, String)],
    pub calls: usize,
    pub rounds: usize,
}

/// A row's title, and the command line of its server or the reason why there is none.
type ServerRow = (String, Result<String>);

/// A row's title, and how its server is had.
type PeerRow<'a> = (&'a str, &'a dyn Fn() -> Result<String>);

pub fn title_and_command(text: &str) -> Result<(String, String)> {
    let (title, command) = text
        .split_once(": ")
        .context("it is \"TITLE: COMMAND\", with a blank behind the colon")?;
    Ok((title.to_owned(), command.to_owned()))
}

pub fn measure(run: &ServersRun<'_>) -> Result<()> {
    let toolhold = project::build_toolhold(Profile::Release, Beside::Nothing)?;
    // In a build of its own: what examples need beside would be in the measured program, too.
    let mut build = project::cargo();
    build.args(["build", "--release", "--package", "toolhold-cli"]);
    build.args(["--package", "toolhold-sandbox"]);
    for example in ["mcp_load", "bare_mcp", "wat_to_wasm"] {
        build.args(["--example", example]);
    }
    project::require(&mut build)?;
    let target = project::target_folder()?;
    let examples = target.join("release/examples");
    let folder = PeerFolder::new(target.join("bench-servers"))?;
    let peers: [PeerRow<'_>; 8] = [
        ("bare wasmtime", &|| {
            word(&examples.join("bare_mcp")).map(str::to_owned)
        }),
        ("Toolhold, `durable`", &|| {
            folder.toolhold(&toolhold, "durable")
        }),
        ("Toolhold, `off`", &|| folder.toolhold(&toolhold, "off")),
        ("Wassette 0.4.1", &|| folder.wassette()),
        ("hyper-mcp", &hyper_mcp),
        ("ACT 0.14.6, its audit on stderr", &|| {
            folder.act(&examples, "")
        }),
        ("ACT 0.14.6, `--no-audit`", &|| {
            folder.act(&examples, " --no-audit")
        }),
        ("rmcp 3.11.0, no sandbox", &|| folder.rmcp()),
    ];
    let rows = rows(&peers, run.given);
    let mut load = Command::new(examples.join("mcp_load"));
    load.current_dir(project::root())
        .args(["--call", CALL])
        .args(["--calls", &run.calls.to_string()])
        .args(["--rounds", &run.rounds.to_string()]);
    for (title, server) in rows {
        match server {
            Ok(command) => load.arg(format!("{title}: {command}")),
            Err(reason) => {
                let reason = format!("{title}: {reason:#}");
                narrate::line(&format!("!!! LEFT OUT: {reason}"));
                load.arg(format!("--left-out={reason}"))
            }
        };
    }
    project::require(&mut load)
}

/// All rows in their order. A peer that was given is not installed.
fn rows(peers: &[PeerRow<'_>], given: &[(String, String)]) -> Vec<ServerRow> {
    let names = |title: &str, given: &str| title.starts_with(given);
    let own = peers.iter().map(|(title, command)| {
        match given.iter().find(|(given, _)| names(title, given)) {
            Some((_, command)) => ((*title).to_owned(), Ok(command.clone())),
            None => ((*title).to_owned(), command()),
        }
    });
    let more = given
        .iter()
        .filter(|(given, _)| !peers.iter().any(|(title, _)| names(title, given)))
        .map(|(given, command)| (given.clone(), Ok(command.clone())));
    own.chain(more).collect()
}

/// No wheel has it, and its dependencies are 600 crates.
fn hyper_mcp() -> Result<String> {
    bail!(
        "it is in no registry as a program; build it (cargo install --locked hyper-mcp@0.8.3) with a plugin whose tool \
         is called `show`, and give it: --server \"hyper-mcp: COMMAND\""
    )
}

/// A folder for what the servers keep, empty at first: nothing of the user's is read or changed.
struct PeerFolder(PathBuf);

impl PeerFolder {
    fn new(folder: PathBuf) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("could not remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder)
            .with_context(|| format!("could not create {}", folder.display()))?;
        Ok(Self(folder))
    }

    /// The beginning of a command line: a home folder of its own, and no log but of errors.
    fn environment(&self, name: &str) -> Result<String> {
        let home = self.0.join(name);
        fs::create_dir_all(&home)
            .with_context(|| format!("could not create {}", home.display()))?;
        Ok(format!("env HOME={} RUST_LOG=error", word(&home)?))
    }

    fn toolhold(&self, program: &Path, audit: &str) -> Result<String> {
        let environment = self.environment(audit)?;
        let home = self.0.join(audit);
        let home = word(&home)?;
        Ok(format!(
            "{environment} TOOLHOLD_PATHS__STATE={home}/state TOOLHOLD_PATHS__CACHE={home}/cache \
             TOOLHOLD_LIMITS__CALLS_PER_MINUTE=0 TOOLHOLD_MCP_SERVER__AUDIT={audit} {} mcp --trust-all \
             --modules tests/components --tools units",
            word(program)?
        ))
    }

    fn wassette(&self) -> Result<String> {
        let program = installed(
            "wassette",
            "Wassette (a wheel of 20 MB)",
            // The program of the wheel may not be executed as it comes.
            &[
                "python",
                "-c",
                "import os, wassette_cli; program = str(wassette_cli._binary_path()); \
                 os.chmod(program, 0o755); os.execv(program, [program, '--version'])",
            ],
            "it needs glibc 2.39; with another loader: --server \"Wassette: LOADER … wassette run …\"",
        )?;
        let environment = self.environment("wassette")?;
        let components = self.0.join("wassette/components");
        fs::create_dir_all(&components)
            .with_context(|| format!("could not create {}", components.display()))?;
        fs::copy(
            project::root().join(COMPONENT),
            components.join("units.wasm"),
        )
        .with_context(|| format!("could not copy {COMPONENT}"))?;
        Ok(format!(
            "{environment} {} run --component-dir {} --disable-builtin-tools",
            word(&program)?,
            word(&components)?
        ))
    }

    /// With a component of its own contract.
    fn act(&self, examples: &Path, options: &str) -> Result<String> {
        let program = installed(
            "act",
            "ACT (a wheel of 20 MB)",
            &["act", "--version"],
            "the wheel is for Linux on x86-64 with glibc 2.34",
        )?;
        let environment = self.environment("act")?;
        let component = self.0.join("act/show.wasm");
        let mut translate = Command::new(examples.join("wat_to_wasm"));
        translate
            .arg(project::xtask_folder().join("peers/act_tool.wat"))
            .arg(&component);
        project::require(&mut translate)?;
        Ok(format!(
            "{environment} {} run --mcp{options} {}",
            word(&program)?,
            word(&component)?
        ))
    }

    /// Built in its own workspace, with its own lock file.
    fn rmcp(&self) -> Result<String> {
        let target = self.0.with_file_name("bench-rmcp");
        let mut build = project::cargo();
        build
            .current_dir(project::xtask_folder().join("peers/rmcp_server"))
            .args(["build", "--release", "--locked"])
            .env("CARGO_TARGET_DIR", &target);
        project::require(&mut build).context("it could not be built")?;
        let environment = self.environment("rmcp")?;
        let program = target.join("release/rmcp_server");
        Ok(format!("{environment} {}", word(&program)?))
    }
}

/// A program from a wheel, in the folder of the other tools.
fn installed(name: &str, what: &str, proof: &[&str], advice: &str) -> Result<PathBuf> {
    let home = env::home_dir().context("there is no home folder to install it in")?;
    let wheel = Wheel {
        what,
        environment: home.join(nextest::TOOLS).join(name),
        requirements: project::xtask_folder().join(format!("peers/{name}.txt")),
        proof,
        advice,
    };
    Ok(wheel.install(Narration::Lines)?.join(name))
}

/// A path as a word of a command line, which is split at blanks.
fn word(path: &Path) -> Result<&str> {
    let text = path.to_str().context("a path that is not UTF-8")?;
    ensure!(
        !text.contains(char::is_whitespace),
        "{text:?} has a blank: use another target folder"
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_given_takes_the_place_of_its_peer() {
        let absent = || -> Result<String> { bail!("not here") };
        let peers: [PeerRow<'_>; 2] = [("Wassette 0.4.1", &absent), ("ACT 0.14.6", &absent)];
        let given =
            ["Wassette: ld wassette", "another: x --y"].map(|it| title_and_command(it).unwrap());
        let shown: Vec<_> = rows(&peers, &given)
            .into_iter()
            .map(|(title, server)| {
                format!("{title} = {}", server.unwrap_or_else(|it| it.to_string()))
            })
            .collect();
        assert_eq!(
            shown,
            [
                "Wassette 0.4.1 = ld wassette",
                "ACT 0.14.6 = not here",
                "another = x --y"
            ]
        );
        assert!(title_and_command("Wassette:ld").is_err());
    }

    #[test]
    fn a_path_with_a_blank_is_refused() {
        assert_eq!(word(Path::new("/a/b")).unwrap(), "/a/b");
        assert!(word(Path::new("/a b")).is_err());
    }
}
