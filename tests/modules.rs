//! The shipped modules, loaded from `modules/` as a user loads them.

use serde_json::{Value, json};
use support::sandbox::{call, kind, registry, repository};
use toolhold_needs::is_built;
use toolhold_policy::{Access, DirectoryGrant, Grant, LimitsRequest, Output};
use toolhold_sandbox::{ModuleKind, ModulePolicy, Policy, Registry};

async fn shipped(only: &str, policy: Policy) -> Registry {
    let registry = registry(policy);
    let only = [only.to_owned()];
    registry
        .load_folder(&repository().join("modules"), Some(&only), &|_| ())
        .await
        .expect("the folder is there");
    assert!(registry.failures().is_empty(), "{:?}", registry.failures());
    registry
}

/// A policy with a deadline that no other limit waits for, on any machine.
fn patient(module: &str) -> Policy {
    let limits = LimitsRequest {
        timeout_ms: Some(180_000),
        ..LimitsRequest::default()
    };
    let module_policy = ModulePolicy {
        limits,
        ..ModulePolicy::default()
    };
    let mut policy = Policy::default();
    policy.modules.insert(module.into(), module_policy);
    policy
}

async fn value(registry: &Registry, tool: &str, arguments: Value) -> Value {
    match call(registry, tool, arguments.clone()).await.result {
        Ok(Output::Value(value)) => value,
        other => panic!("{tool} {arguments} gave {other:?}"),
    }
}

#[tokio::test]
async fn calculator_is_exact() {
    let registry = shipped("calculator", Policy::default()).await;
    for (expression, expect) in [
        ("2^200 % 97", "62"),
        ("17*23", "391"),
        ("1/3 + 1/6", "1/2"),
        ("0.1 + 0.2", "3/10"),
        ("-2^2", "-4"),
        ("(1+2)*3 - 4/2", "7"),
        ("20!", "2432902008176640000"),
        ("gcd(48, 36)", "12"),
    ] {
        let output = value(
            &registry,
            "calculator.evaluate",
            json!({"expression": expression}),
        )
        .await;
        let exact = output
            .get("value")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let exact = exact.unwrap_or_else(|| panic!("{expression}: {output}"));
        assert!(
            exact == expect || (expression.starts_with("0.1") && exact == "0.3"),
            "{expression} gave {output}"
        );
    }
    for bad in ["1 +", "2^(10^9)", "1/0", "foo(1)", &"(".repeat(10_000)] {
        let report = call(&registry, "calculator.evaluate", json!({"expression": bad})).await;
        assert_eq!(kind(&report), "tool", "{bad:.20}: {:?}", report.result);
    }
}

#[tokio::test]
async fn text_does_what_it_says() {
    let registry = shipped("text", Policy::default()).await;
    let output = value(&registry, "text.hash", json!({"text": "toolhold"})).await;
    assert_eq!(
        output["digest"],
        "99b19cebea6c795f613edfc29b255f61cb43baaea6d2e1ce5c814a672cbf289f"
    );
    let counted = value(&registry, "text.count", json!({"text": "one two\nthree"})).await;
    assert_eq!(
        (&counted["words"], &counted["lines"]),
        (&json!(3), &json!(2)),
        "{counted}"
    );
    let reversed = value(&registry, "text.reverse", json!({"text": "abc"})).await;
    assert_eq!(reversed, json!({"text": "cba"}));
}

