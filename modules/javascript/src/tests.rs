//! Programs through the tool, natively: the same QuickJS as in the component.

use std::path::{Path, PathBuf};

use toolhold_guest::{Error, Value, check, json};

use crate::scratch::Scratch;

fn call(root: Option<&Path>, arguments: Value) -> Result<Value, Error> {
    let root: Option<PathBuf> = root.map(Path::to_owned);
    let tools = [crate::tool::tool(move || {
        root.as_deref().and_then(Scratch::at)
    })];
    check::call(&tools, "run", &arguments)
}

fn result(code: &str) -> Value {
    match call(None, json!({ "code": code })) {
        Ok(output) => output["result"].clone(),
        Err(error) => panic!("{code}: {}", error.message()),
    }
}

fn error(code: &str) -> String {
    match call(None, json!({ "code": code })) {
        Ok(output) => panic!("{code} gave {output}"),
        Err(error) => {
            assert!(error.is_correctable());
            error.message().to_owned()
        }
    }
}

#[test]
fn examples_return_what_they_claim() {
    assert_eq!(check::examples(&crate::tools()), Vec::<String>::new());
}

#[test]
fn the_last_expression_is_the_result() {
    for (code, expected) in [
        ("1 + 1", json!(2)),
        ("const x = 20; x * 2", json!(40)),
        ("const result = [1, 2];", json!([1, 2])),
        ("var result = 7", json!(7)),
        ("if (true) { 'yes' }", json!("yes")),
        ("const f = n => n + 1; return f(4)", json!(5)),
        ("undefined", json!(null)),
        ("({ a: 1, b: undefined })", json!({ "a": 1 })),
    ] {
        assert_eq!(result(code), expected, "{code}");
    }
}

#[test]
fn promises_and_timers_run_to_their_end() {
    for (code, expected) in [
        ("await Promise.resolve(3)", json!(3)),
        (
            "const [a, b] = await Promise.all([1, Promise.resolve(2)]); a + b",
            json!(3),
        ),
        (
            "async function main() { await null; return 'done' }\nmain()",
            json!("done"),
        ),
        (
            "await new Promise(done => setTimeout(() => done('late'), 1e6))",
            json!("late"),
        ),
        (
            "const seen = []; setTimeout(() => seen.push('b'), 20); setTimeout(() => seen.push('a'), 10); await new Promise(r => setTimeout(r, 30)); seen",
            json!(["a", "b"]),
        ),
        (
            "let n = 0; await new Promise(r => { const t = setInterval(() => { if (++n === 5) { clearInterval(t); r() } }, 1) }); n",
            json!(5),
        ),
        (
            "const out = []; for await (const x of (async function* () { yield 1; yield 2 })()) out.push(x); out",
            json!([1, 2]),
        ),
        (
            "try { await Promise.reject(new Error('no')) } catch (e) { e.message }",
            json!("no"),
        ),
    ] {
        assert_eq!(result(code), expected, "{code}");
    }
    assert!(error("await new Promise(() => {})").contains("nothing will settle"));
    assert!(error("Promise.reject(new Error('lost')); 1").contains("lost"));
    assert!(
        error("setTimeout(() => { throw new Error('in a timer') }, 5); 1").contains("in a timer")
    );
}

#[test]
fn what_json_cannot_hold_is_readable() {
    for (code, expected) in [
        ("10n ** 20n", json!("100000000000000000000")),
        ("5n", json!(5)),
        ("[NaN, Infinity, -0]", json!(["NaN", "Infinity", 0])),
        ("new Map([['a', 1]])", json!({ "a": 1 })),
        ("new Map([[{}, 1]])", json!([[{}, 1]])),
        ("new Set([3, 1])", json!([3, 1])),
        (
            "const a = { n: 1 }; a.self = a; a",
            json!({ "n": 1, "self": "[Circular]" }),
        ),
        ("const s = {}; [s, s]", json!([{}, {}])),
        ("new Date(0)", json!("1970-01-01T00:00:00.000Z")),
        ("new Date(NaN)", json!("Invalid Date")),
        (
            "[/a/g, Symbol('s'), function f() {}, class C {}]",
            json!(["/a/g", "Symbol(s)", "[Function: f]", "[class: C]"]),
        ),
        ("new Uint8Array([1, 2])", json!([1, 2])),
        ("'\\ud800'", json!("\u{fffd}")),
    ] {
        assert_eq!(result(code), expected, "{code}");
    }
    assert!(error("'x'.repeat(70000)").contains("return a part or a summary"));
}

#[test]
fn printing_is_as_in_a_console() {
    let output = call(
        None,
        json!({ "code": "console.log('a', 1, { b: [1, 'x'] }, null);\nconsole.error('%s is %d', 'x', 2);\nprint(new Map([['k', 1n]]))" }),
    );
    let stdout = output.map(|output| output["stdout"].clone()).unwrap();
    assert_eq!(
        stdout,
        "a 1 { b: [1, \"x\"] } null\nx is 2\nMap {\"k\" => 1n}\n"
    );
    let long = call(
        None,
        json!({ "code": "for (let i = 0; i < 1e4; i++) console.log('x'.repeat(1000))" }),
    )
    .unwrap();
    let stdout = long["stdout"].as_str().unwrap();
    assert!(
        stdout.len() < 17_000 && stdout.contains("9994000 more characters"),
        "{}",
        &stdout[15_990..]
    );
}

