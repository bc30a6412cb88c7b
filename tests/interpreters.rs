//! The interpreters for code that a model wrote: `modules/python` and `modules/javascript`.

use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;
use support::sandbox::{call, kind, registry, repository};
use toolhold_needs::is_built;
use toolhold_policy::{Access, CallReport, DirectoryGrant, Grant, LimitsRequest, Output};
use toolhold_sandbox::{ModulePolicy, Policy, Registry};

/// One of the interpreters with a policy of its own; nothing where it is not built.
async fn interpreter(language: &str, policy: ModulePolicy) -> Option<Registry> {
    if !is_built(&repository(), &format!("modules/{language}")) {
        return None;
    }
    let mut all = Policy::default();
    all.modules.insert(language.to_owned(), policy);
    let registry = registry(all);
    registry
        .load_folder(
            &repository().join("modules"),
            Some(&[language.to_owned()]),
            &|_| (),
        )
        .await
        .expect("the folder is there");
    assert!(registry.failures().is_empty(), "{:?}", registry.failures());
    Some(registry)
}

fn scratch(folder: &Path) -> ModulePolicy {
    let directories = vec![DirectoryGrant {
        host: folder.to_owned(),
        guest: "/scratch".into(),
        access: Access::ReadWrite,
        quota_bytes: None,
    }];
    ModulePolicy {
        grant: Grant {
            directories,
            ..Grant::default()
        },
        ..ModulePolicy::default()
    }
}

async fn run(registry: &Registry, language: &str, arguments: Value) -> CallReport {
    call(registry, &format!("{language}.run"), arguments).await
}

async fn output(registry: &Registry, language: &str, code: &str) -> Value {
    match run(
        registry,
        language,
        json!({ "code": code, "input": {"n": 7} }),
    )
    .await
    .result
    {
        Ok(Output::Value(value)) => value,
        other => panic!("{language}: {code} gave {other:?}"),
    }
}

/// The error of a program, in words.
async fn failure(registry: &Registry, language: &str, code: &str) -> String {
    let report = run(registry, language, json!({ "code": code })).await;
    assert_eq!(
        kind(&report),
        "tool",
        "{language}: {code}: {:?}",
        report.result
    );
    report.result.expect_err("a failure").to_string()
}

#[tokio::test]
async fn javascript_programs() {
    let Some(registry) = interpreter("javascript", ModulePolicy::default()).await else {
        return;
    };
    for (code, result) in [
        ("input.n * 6", json!(42)),
        (
            "const primes = []; for (let n = 2; primes.length < 5; n++) if (primes.every(p => n % p)) primes.push(n); primes",
            json!([2, 3, 5, 7, 11]),
        ),
        (
            "async function main() { const all = await Promise.all([1, 2].map(async n => n * 2)); return all }\nmain()",
            json!([2, 4]),
        ),
        (
            "await new Promise(done => setTimeout(() => done('in time'), 60_000))",
            json!("in time"),
        ),
        (
            "new Map([['a', 1n], ['b', NaN]])",
            json!({"a": 1, "b": "NaN"}),
        ),
        (
            "typeof Date.now() === 'number' && Math.random() < 1",
            json!(true),
        ),
        (
            "let depth = 0; function f() { depth++; f() } try { f() } catch (e) { e instanceof RangeError && depth > 1000 }",
            json!(true),
        ),
        (
            "try { const hog = []; for (;;) hog.push(new Uint8Array(1e6)) } catch (e) { String(e) }",
            json!("InternalError: out of memory"),
        ),
        (
            "typeof fetch + typeof process + typeof document",
            json!("undefinedundefinedundefined"),
        ),
    ] {
        assert_eq!(
            output(&registry, "javascript", code).await["result"],
            result,
            "{code}"
        );
    }
    for (code, parts) in [
        ("let a = 1;\nlet b;\nb.x", ["TypeError", "<code>:3"]),
        ("1;\nlet = ;", ["SyntaxError", "<code>:2"]),
        ("await null;\nthrow new Error('late')", ["late", "<code>:2"]),
        ("function f() { f() }\nf()", ["RangeError", "<code>:1"]),
        (
            "await new Promise(() => {})",
            ["waits for a promise", "nothing"],
        ),
        ("import x from 'lodash'", ["SyntaxError", "no packages"]),
    ] {
        let text = failure(&registry, "javascript", code).await;
        assert!(
            parts.iter().all(|part| text.contains(part)),
            "{code}: {text}"
        );
    }
}

