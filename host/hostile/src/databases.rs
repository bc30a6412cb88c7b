//! Row 49: writers of one SQLite database in several processes of this host.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::future::ready;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 49,
    name: "databases_of_many_writers",
    attack: "eight calls at a time in two processes write one SQLite database",
    must: "done or busy; nothing acknowledged is lost; the database is whole",
    company: Company::Others,
    tries: |lab| Box::pin(ready(databases_of_many_writers(lab))),
}];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 4 << 30,
};
const CONFIG: [&str; 2] = ["--config", "host.toml"];
/// Calls at a time in each process.
const WRITERS: usize = 4;

fn query(folder: &CommandFolder, sql: &str) -> Result<String, AttackFailure> {
    let arguments = json!({"database": "a.db", "sql": sql, "write": true}).to_string();
    let call = ["modules", "call", "sqlite.query", &arguments];
    let ran = folder.run(&[&call[..], &CONFIG].concat(), BOUNDS)?;
    ran.ensure_ended(sql)?;
    ensure(ran.code == Some(0), || {
        format!("{sql}: {}{}", ran.stdout, ran.stderr)
    })?;
    Ok(ran.stdout)
}

fn databases_of_many_writers(lab: &Lab) -> Result<String, AttackFailure> {
    let rows = lab.times(16, 300);
    // No machine stops here, so what is flushed need not reach a disk. Beside other attacks each row waits for several
    // flushes; in memory the writers meet more often.
    let folder = CommandFolder::in_memory(lab)?;
    fs::create_dir(folder.path().join("data"))?;
    folder.write(
        "host.toml",
        "[modules]\npinning = \"never\"\n[decisions]\ndefault = \"never\"\n\
         [module.sqlite]\ndirectories = [{ host = \"./data\", guest = \"/data\", access = \"read-write\" }]\n\
         [module.sqlite.limits]\ncalls_per_minute = 0\n",
    )?;
    query(
        &folder,
        "CREATE TABLE t (a UNIQUE, b); CREATE INDEX i ON t (b, a)",
    )?;
    let written = std::thread::scope(|scope| {
        let both = ["a", "b"].map(|name| {
            let folder = &folder;
            scope.spawn(move || DatabaseWriter::start(folder)?.write(name, rows))
        });
        let both = both.map(|writer| {
            writer
                .join()
                .unwrap_or_else(|_| Err(AttackFailure::Broke("a writer panicked".into())))
        });
        both.into_iter().collect::<Result<Vec<_>, _>>()
    })?;
    let kept: BTreeSet<&str> = written
        .iter()
        .flat_map(|own| own.kept.iter().map(String::as_str))
        .collect();
    ensure(!kept.is_empty(), || {
        "no writer wrote: nothing is proved".into()
    })?;
    for refusal in written.iter().flat_map(|own| &own.refused) {
        ensure(refusal.contains("busy"), || {
            format!("a writer was refused: {refusal:.300}")
        })?;
    }
    let whole = query(&folder, "PRAGMA integrity_check")?;
    let whole: String = whole.split_whitespace().collect();
    ensure(whole.contains("[[\"ok\"]]"), || {
        format!("the database is broken: {whole:.300}")
    })?;
    let there = query(&folder, "SELECT group_concat(a) FROM t NOT INDEXED")?;
    let there: BTreeSet<&str> = there
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .collect();
    let lost = kept.difference(&there).count();
    ensure(lost == 0, || {
        format!("{lost} of {} acknowledged rows are lost", kept.len())
    })?;
    let refused: usize = written.iter().map(|own| own.refused.len()).sum();
    Ok(format!(
        "{} rows kept, {refused} calls told busy",
        kept.len()
    ))
}

/// A server of this host over its input and output. It serves one of the modules that come with the program, and so
/// compiles no other one.
struct DatabaseWriter {
    child: Child,
}

#[derive(Default)]
struct WrittenRows {
    /// Rows whose calls were done.
    kept: BTreeSet<String>,
    /// Replies to the other calls.
    refused: Vec<String>,
}

impl DatabaseWriter {
    fn start(folder: &CommandFolder) -> Result<Self, AttackFailure> {
        let child = folder
            .command(&[&["mcp", "--tools", "sqlite"][..], &CONFIG].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child })
    }

    /// Writes rows, several calls at a time.
    fn write(&mut self, name: &str, rows: usize) -> Result<WrittenRows, AttackFailure> {
        let gone = || AttackFailure::Broke("a server ended".into());
        let mut input = self.child.stdin.take().ok_or_else(gone)?;
        let output = self.child.stdout.take().ok_or_else(gone)?;
        let mut lines = BufReader::new(output).lines();
        for message in [
            json!({"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": {
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": {"name": "hostile", "version": "1"},
            }}),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        ] {
            writeln!(input, "{message}")?;
        }
        let (mut written, mut asked, mut answered) = (WrittenRows::default(), 0, 0);
        while answered < rows {
            while asked < rows && asked - answered < WRITERS {
                let row = format!("{name}{asked}");
                let arguments = json!({
                    "database": "a.db", "sql": "INSERT INTO t VALUES (?, 'x')", "parameters": [row], "write": true,
                });
                let params = json!({"name": "sqlite.query", "arguments": arguments});
                let call =
                    json!({"jsonrpc": "2.0", "id": row, "method": "tools/call", "params": params});
                writeln!(input, "{call}")?;
                asked += 1;
            }
            let line = lines.next().ok_or_else(gone)??;
            let reply: Value = serde_json::from_str(&line).unwrap_or_default();
            let Some(row) = reply["id"].as_str().filter(|id| *id != "first") else {
                continue;
            };
            if reply["result"].is_object() && reply["result"]["isError"] != json!(true) {
                written.kept.insert(row.to_owned());
            } else {
                written.refused.push(line.clone());
            }
            answered += 1;
        }
        Ok(written)
    }
}

impl Drop for DatabaseWriter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