#[tokio::test]
async fn files_sees_what_was_granted_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a.txt"), "hello\nworld").expect("a file");
    let grant = |access| {
        let directories = vec![DirectoryGrant {
            host: folder.path().to_owned(),
            guest: "/data".into(),
            access,
            quota_bytes: None,
        }];
        let mut policy = Policy::default();
        let module = ModulePolicy {
            grant: Grant {
                directories,
                ..Grant::default()
            },
            ..ModulePolicy::default()
        };
        policy.modules.insert("files".into(), module);
        policy
    };
    let read = shipped("files", grant(Access::Read)).await;
    assert!(
        value(&read, "files.list", json!({}))
            .await
            .to_string()
            .contains("a.txt")
    );
    assert!(
        value(&read, "files.read", json!({"path": "a.txt"}))
            .await
            .to_string()
            .contains("hello")
    );
    for path in [
        "../etc/passwd",
        "/etc/passwd",
        "a/../../x",
        "/proc/self/environ",
    ] {
        let report = call(&read, "files.read", json!({"path": path})).await;
        assert_eq!(kind(&report), "tool", "{path}: {:?}", report.result);
    }
    let write = json!({"path": "b.txt", "content": "new"});
    assert_eq!(
        kind(&call(&read, "files.write", write.clone()).await),
        "tool",
        "read means read"
    );
    assert!(!folder.path().join("b.txt").exists());

    let both = shipped("files", grant(Access::ReadWrite)).await;
    value(&both, "files.write", write).await;
    assert_eq!(
        std::fs::read_to_string(folder.path().join("b.txt")).expect("written"),
        "new"
    );

    let none = shipped("files", Policy::default()).await;
    let error = call(&none, "files.list", json!({}))
        .await
        .result
        .expect_err("nothing was granted");
    assert!(
        error.to_string().to_lowercase().contains("grant"),
        "{error}"
    );
}

/// A policy that grants the module `name` one directory as `/data`.
fn data(name: &str, host: &std::path::Path, access: Access) -> Policy {
    let directory = DirectoryGrant {
        host: host.to_owned(),
        guest: "/data".into(),
        access,
        quota_bytes: None,
    };
    let module = ModulePolicy {
        grant: Grant {
            directories: vec![directory],
            ..Grant::default()
        },
        ..ModulePolicy::default()
    };
    let mut policy = Policy::default();
    policy.modules.insert(name.into(), module);
    policy
}

async fn refusal(registry: &Registry, tool: &str, arguments: Value) -> String {
    let report = call(registry, tool, arguments.clone()).await;
    assert_eq!(
        kind(&report),
        "tool",
        "{tool} {arguments}: {:?}",
        report.result
    );
    report.result.expect_err("refused").to_string()
}

#[tokio::test]
async fn sqlite_computes_in_memory_and_changes_files_only_if_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let granted = shipped("sqlite", data("sqlite", folder.path(), Access::ReadWrite)).await;
    let memory = json!({"sql": "SELECT ? + ?, ?, NULL, x'00ff'", "parameters": [1, 2, "é"]});
    assert_eq!(
        value(&granted, "sqlite.query", memory).await["rows"],
        json!([[3, "é", null, {"base64": "AP8="}]])
    );
    let sql = "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT NOT NULL); INSERT INTO t (b) VALUES ('x'), ('y');";
    let refused = refusal(
        &granted,
        "sqlite.query",
        json!({"database": "new.db", "sql": sql}),
    )
    .await;
    assert!(refused.contains("`write`"), "{refused}");
    assert!(!folder.path().join("new.db").exists());
    let made = json!({"database": "new.db", "sql": sql, "write": true});
    assert_eq!(value(&granted, "sqlite.query", made).await["changes"], 2);

    // Another instance reads what the first wrote.
    let read =
        json!({"database": "/data/new.db", "sql": "SELECT * FROM t ORDER BY a", "max_rows": 1});
    assert_eq!(
        value(&granted, "sqlite.query", read).await,
        json!({"columns": ["a", "b"], "rows": [[1, "x"]], "truncated": true, "changes": 0})
    );
    let schema = value(&granted, "sqlite.schema", json!({"database": "new.db"})).await;
    assert_eq!(
        schema["tables"][0]["columns"][1]["not_null"], true,
        "{schema}"
    );

    for (arguments, expected) in [
        (
            json!({"database": "new.db", "sql": "DELETE FROM t"}),
            "`write`",
        ),
        (json!({"sql": "SELECT * FROM nope"}), "no such table"),
        (json!({"sql": "SELEC 1"}), "syntax error"),
        (
            json!({"sql": "SELECT ?", "parameters": []}),
            "1 placeholders",
        ),
        (json!({"sql": "ATTACH 'new.db' AS x"}), "not allowed"),
        (json!({"sql": "PRAGMA writable_schema = 1"}), "not allowed"),
        (
            json!({"sql": "SELECT load_extension('x')"}),
            "no such function",
        ),
        (
            json!({"sql": "VACUUM INTO '/data/copy.db'"}),
            "cannot VACUUM",
        ),
        (json!({"database": "../x.db", "sql": "SELECT 1"}), "outside"),
        (
            json!({"database": "/etc/passwd", "sql": "SELECT 1"}),
            "outside",
        ),
        (
            json!({"database": "none/x.db", "sql": "SELECT 1", "write": true}),
            "cannot open",
        ),
    ] {
        let refused = refusal(&granted, "sqlite.query", arguments.clone()).await;
        assert!(refused.contains(expected), "{arguments}: {refused}");
    }
    assert!(!folder.path().join("copy.db").exists());
    std::fs::write(folder.path().join("text.db"), "x".repeat(4096)).expect("a file");
    let refused = refusal(&granted, "sqlite.schema", json!({"database": "text.db"})).await;
    assert!(refused.contains("not an SQLite database"), "{refused}");

    let read_only = shipped("sqlite", data("sqlite", folder.path(), Access::Read)).await;
    let write = json!({"database": "new.db", "sql": "DELETE FROM t", "write": true});
    let refused = refusal(&read_only, "sqlite.query", write).await;
    assert!(refused.contains("read-only"), "{refused}");
    let kept = json!({"database": "new.db", "sql": "SELECT count(*) FROM t"});
    assert_eq!(
        value(&read_only, "sqlite.query", kept).await["rows"],
        json!([[2]])
    );
    let nothing = shipped("sqlite", Policy::default()).await;
    let refused = refusal(&nothing, "sqlite.schema", json!({"database": "new.db"})).await;
    assert!(refused.contains("no directory is granted"), "{refused}");
}