#[tokio::test]
async fn python_programs() {
    let Some(registry) = interpreter("python", ModulePolicy::default()).await else {
        return;
    };
    for (code, result) in [
        ("input['n'] * 6", json!(42)),
        ("import statistics\nstatistics.mean([1, 2, 6])", json!(3)),
        ("input = 3\ninput", json!(3)),
        (
            "import os\n[os.path.exists(p) for p in ('/', '/etc', '/scratch')]",
            json!([false, false, false]),
        ),
        (
            "depth = 0\ndef f():\n  global depth\n  depth += 1\n  f()\ntry: f()\nexcept RecursionError: pass\ndepth > 500",
            json!(true),
        ),
        (
            "try: x = [0] * 10**9\nexcept MemoryError: x = 'caught'\nx",
            json!("caught"),
        ),
        ("raise SystemExit", json!(null)),
    ] {
        assert_eq!(
            output(&registry, "python", code).await["result"],
            result,
            "{code}"
        );
    }
    for (code, parts) in [
        ("x = 1\ny = 0\nx / y", ["ZeroDivisionError", "line 3"]),
        ("1\nx = = 2", ["SyntaxError", "line 2"]),
        ("def f(): f()\nf()", ["RecursionError", "line 1"]),
        (
            "import requests",
            ["ModuleNotFoundError", "Only these modules"],
        ),
        ("open('/etc/passwd')", ["FileNotFoundError", "line 1"]),
        ("import socket", ["ModuleNotFoundError", "socket"]),
    ] {
        let text = failure(&registry, "python", code).await;
        assert!(
            parts.iter().all(|part| text.contains(part)),
            "{code}: {text}"
        );
    }
}

/// Programs that say the same in both languages: (language, code that leaves something, code that
/// would see it).
#[tokio::test]
async fn nothing_is_there_in_the_next_call() {
    for (language, leave, look) in [
        (
            "javascript",
            "globalThis.leak = 1; Array.prototype.leak = 1; 1",
            "[typeof leak, [].leak ?? null]",
        ),
        (
            "python",
            "import builtins\nbuiltins.leak = 1",
            "hasattr(__import__('builtins'), 'leak')",
        ),
    ] {
        let Some(registry) = interpreter(language, ModulePolicy::default()).await else {
            continue;
        };
        output(&registry, language, leave).await;
        let seen = output(&registry, language, look).await["result"].clone();
        assert!(
            seen == json!(false) || seen == json!(["undefined", null]),
            "{language}: {seen}"
        );
    }
}

#[tokio::test]
async fn printed_text_is_bounded_and_comes_with_the_error() {
    for (language, flood, fail) in [
        (
            "javascript",
            "for (let i = 0; i < 1e4; i++) console.log('x'.repeat(1000))",
            "console.log('so far'); throw new Error('no')",
        ),
        (
            "python",
            "for _ in range(10_000): print('x' * 1000)",
            "print('so far')\nraise ValueError('no')",
        ),
    ] {
        let Some(registry) = interpreter(language, ModulePolicy::default()).await else {
            continue;
        };
        let flooded = output(&registry, language, flood).await;
        let stdout = flooded["stdout"].as_str().expect("text");
        assert!(
            stdout.len() < 17_000 && stdout.contains("more characters were cut"),
            "{language}"
        );
        let report = run(&registry, language, json!({ "code": fail })).await;
        let error = report.result.expect_err("it raises");
        assert!(
            format!("{error:?}").contains("so far"),
            "{language}: {error:?}"
        );
    }
}

#[tokio::test]
async fn an_endless_program_ends_at_its_limit() {
    for (language, code) in [("javascript", "for (;;);"), ("python", "while True: pass")] {
        let cases = [
            (
                LimitsRequest {
                    fuel: Some(300_000_000),
                    ..LimitsRequest::default()
                },
                "fuel",
            ),
            (
                LimitsRequest {
                    timeout_ms: Some(300),
                    ..LimitsRequest::default()
                },
                "deadline",
            ),
        ];
        for (limits, expected) in cases {
            let policy = ModulePolicy {
                limits,
                ..ModulePolicy::default()
            };
            let Some(registry) = interpreter(language, policy).await else {
                continue;
            };
            let started = Instant::now();
            let report = run(&registry, language, json!({ "code": code })).await;
            assert_eq!(kind(&report), expected, "{language}: {:?}", report.result);
            assert!(started.elapsed().as_secs() < 20, "{language}");
        }
    }
}

