//! Databases of the shipped module `sqlite`, under several writers: calls of one host, of two, and native programs.

use crate::mcp_server::wire::Stdio;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio as Pipe};
use std::time::{Duration, Instant};
use support::endpoint::{Endpoint, Scenario};
use support::host::Host;
use support::sandbox::{call, kind, registry, repository};
use support::transcript::{answers, calls, told};
use toolhold_policy::limits::LimitsRequest;
use toolhold_policy::{Access, CallError, DirectoryGrant, ErrorClass, Grant, Output};
use toolhold_sandbox::{ModulePolicy, Policy, Registry};

/// How long the writers write. `TOOLHOLD_SQLITE_SECONDS` has them do it longer.
fn duration() -> Duration {
    let seconds = std::env::var("TOOLHOLD_SQLITE_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(4))
}

/// SQLite as a native program has it.
fn native(folder: &Path, script: &str) -> String {
    let done = python(folder, script).output().expect("python3");
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{script}: {error}");
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

fn python(folder: &Path, script: &str) -> Command {
    let mut command = Command::new("python3");
    let script = format!("import sqlite3, sys, time\n{script}");
    command.current_dir(folder).args(["-c", &script]);
    command
}

/// A native program that runs until it is killed, and has printed its first line.
struct Beside(Child);

impl Beside {
    fn start(folder: &Path, script: &str) -> Self {
        let mut child = python(folder, script)
            .stdout(Pipe::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The module with `folder` as `/data`, and so many milliseconds for a call.
async fn sqlite(folder: &Path, access: Access, timeout_ms: u64) -> Registry {
    let directory = DirectoryGrant {
        host: folder.to_owned(),
        guest: "/data".into(),
        access,
        quota_bytes: None,
    };
    let module = ModulePolicy {
        grant: Grant {
            directories: vec![directory],
            ..Grant::default()
        },
        limits: LimitsRequest {
            timeout_ms: Some(timeout_ms),
            ..LimitsRequest::default()
        },
        ..ModulePolicy::default()
    };
    let mut policy = Policy::default();
    policy.modules.insert("sqlite".into(), module);
    let registry = registry(policy);
    let modules = repository().join("modules");
    let only = ["sqlite".into()];
    let loaded = registry.load_folder(&modules, Some(&only), &|_| ());
    loaded.await.expect("the folder is there");
    registry
}

async fn query(registry: &Registry, sql: &str, write: bool) -> Result<Value, CallError> {
    let arguments = json!({"database": "a.db", "sql": sql, "write": write});
    match call(registry, "sqlite.query", arguments).await.result? {
        Output::Value(value) => Ok(value),
        Output::Message(value) => panic!("a message: {value}"),
    }
}

const LONG: u64 = 60_000;

#[tokio::test]
async fn a_script_is_one_transaction_and_says_so_when_nothing_of_it_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let registry = sqlite(folder.path(), Access::ReadWrite, LONG).await;
    query(&registry, "CREATE TABLE t (a UNIQUE)", true)
        .await
        .unwrap();
    for (script, why) in [
        ("BEGIN; INSERT INTO t VALUES (1)", "BEGIN without a COMMIT"),
        (
            "INSERT INTO t VALUES (1); INSERT INTO t VALUES (1)",
            "UNIQUE constraint",
        ),
        (
            "INSERT INTO t VALUES (1); INSERT INTO nope VALUES (1)",
            "no such table",
        ),
        ("INSERT INTO t VALUES (1); SELEC 1", "syntax error"),
        ("INSERT INTO t VALUES (1); COMMIT", "need a BEGIN"),
        (
            "BEGIN; BEGIN; INSERT INTO t VALUES (1); COMMIT",
            "BEGIN stands within",
        ),
        (
            "SAVEPOINT s; BEGIN; INSERT INTO t VALUES (1); COMMIT",
            "BEGIN stands within",
        ),
        (
            "BEGIN; INSERT INTO t VALUES (1); ROLLBACK TO toolhold_begin; COMMIT",
            "this tool's own savepoint",
        ),
        ("INSERT INTO t VALUES (1); RELEASE s", "no such savepoint"),
        ("INSERT INTO t VALUES (1); VACUUM", "cannot VACUUM"),
    ] {
        let refused = query(&registry, script, true)
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains(why), "{script}: {refused}");
        assert!(
            refused.contains("nothing of this call was kept"),
            "{script}: {refused}"
        );
        let left = query(&registry, "SELECT count(*) FROM t", false)
            .await
            .unwrap();
        assert_eq!(left["rows"], json!([[0]]), "{script}");
    }
    let kept = "BEGIN; INSERT INTO t VALUES (1); COMMIT; BEGIN; INSERT INTO t VALUES (2), (3); ROLLBACK; \
                INSERT INTO t VALUES (4); SELECT a FROM t ORDER BY a";
    let kept = query(&registry, kept, true).await.unwrap();
    assert_eq!(
        (&kept["rows"], &kept["changes"]),
        (&json!([[1], [4]]), &json!(2))
    );
    for (script, changes) in [
        (
            "SAVEPOINT s; INSERT INTO t VALUES (5); ROLLBACK TO s; INSERT INTO t VALUES (6); RELEASE S",
            1,
        ),
        (
            "BEGIN; INSERT INTO t VALUES (7); SAVEPOINT a; INSERT INTO t VALUES (8); SAVEPOINT b; \
             INSERT INTO t VALUES (9); ROLLBACK TO a; INSERT INTO t VALUES (10); COMMIT",
            2,
        ),
        (
            "BEGIN; SAVEPOINT a; INSERT INTO t VALUES (11); RELEASE a; ROLLBACK; INSERT INTO t VALUES (12)",
            1,
        ),
        ("EXPLAIN BEGIN; INSERT INTO t VALUES (13)", 1),
    ] {
        let changed = query(&registry, script, true).await.unwrap();
        assert_eq!(changed["changes"], json!(changes), "{script}");
    }
    let left = query(&registry, "SELECT a FROM t ORDER BY a", false).await;
    assert_eq!(
        left.unwrap()["rows"],
        json!([[1], [4], [6], [7], [10], [12], [13]])
    );
    assert!(!folder.path().join("a.db-journal").exists());
}

#[tokio::test]
async fn calls_at_the_same_time_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let registry = sqlite(folder.path(), Access::ReadWrite, LONG).await;
    query(&registry, "CREATE TABLE t (a)", true).await.unwrap();
    let insert = |number: usize| {
        let registry = &registry;
        async move { query(registry, &format!("INSERT INTO t VALUES ({number})"), true).await }
    };
    let four = tokio::join!(insert(1), insert(2), insert(3), insert(4));
    for inserted in <[_; 4]>::from(four) {
        assert_eq!(inserted.unwrap()["changes"], 1);
    }
    let ok = native(
        folder.path(),
        "print(sqlite3.connect('a.db').execute('pragma integrity_check').fetchall())",
    );
    assert_eq!(ok, "[('ok',)]");
}

/// Its journal is that of a living transaction: whoever takes it for a leftover destroys it.
#[tokio::test]
async fn a_native_transaction_is_waited_for_and_never_broken() {
    let folder = tempfile::tempdir().unwrap();
    native(
        folder.path(),
        "sqlite3.connect('a.db').executescript('create table t (a); insert into t values (0)')",
    );
    // Much is changed in little memory, so that it is in the file before the commit.
    let open = "c = sqlite3.connect('a.db', isolation_level=None)\nc.execute('pragma cache_size = 2')\n\
                c.execute('begin immediate')\n";
    let pause = "print('ready', flush=True)\ntime.sleep(1.5)\n";
    let end = "c.execute('insert into t values (2)')\nc.execute('commit')\ntime.sleep(60)";
    let few = format!("{open}c.execute('insert into t values (1)')\n{pause}{end}");
    let many = format!(
        "{open}c.executemany('insert into t values (?)', [('x' * 3000,)] * 300)\n{pause}{end}"
    );
    let impatient = sqlite(folder.path(), Access::ReadWrite, 600).await;
    let patient = sqlite(folder.path(), Access::ReadWrite, LONG).await;
    for (script, rows) in [(few, 2), (many, 301)] {
        let beside = Beside::start(folder.path(), &script);
        let began = Instant::now();
        let busy = query(&impatient, "INSERT INTO t VALUES (9)", true)
            .await
            .unwrap_err();
        assert_eq!(busy.class(), ErrorClass::Retryable, "{busy}");
        assert!(busy.to_string().contains("busy"), "{busy}");
        assert!(
            began.elapsed() < Duration::from_millis(1_400),
            "the program still writes"
        );
        let before = query(&patient, "SELECT count(*) AS n FROM t", true)
            .await
            .unwrap();
        query(&patient, "INSERT INTO t VALUES (10)", true)
            .await
            .unwrap();
        let counted = native(
            folder.path(),
            "c = sqlite3.connect('a.db')\nprint(c.execute('pragma integrity_check').fetchone()[0], \
             c.execute('select count(*) from t').fetchone()[0])",
        );
        let was = before["rows"][0][0].as_u64().unwrap();
        assert_eq!(
            counted,
            format!("ok {}", was + 1),
            "with {rows} of the program"
        );
        drop(beside);
    }
}

/// Killed between two statements, a program leaves its journal: then it is to be undone, by a call that may write.
#[tokio::test]
async fn what_a_killed_program_left_is_undone_by_a_call_that_may_write() {
    let folder = tempfile::tempdir().unwrap();
    native(
        folder.path(),
        "sqlite3.connect('a.db').executescript('create table t (a); insert into t values (0)')",
    );
    drop(Beside::start(
        folder.path(),
        "c = sqlite3.connect('a.db', isolation_level=None)\nc.execute('pragma cache_size = 2')\nc.execute('begin')\n\
         c.executemany('insert into t values (?)', [('x' * 3000,)] * 300)\nprint('ready', flush=True)\ntime.sleep(60)",
    ));
    let registry = sqlite(folder.path(), Access::ReadWrite, LONG).await;
    let refused = query(&registry, "SELECT count(*) FROM t", false)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("must be undone"), "{refused}");
    let left = query(&registry, "SELECT count(*) FROM t", true)
        .await
        .unwrap();
    assert_eq!(left["rows"], json!([[1]]));
    query(&registry, "SELECT count(*) FROM t", false)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_database_in_wal_mode_is_used_alone_or_said_to_be_in_it() {
    let folder = tempfile::tempdir().unwrap();
    native(
        folder.path(),
        "c = sqlite3.connect('a.db')\nc.execute('pragma journal_mode = wal')\nc.executescript('create table t (a); insert into t values (0)')",
    );
    let registry = sqlite(folder.path(), Access::ReadWrite, 1_000).await;
    for write in [false, true] {
        let read = query(&registry, "SELECT a FROM t", write).await.unwrap();
        assert_eq!(read["rows"], json!([[0]]));
    }
    let refused = query(&registry, "INSERT INTO t VALUES (1)", false)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("`write`"), "{refused}");
    query(&registry, "INSERT INTO t VALUES (1)", true)
        .await
        .unwrap();
    let beside = Beside::start(
        folder.path(),
        "c = sqlite3.connect('a.db', isolation_level=None)\nc.execute('insert into t values (2)')\nprint('ready', flush=True)\ntime.sleep(60)",
    );
    let busy = query(&registry, "SELECT count(*) FROM t", false)
        .await
        .unwrap_err();
    assert_eq!(busy.class(), ErrorClass::Retryable);
    assert!(busy.to_string().contains("WAL mode"), "{busy}");
    drop(beside);
    let all = query(&registry, "SELECT count(*) FROM t", false)
        .await
        .unwrap();
    assert_eq!(all["rows"], json!([[3]]));
    let read_only = sqlite(folder.path(), Access::Read, LONG).await;
    let refused = query(&read_only, "SELECT count(*) FROM t", false)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("is in WAL mode"), "{refused}");
}

