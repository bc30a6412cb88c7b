//! The shipped modules, loaded from `modules/` as a user loads them.

use serde_json::{Value, json};
use support::sandbox::{call, kind, registry, repository};
use toolhold_sandbox::{
    Access, DirectoryGrant, Grant, ModuleKind, ModulePolicy, Output, Policy, Registry,
};

async fn shipped(only: &str, policy: Policy) -> Registry {
    let mut registry = registry(policy);
    let only = [only.to_owned()];
    registry
        .load_folder(&repository().join("modules"), Some(&only), &|_| ())
        .await
        .expect("the folder is there");
    assert!(registry.failures().is_empty(), "{:?}", registry.failures());
    registry
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

#[tokio::test]
async fn python_runs_programs() {
    if !repository().join("modules/python/python.wasm").exists() {
        eprintln!(
            "SKIPPED: modules/python is not built (toolhold build modules/python); `cargo xtask test` builds it"
        );
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