#[tokio::test]
async fn files_go_in_and_come_out() {
    for (language, code) in [
        (
            "javascript",
            "writeFile('out/sum.txt', String(readFile('n.csv').split(',').map(Number).reduce((a, b) => a + b)));\n\
             writeFile('raw', new Uint8Array([255, 0]));\nlistFiles().length",
        ),
        (
            "python",
            "import os\nos.mkdir('out')\n\
             open('out/sum.txt', 'w').write(str(sum(map(int, open('n.csv').read().split(',')))))\n\
             open('raw', 'wb').write(bytes([255, 0]))\nlen([f for _, _, fs in os.walk('.') for f in fs])",
        ),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(registry) = interpreter(language, scratch(folder.path())).await else {
            continue;
        };
        let files =
            json!([{ "path": "n.csv", "content": "1,2,3" }, { "path": "b", "base64": "/wA=" }]);
        let report = run(&registry, language, json!({ "code": code, "files": files })).await;
        let Ok(Output::Value(output)) = report.result else {
            panic!("{language}: {:?}", report.result);
        };
        assert_eq!(output["result"], json!(4), "{language}");
        let expected = json!([
            { "path": "out/sum.txt", "size": 1, "content": "6" },
            { "path": "raw", "size": 2, "base64": "/wA=" },
        ]);
        assert_eq!(output["files"], expected, "{language}");
        assert_eq!(
            std::fs::read(folder.path().join("b")).expect("put there"),
            [255, 0]
        );
    }
}

#[tokio::test]
async fn a_path_out_of_the_scratch_directory_leads_nowhere() {
    for (language, read) in [("javascript", "readFile"), ("python", "open")] {
        let folder = tempfile::tempdir().expect("a folder");
        let inside = folder.path().join("inside");
        std::fs::create_dir(&inside).expect("a folder");
        std::fs::write(folder.path().join("secret"), "secret").expect("a file");
        #[cfg(unix)]
        std::os::unix::fs::symlink("../secret", inside.join("link")).expect("a link");
        let Some(registry) = interpreter(language, scratch(&inside)).await else {
            continue;
        };
        for path in ["../secret", "/scratch/../secret", "/etc/passwd", "link"] {
            let text = failure(&registry, language, &format!("{read}('{path}')")).await;
            assert!(!text.contains("secret\n"), "{language} {path}: {text}");
            let put = json!({ "code": "1", "files": [{ "path": path, "content": "x" }] });
            let report = run(&registry, language, put).await;
            assert_eq!(
                kind(&report),
                "tool",
                "{language} {path}: {:?}",
                report.result
            );
        }
        assert_eq!(
            std::fs::read_to_string(folder.path().join("secret")).expect("there"),
            "secret"
        );
    }
}

#[tokio::test]
async fn without_a_grant_files_are_refused_with_the_way_to_one() {
    for language in ["javascript", "python"] {
        let Some(registry) = interpreter(language, ModulePolicy::default()).await else {
            continue;
        };
        let put = json!({ "code": "1", "files": [{ "path": "a", "content": "" }] });
        let error = run(&registry, language, put)
            .await
            .result
            .expect_err("no grant");
        let hint = format!("toolhold modules grant {language} --scratch");
        assert!(error.to_string().contains(&hint), "{error}");
    }
}

#[tokio::test]
async fn arguments_of_other_types_are_explained() {
    for language in ["javascript", "python"] {
        let Some(registry) = interpreter(language, ModulePolicy::default()).await else {
            continue;
        };
        for arguments in [
            json!({}),
            json!({ "code": 1 }),
            json!({ "code": "1", "files": [{ "content": "" }] }),
        ] {
            let report = run(&registry, language, arguments.clone()).await;
            assert_eq!(
                kind(&report),
                "tool",
                "{language} {arguments}: {:?}",
                report.result
            );
        }
        let schema = &registry
            .tool(&format!("{language}.run"))
            .expect("a tool")
            .input_schema;
        assert_eq!(schema["additionalProperties"], json!(false), "{language}");
        assert_eq!(schema["required"], json!(["code"]), "{language}");
    }
}