#[tokio::test]
async fn sqlite_stops_an_endless_query_and_bounds_its_rows() {
    let registry = shipped("sqlite", patient("sqlite")).await;
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT ";
    let count = json!({"sql": format!("{endless} count(*) FROM n")});
    // By the module itself, before the host has to.
    let refused = refusal(&registry, "sqlite.query", count).await;
    assert!(
        refused.contains("the statement took too many steps"),
        "{refused}"
    );
    let many = json!({"sql": format!("{endless} i FROM n"), "max_rows": 1000});
    let found = value(&registry, "sqlite.query", many).await;
    assert_eq!(found["rows"].as_array().map(Vec::len), Some(1000));
    assert_eq!(found["truncated"], true);
    let wide = json!({"sql": "SELECT printf('%.*c', 1000000, 'x')"});
    let found = value(&registry, "sqlite.query", wide).await;
    assert_eq!(found["truncated"], true);
}

#[tokio::test]
async fn jq_filters_json() {
    if !is_built(&repository(), "modules/jq") {
        return;
    }
    let registry = shipped("jq", patient("jq")).await;
    let found = value(
        &registry,
        "jq.query",
        json!({"filter": "map(select(.n > 1)) | .[].s", "input": [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]}),
    )
    .await;
    assert_eq!(found, json!({"outputs": ["b"], "truncated": false}));
    let refused = refusal(&registry, "jq.query", json!({"filter": ".[", "input": 1})).await;
    assert!(refused.contains("not valid jq"), "{refused}");
    // No files, no environment, no end: an error or the host's limit, never more.
    let import = json!({"filter": "import \"x\" as x; 1", "input": 1});
    let refused = refusal(&registry, "jq.query", import).await;
    assert!(refused.contains("not valid jq"), "{refused}");
    let endless = json!({"filter": "last(repeat(1))", "input": 1});
    let report = call(&registry, "jq.query", endless).await;
    assert_eq!(kind(&report), "fuel", "{:?}", report.result);
}

