//! A warm call beside starting the same tool as a process: what a host of subprocesses pays.

use crate::measure::{self, component, percentile, ratio, row, times};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

const MARK: &str = "TOOLHOLD_BENCH_TOOL";

/// The same tool in Python.
const PROGRAM: &str = "import json, sys
terms = json.load(sys.stdin)['expression'].split('+')
print(json.dumps({'value': str(sum(map(int, terms)))}))";

/// Whether this process was started as the tool.
pub fn is_tool() -> bool {
    std::env::var_os(MARK).is_some()
}

/// The cheapest native tool there can be: arguments as JSON on standard input, the answer on standard
/// output, and a sum in between.
pub fn tool() {
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).unwrap();
    let arguments: Value = serde_json::from_str(&input).unwrap();
    let terms = arguments["expression"].as_str().unwrap().split('+');
    let sum: i64 = terms.map(|term| term.trim().parse::<i64>().unwrap()).sum();
    print!("{}", json!({"value": sum.to_string()}));
}

pub fn run() {
    let runtime = measure::runtime();
    let Some(bytes) = component("calculator") else {
        return row("calculator", "not built");
    };
    let registry = measure::registry(&runtime, &measure::engine(8), "calculator", bytes);
    let arguments = json!({"expression": "1+2"});
    let answer = json!({"value": "3"});
    let warm = times(2_000, || {
        let report = runtime.block_on(measure::call(&registry, "calculator.evaluate", &arguments));
        let output = serde_json::to_value(report.result.unwrap()).unwrap();
        assert_eq!(output["value"], answer);
    });
    let this = std::env::current_exe().unwrap();
    let native = times(300, || {
        let output = ask(Command::new(&this).env(MARK, "1"), &arguments.to_string());
        assert_eq!(serde_json::from_str::<Value>(&output).unwrap(), answer);
    });
    let (warm, native) = (percentile(&warm, 50), percentile(&native, 50));
    row("warm call in the sandbox, p50", &format!("{warm:.1?}"));
    row(
        "the cheapest native process, p50",
        &format!("{native:.1?}, {:.0} times a call", ratio(native, warm)),
    );
    if Command::new("python3").arg("--version").output().is_ok() {
        let python = times(30, || {
            let output = ask(
                Command::new("python3").args(["-c", PROGRAM]),
                &arguments.to_string(),
            );
            assert_eq!(serde_json::from_str::<Value>(&output).unwrap(), answer);
        });
        let python = percentile(&python, 50);
        row(
            "the same as a Python process, p50",
            &format!("{python:.1?}, {:.0} times a call", ratio(python, warm)),
        );
    }
}

fn ask(command: &mut Command, input: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}