#[test]
fn errors_name_the_line_of_the_code() {
    for (code, parts) in [
        (
            "let a = 1;\nlet b = null;\nb.x",
            &["TypeError", "<code>:3", "the line: b.x"] as &[_],
        ),
        (
            "function f() {\n  throw new Error('deep');\n}\nf()",
            &["Error: deep", "<code>:2", "<code>:4"],
        ),
        (
            "await null;\nnope()",
            &["ReferenceError", "<code>:2", "the line: nope()"],
        ),
        ("let x = ;", &["SyntaxError", "<code>:1"]),
        ("1\n2\nconst = 3", &["SyntaxError", "<code>:3"]),
        ("throw 'text'", &["Uncaught \"text\""]),
        ("throw { code: 4 }", &["Uncaught { code: 4 }"]),
        ("import fs from 'fs'\n1", &["no packages to import"]),
        ("require('lodash')", &["cannot require", "<code>:1"]),
        (
            "throw new Error('a', { cause: new TypeError('b') })",
            &["[cause] TypeError: b"],
        ),
        ("const n = 1;\nreturn n.x.y", &["<code>:2"]),
    ] {
        let text = error(code);
        for part in parts {
            assert!(text.contains(part), "{code}: {part:?} is not in {text}");
        }
        assert!(!text.contains("prelude.js"), "{text}");
    }
    let failed = call(
        None,
        json!({ "code": "console.log('so far'); throw new Error('x')" }),
    )
    .unwrap_err();
    assert_eq!(
        failed,
        Error::correctable(failed.message()).with_data(json!({ "stdout": "so far\n" }))
    );
}

#[test]
fn recursion_is_an_exception_that_code_can_catch() {
    assert!(
        error("function f() { return f() + 1 }\nf()").contains("RangeError: Maximum call stack")
    );
    assert_eq!(
        result(
            "let n = 0; function f() { n++; f() } try { f() } catch (e) { e instanceof RangeError && n > 50 }"
        ),
        json!(true)
    );
    assert_eq!(
        result("try { JSON.parse('['.repeat(1e6)) } catch (e) { 'caught' }"),
        json!("caught")
    );
    assert_eq!(
        result("let a = []; for (let i = 0; i < 1e5; i++) a = [a]; a.length"),
        json!(1)
    );
}

#[test]
fn files_go_in_and_come_out() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("old.txt"), "old").unwrap();
    let output = call(
        Some(folder.path()),
        json!({
            "code": "writeFile('out/sum.txt', String(readFile('n.csv').split(',').map(Number).reduce((a, b) => a + b)));\n\
                     writeFile('bytes', new Uint8Array([255, 0]));\nwriteFile('n.csv', readFile('/scratch/n.csv'));\n\
                     require('fs').appendFileSync('old.txt', '!');\nwriteFile('gone', 'x'); removeFile('gone');\nlistFiles()",
            "files": [{ "path": "n.csv", "content": "1,2,3" }, { "path": "b", "base64": "/wA=" }],
        }),
    );
    let output = output.unwrap_or_else(|error| panic!("{}", error.message()));
    assert_eq!(
        output["result"],
        json!(["b", "bytes", "n.csv", "old.txt", "out/sum.txt"])
    );
    assert_eq!(
        output["files"],
        json!([
            { "path": "bytes", "size": 2, "base64": "/wA=" },
            { "path": "old.txt", "size": 4, "content": "old!" },
            { "path": "out/sum.txt", "size": 1, "content": "6" },
        ])
    );
}

#[test]
fn large_and_many_files_are_named_without_content() {
    let folder = tempfile::tempdir().unwrap();
    let code = "for (let i = 10; i < 40; i++) writeFile(`f${i}`, 'x'); writeFile('big', 'x'.repeat(70000))";
    let output = call(Some(folder.path()), json!({ "code": code })).unwrap();
    let files = output["files"].as_array().unwrap();
    assert_eq!(files[0], json!({ "path": "big", "size": 70000 }));
    let contents = files
        .iter()
        .filter(|file| file.get("content").is_some())
        .count();
    assert_eq!((files.len(), contents), (31, 20));
}

#[test]
fn without_a_grant_there_are_no_files_and_paths_stay_inside() {
    for code in [
        "readFile('x')",
        "writeFile('x', '')",
        "listFiles()",
        "require('fs').existsSync('x')",
    ] {
        assert!(error(code).contains("grant javascript --scratch"), "{code}");
    }
    let refused = call(
        None,
        json!({ "code": "1", "files": [{ "path": "a", "content": "" }] }),
    );
    assert!(
        refused
            .unwrap_err()
            .message()
            .contains("grant javascript --scratch")
    );
    let folder = tempfile::tempdir().unwrap();
    for path in ["../x", "/etc/passwd", "a/../../x"] {
        let code = format!("readFile({path:?})");
        let refused = call(Some(folder.path()), json!({ "code": code })).unwrap_err();
        assert!(
            refused.message().contains("outside the scratch directory"),
            "{path}"
        );
        let refused = call(
            Some(folder.path()),
            json!({ "code": "1", "files": [{ "path": path, "content": "" }] }),
        );
        assert!(refused.is_err(), "{path}");
    }
}