/// An archive with one stored entry, which is all that a test needs; its name is not checked.
fn archive(name: &str, content: &str, claimed: u32) -> Vec<u8> {
    let header = |signature: u32, central: bool| {
        let mut bytes = signature.to_le_bytes().to_vec();
        if central {
            bytes.extend(20_u16.to_le_bytes());
        }
        bytes.extend(20_u16.to_le_bytes());
        bytes.extend([0; 8]); // flags, stored, time and date
        bytes.extend(crc32(content.as_bytes()).to_le_bytes());
        bytes.extend(u32::try_from(content.len()).expect("small").to_le_bytes());
        bytes.extend(claimed.to_le_bytes());
        bytes.extend(u16::try_from(name.len()).expect("short").to_le_bytes());
        bytes.extend(if central { &[0; 16][..] } else { &[0; 2] });
        bytes.extend(name.bytes());
        bytes
    };
    let mut bytes = header(0x0403_4b50, false);
    bytes.extend(content.bytes());
    let (start, directory) = (bytes.len(), header(0x0201_4b50, true));
    bytes.extend(&directory);
    bytes.extend(0x0605_4b50_u32.to_le_bytes());
    bytes.extend([0, 0, 0, 0, 1, 0, 1, 0]);
    bytes.extend(u32::try_from(directory.len()).expect("small").to_le_bytes());
    bytes.extend(u32::try_from(start).expect("small").to_le_bytes());
    bytes.extend([0; 2]);
    bytes
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

#[tokio::test]
async fn zip_reads_entries_and_warns_of_traps() {
    if !is_built(&repository(), "modules/zip") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let good = "Call Ada. é\n";
    for (file, bytes) in [
        ("good.zip", archive("notes.txt", good, 13)),
        ("evil.zip", archive("../../evil.txt", "x", 1)),
        ("bomb.zip", archive("bomb", "x", 2_000_000_000)),
        ("text.zip", b"no archive".to_vec()),
    ] {
        std::fs::write(folder.path().join(file), bytes).expect("a file");
    }
    let registry = shipped("zip", data("zip", folder.path(), Access::Read)).await;
    let entry = |archive: &str, entry: &str| json!({"path": archive, "entry": entry});
    assert_eq!(
        value(&registry, "zip.read", entry("good.zip", "notes.txt")).await,
        json!({"text": good})
    );
    for (file, warning) in [("evil.zip", "leads out"), ("bomb.zip", "bomb")] {
        let listed = value(&registry, "zip.list", json!({"path": file})).await;
        assert!(
            listed["entries"][0]["warnings"]
                .to_string()
                .contains(warning),
            "{listed}"
        );
    }
    for (arguments, expected) in [
        (entry("bomb.zip", "bomb"), "bomb"),
        (entry("good.zip", "other"), "no entry"),
        (entry("text.zip", "a"), "not a zip archive"),
        (entry("../good.zip", "a"), "outside"),
        (entry("none.zip", "a"), "does not exist"),
        (json!({"entry": "a"}), "either"),
        (json!({"entry": "a", "base64": "%"}), "not base64"),
    ] {
        let refused = refusal(&registry, "zip.read", arguments.clone()).await;
        assert!(refused.contains(expected), "{arguments}: {refused}");
    }
}

#[tokio::test]
async fn python_runs_programs() {
    if !is_built(&repository(), "modules/python") {
        return;
    }
    let registry = shipped("python", Policy::default()).await;
    assert_eq!(
        registry.module("python").expect("loaded").kind,
        ModuleKind::ToolWorld
    );
    let output = value(
        &registry,
        "python.run",
        json!({"code": "print('hi')\nx = 2**100\nx % 97"}),
    )
    .await;
    assert!(
        output["stdout"]
            .as_str()
            .is_some_and(|text| text.contains("hi")),
        "{output}"
    );
    assert_eq!(output["result"], json!(2_u128.pow(100) % 97), "{output}");
    let error = call(&registry, "python.run", json!({"code": "1/0"}))
        .await
        .result
        .expect_err("an exception");
    assert!(error.to_string().contains("ZeroDivisionError"), "{error}");
    let error = call(
        &registry,
        "python.run",
        json!({"code": "open('/etc/passwd')"}),
    )
    .await
    .result
    .expect_err("no files");
    assert_eq!(error.kind(), "tool", "{error}");
    // State does not survive a call.
    value(&registry, "python.run", json!({"code": "leak = 1"})).await;
    assert_eq!(
        kind(&call(&registry, "python.run", json!({"code": "leak"})).await),
        "tool"
    );
}
