//! Commands run as they are printed: each document in an empty folder of its own, with an empty home folder, its blocks
//! one after the other. So a reader who has installed the binary and nothing else can follow each page.

use super::markdown::{Block, Mark, blocks};
use super::{documents, read};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use support::endpoint::{Endpoint, Expect, Reply, ReplyOrder, Scenario};
use support::host::{self, Host, binary};
use support::sandbox::repository;
use support::server::Server;
use tempfile::TempDir;

/// For one block, on a machine that compiles components meanwhile.
const PATIENCE: Duration = Duration::from_mins(3);
/// What the documents call an endpoint of the reader's, and where `toolhold serve` and `mcp --http` listen.
const ENDPOINT: &str = "http://gpu:8000/v1";
const SERVER: &str = "http://127.0.0.1:8700";
const PORTS: [&str; 2] = [":8700", ":8808"];
/// Words of the documents for a hash of the audit log that the reader kept, for a folder that an operator grants, and for a
/// component that a reader brings.
const KEPT_HASH: &str = "--expect HASH";
const GRANTED: &str = "/srv/notes";
const COMPONENT: &str = "@clock.wasm";

/// What the documents' tasks are answered with. The first that fits is taken, so what says most is first.
fn endpoint() -> Endpoint {
    let when = |texts: &[&str], solution: serde_json::Value| {
        let expect = Expect {
            contains: texts.iter().map(|&text| text.to_owned()).collect(),
            ..Expect::default()
        };
        let reply = Reply::solution(solution).expecting(expect);
        Reply {
            usage: Some((100, 20)),
            ..reply
        }
    };
    let sum = json!({"_tool": "calculator.evaluate", "_reasoningForCall": "adds them", "expression": "418 + 275"});
    let total = json!({"_tool": "calculator.evaluate", "_reasoningForCall": "first", "expression": "6*7", "_outputPath": "†state.total"});
    let reversed = json!({"_tool": "text.reverse", "_reasoningForCall": "then", "text": "†state.total.value", "_outputPath": "†state.reversed"});
    let replies = [
        when(
            &["numbers in costs.txt", "693"],
            json!({"calls": [], "output": "The sum is 693."}),
        ),
        when(
            &["numbers in costs.txt"],
            json!({"calls": [sum], "output": null}),
        ),
        when(
            &["reverse it"],
            json!({"calls": [total, reversed], "output": null}),
        ),
        when(
            &[],
            json!({"calls": [], "output": "There is nothing more to do."}),
        ),
    ];
    Endpoint::start(Scenario::new(replies).in_order(ReplyOrder::FirstMatch))
}

/// A folder with `bin/toolhold`, as `cargo install --root` leaves it.
fn installed() -> TempDir {
    let prefix = tempfile::tempdir().expect("a folder");
    let place = prefix.path().join("bin/toolhold");
    fs::create_dir(prefix.path().join("bin")).expect("a folder");
    // A link where that is possible: the binary of a test is large.
    if fs::hard_link(binary(), &place).is_err() {
        fs::copy(binary(), &place).expect("a copy of the binary");
    }
    prefix
}

/// Where the commands of one document run.
struct DocumentSession {
    host: Host,
    home: TempDir,
    /// Where the binary is installed: outside of the repository, so that nothing of that is found beside it.
    prefix: PathBuf,
    endpoint: Endpoint,
    server: Option<Server>,
    key: String,
}

impl DocumentSession {
    fn new(prefix: &Path) -> Self {
        Self {
            host: Host::new(),
            home: tempfile::tempdir().expect("a folder"),
            prefix: prefix.to_owned(),
            endpoint: endpoint(),
            server: None,
            key: String::new(),
        }
    }

    /// A shell as a reader has it: this binary on its path, the endpoint in its environment.
    fn shell(&self, script: &str) -> Command {
        let toolhold = self.host.command(&[]);
        let folder = self.prefix.join("bin");
        let folder = folder.display();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("sh");
        shell
            .args(["-e", "-c", script])
            .current_dir(self.host.path())
            .env_clear();
        for (name, value) in toolhold.get_envs() {
            if let Some(value) = value {
                shell.env(name, value);
            }
        }
        shell
            .env("HOME", self.home.path())
            .env("PATH", format!("{folder}:{path}"))
            .env("TOOLHOLD_BASE_URL", self.endpoint.base_url())
            .env("TOOLHOLD_MODEL", "scripted")
            .env("KEY", &self.key)
            .stdin(Stdio::null());
        if let Some(server) = &self.server {
            let address = server.address().trim_start_matches("http://");
            shell.env("TOOLHOLD_SERVE__LISTEN", address);
        }
        shell
    }

    /// The commands of a block, with what is here in the place of what the documents name.
    fn script(&self, text: &str) -> String {
        let mut text = text.replace(ENDPOINT, &self.endpoint.base_url());
        if text.contains(KEPT_HASH) {
            text = text.replace(KEPT_HASH, &format!("--expect {}", self.audit_head()));
        }
        if text.contains(GRANTED) {
            let folder = self.host.path().join("granted");
            fs::create_dir_all(&folder).expect("a folder");
            text = text.replace(GRANTED, &folder.display().to_string());
        }
        if text.contains(COMPONENT) {
            let clock = repository().join("tests/components/clock/clock.wasm");
            fs::copy(clock, self.host.path().join("clock.wasm")).expect("a component");
        }
        match &self.server {
            Some(server) => text.replace(SERVER, server.address()),
            None => text,
        }
    }