#[tokio::test]
async fn a_call_that_waits_for_a_directory_ends_with_its_deadline() {
    let folder = tempfile::tempdir().unwrap();
    // As another host holds it.
    let held = std::fs::File::open(folder.path()).unwrap();
    held.lock().unwrap();
    let registry = sqlite(folder.path(), Access::ReadWrite, 300).await;
    let began = Instant::now();
    let report = call(&registry, "sqlite.query", json!({"sql": "SELECT 1"})).await;
    assert_eq!(kind(&report), "busy", "{:?}", report.result);
    assert!(
        began.elapsed() >= Duration::from_millis(250)
            && report.usage.queued >= Duration::from_millis(250)
    );
    let busy = report.result.unwrap_err();
    assert!(
        busy.to_string().contains("/data") && busy.to_string().contains("another process"),
        "{busy}"
    );
    assert_eq!(busy.class(), ErrorClass::Retryable);
    drop(held);
    query(&registry, "SELECT 1", true).await.unwrap();
}

#[test]
fn four_calls_of_one_reply_all_succeed_in_their_order() {
    let host = Host::new();
    host.ship("sqlite");
    std::fs::create_dir(host.path().join("data")).unwrap();
    native(
        &host.path().join("data"),
        "sqlite3.connect('a.db').execute('create table t (n integer primary key, a)')",
    );
    let insert = |number: u32| {
        let sql = format!("INSERT INTO t (a) VALUES ({number})");
        (
            "sqlite.query",
            json!({"database": "a.db", "sql": sql, "write": true}),
        )
    };
    let endpoint = Endpoint::start(Scenario::new([
        calls((1..=4).map(insert)),
        answers(json!("done")),
    ]));
    let url = endpoint.base_url();
    let done = host.run(&[
        "run",
        "insert",
        "--base-url",
        &url,
        "--trust-all",
        "--dir",
        "sqlite=data:/data:rw",
    ]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        !told(&endpoint, 1).contains("rror"),
        "{}",
        told(&endpoint, 1)
    );
    let rows = native(
        &host.path().join("data"),
        "print([row[0] for row in sqlite3.connect('a.db').execute('select a from t order by n')])",
    );
    assert_eq!(rows, "[1, 2, 3, 4]");
}