    /// The hash of the last entry of the audit log.
    fn audit_head(&self) -> String {
        let verified = self.host.run(&["audit", "verify", "--json"]);
        let verified: serde_json::Value = serde_json::from_str(&verified.stdout).expect("a report");
        verified["head"].as_str().expect("a hash").to_owned()
    }

    /// # Errors
    /// How it failed, with what it said.
    fn run(&mut self, block: &Block) -> Result<(), String> {
        match block.mark()? {
            Mark::Text | Mark::NotRun => Ok(()),
            Mark::File(name) => {
                self.host.write(name, &block.text);
                Ok(())
            }
            Mark::Run => self.finishes(&block.text),
            Mark::Server => {
                if self.server.is_none() {
                    let scopes = "run,approve,admin";
                    let made = self
                        .host
                        .run(&["keys", "create", "documents", "--scopes", scopes]);
                    made.stdout.trim().clone_into(&mut self.key);
                    let url = self.endpoint.base_url();
                    let arguments = ["--base-url", url.as_str(), "--model", "scripted"];
                    let variables = [("TOOLHOLD_SERVE__MODULE_UPLOAD", "true")];
                    self.server = Some(Server::start_with(&self.host, &arguments, &variables));
                }
                self.finishes(&block.text)
            }
            Mark::Starts => self.starts(&block.text),
        }
    }

    fn finishes(&self, text: &str) -> Result<(), String> {
        let said = self.host.path().join(".said");
        let file = || fs::File::create(&said).map_err(|error| error.to_string());
        let (out, errors) = (file()?, said.with_extension("err"));
        let mut child = self
            .shell(&self.script(text))
            .stdout(out)
            .stderr(fs::File::create(&errors).map_err(|error| error.to_string())?)
            .spawn()
            .map_err(|error| error.to_string())?;
        let status = ended(&mut child, PATIENCE);
        if status.is_some_and(|status| status.success()) {
            return Ok(());
        }
        let mut fault = match status {
            Some(status) => status.to_string(),
            None => format!("it did not end within {PATIENCE:?}"),
        };
        for path in [&said, &errors] {
            let _ = write!(fault, "\n{}", fs::read_to_string(path).unwrap_or_default());
        }
        Err(fault)
    }

    /// The last command serves: on any free port, until it is stopped.
    fn starts(&self, text: &str) -> Result<(), String> {
        let mut script = self.script(text);
        for port in PORTS {
            script = script.replace(port, ":0");
        }
        // The default address has a port of its own, too. `exec`, so that the signal reaches the command.
        let (before, last) = script
            .trim_end()
            .rsplit_once('\n')
            .unwrap_or(("", script.trim_end()));
        let script = format!("{before}\nexec {last}");
        let said = self.host.path().join(".serving");
        let file = fs::File::create(&said).map_err(|error| error.to_string())?;
        let mut child = self
            .shell(&script)
            .env("TOOLHOLD_SERVE__LISTEN", "127.0.0.1:0")
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .map_err(|error| error.to_string())?;
        let started = Instant::now();
        let is_serving = loop {
            let so_far = fs::read_to_string(&said).unwrap_or_default();
            if so_far.contains("http://") {
                break true;
            }
            let is_over = !matches!(child.try_wait(), Ok(None));
            if is_over || started.elapsed() > PATIENCE {
                break false;
            }
            thread::sleep(Duration::from_millis(20));
        };
        if is_serving {
            host::signal(child.id(), "TERM");
        }
        // It says where it serves before it listens for the signal, which may therefore kill it.
        let status = ended(&mut child, PATIENCE);
        if is_serving && status.is_some() {
            return Ok(());
        }
        let so_far = fs::read_to_string(&said).unwrap_or_default();
        Err(format!(
            "it served: {is_serving}, and ended with {status:?}\n{so_far}"
        ))
    }
}

/// How it ended; a child that takes too long is killed and has no status.
fn ended(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if started.elapsed() < patience => thread::sleep(Duration::from_millis(10)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

/// What went wrong with the commands of a document.
fn faults(document: &Path, prefix: &Path) -> Vec<String> {
    let blocks = blocks(&read(document));
    let runs = |block: &Block| matches!(block.mark(), Ok(Mark::Run | Mark::Server | Mark::Starts));
    if !blocks.iter().any(runs) {
        return Vec::new();
    }
    let mut session = DocumentSession::new(prefix);
    let mut faults = Vec::new();
    for block in &blocks {
        if let Err(fault) = session.run(block) {
            let place = format!("{}:{}", document.display(), block.line);
            faults.push(format!("{place}: {fault}\n{}", block.text));
        }
    }
    faults
}

#[test]
fn commands_run_as_they_are_printed() {
    let documents = documents();
    // Built once, before the documents would wait for each other.
    let prefix = installed();
    let faults: Vec<String> = thread::scope(|scope| {
        let sessions: Vec<_> = documents
            .iter()
            .map(|document| scope.spawn(|| faults(document, prefix.path())))
            .collect();
        let ended = sessions.into_iter();
        ended
            .flat_map(|session| session.join().expect("no panic"))
            .collect()
    });
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}