/// Writes through `toolhold mcp`, four calls at a time, until `end`. The rows that were acknowledged, and what was
/// said of the others.
fn write(mut client: Stdio, name: &str, end: Instant) -> (BTreeSet<String>, Vec<String>) {
    let (mut kept, mut refused, mut number) = (BTreeSet::new(), Vec::new(), 0);
    let mut ask = |client: &mut Stdio| {
        number += 1;
        let row = format!("{name}{number}");
        let arguments = json!({
            "database": "a.db", "sql": "INSERT INTO t VALUES (?)", "parameters": [row], "write": true,
        });
        let params = json!({"name": "sqlite.query", "arguments": arguments});
        client.send(json!({"jsonrpc": "2.0", "id": row, "method": "tools/call", "params": params}));
    };
    for _ in 0..4 {
        ask(&mut client);
    }
    let mut open = 4;
    while open > 0 {
        let reply = client.next();
        let Some(id) = reply["id"].as_str() else {
            continue;
        };
        if reply["result"]["isError"] == true || reply.get("error").is_some() {
            refused.push(reply.to_string());
        } else {
            kept.insert(id.to_owned());
        }
        if Instant::now() < end {
            ask(&mut client);
        } else {
            open -= 1;
        }
    }
    (kept, refused)
}

#[test]
fn eight_writers_in_two_processes_and_a_native_program_lose_nothing() {
    let host = Host::new();
    host.ship("sqlite");
    let folder = host.path().join("data");
    std::fs::create_dir(&folder).unwrap();
    native(
        &folder,
        "sqlite3.connect('a.db').executescript('create table t (a); create index i on t (a)')",
    );
    let seconds = duration().as_secs_f64();
    let script = format!(
        "end, number = time.time() + {seconds}, 0\nc = sqlite3.connect('a.db', timeout=30, isolation_level=None)\n\
         print('ready', flush=True)\nwhile time.time() < end:\n  number += 1\n  c.execute('begin immediate')\n  \
         c.execute('insert into t values (?)', (f'native{{number}}a',))\n  time.sleep(0.03)\n  \
         c.execute('insert into t values (?)', (f'native{{number}}b',))\n  c.execute('commit')\n  time.sleep(0.03)\n\
         print(number, flush=True)"
    );
    let mut program = python(&folder, &script)
        .stdout(Pipe::piped())
        .stderr(Pipe::piped())
        .spawn()
        .unwrap();
    let started = ["--trust-all", "--dir", "sqlite=data:/data:rw"];
    let clients = ["a", "b"].map(|name| (name, Stdio::session(&host, &started, json!({}))));
    let end = Instant::now() + duration();
    let writers =
        clients.map(|(name, client)| std::thread::spawn(move || write(client, name, end)));
    let mut kept = BTreeSet::new();
    for writer in writers {
        let (rows, refused) = writer.join().unwrap();
        assert!(rows.len() > 4, "{refused:?}");
        for reason in refused {
            assert!(
                reason.contains("busy") && reason.contains("retryable"),
                "{reason}"
            );
        }
        kept.extend(rows);
    }
    let status = program.wait().unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut program.stderr.take().unwrap(), &mut said).unwrap();
    assert!(status.success(), "the program was broken: {said}");
    let rows = native(
        &folder,
        "c = sqlite3.connect('a.db')\nassert c.execute('pragma integrity_check').fetchall() == [('ok',)]\n\
         print('\\n'.join(row[0] for row in c.execute('select a from t')))",
    );
    let rows: BTreeSet<String> = rows.lines().map(str::to_owned).collect();
    let lost: Vec<_> = kept.difference(&rows).collect();
    assert!(lost.is_empty(), "acknowledged and not there: {lost:?}");
    let halves = |end: char| {
        rows.iter()
            .filter(|row| row.starts_with("native") && row.ends_with(end))
            .count()
    };
    assert!(halves('a') > 0 && halves('a') == halves('b'));
}
