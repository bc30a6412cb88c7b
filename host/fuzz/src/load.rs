//! Any component: loading it ends in time with tools or with a reason; calling its tools with what
//! their schemas describe ends in time with an answer or with an error that is not ours.

use crate::{json, sandbox, types};
use arbitrary::Unstructured;
use serde_json::Value;
use std::time::{Duration, Instant};
use toolhold_policy::{CallError, Invocation, Output, ToolSpec};
use toolhold_sandbox::Registry;

/// What a call may take beyond its deadline: one tick of the epoch, and a busy machine.
const TIMEOUT_SLACK: Duration = Duration::from_secs(4);

pub fn run(data: &[u8]) {
    if data.starts_with(b"\0asm") {
        // Seeds, those of wasm-smith, and what libFuzzer makes of them.
        drop(hold(data, data));
    } else {
        let _ = echo(&mut Unstructured::new(data));
    }
}

/// A component of any type that gives its argument back: what comes out is what went in.
fn echo(u: &mut Unstructured) -> arbitrary::Result<()> {
    let wat = types::echoing(u)?;
    let bytes = wat::parse_str(&wat).unwrap_or_else(|error| panic!("{error}\n{wat}"));
    // Types without a JSON form and those that are nested too deeply are refused.
    let Some(registry) = hold(&bytes, u.peek_bytes(u.len()).unwrap_or_default()) else {
        return Ok(());
    };
    let tools = registry.tools();
    let Some(tool) = tools.first() else {
        return Ok(());
    };
    let arguments = json::described(&tool.input_schema, u)?;
    match call(&registry, tool, &arguments) {
        Ok(Output::Value(output)) => {
            let back = output.get(0).unwrap_or(&Value::Null);
            let given = arguments.get("x").unwrap_or(&Value::Null);
            assert!(json::same(given, back), "{given} became {back}\n{wat}");
        }
        other => panic!("{arguments} gave {other:?}\n{wat}"),
    }
    Ok(())
}

/// Loads the component and calls its first tools with arguments made from `entropy`.
fn hold(component: &[u8], entropy: &[u8]) -> Option<Registry> {
    let registry = Registry::new(sandbox::ENGINE.clone(), None, sandbox::policy());
    sandbox::RUNTIME
        .block_on(registry.load_bytes("m", component.to_vec()))
        .ok()?;
    let mut u = Unstructured::new(entropy);
    for tool in registry.tools().iter().take(4) {
        check_spec(&registry, tool);
        let arguments = json::described(&tool.input_schema, &mut u).unwrap_or_default();
        let _ = call(&registry, tool, &arguments);
        let _ = call(&registry, tool, &Value::Null);
    }
    Some(registry)
}

fn check_spec(registry: &Registry, tool: &ToolSpec) {
    assert!(
        registry.tool(&tool.name).is_some(),
        "{} is not found",
        tool.name
    );
    assert_eq!(tool.input_schema.get("type"), Some(&Value::from("object")));
    assert!(
        !tool.description.raw().chars().any(|c| c == '\u{1b}'),
        "{tool:?}"
    );
}

fn call(registry: &Registry, tool: &ToolSpec, arguments: &Value) -> Result<Output, CallError> {
    let started = Instant::now();
    let invocation = Invocation::new("fuzz", &tool.name, arguments);
    let report = sandbox::RUNTIME.block_on(registry.call(&invocation));
    let limits = sandbox::policy().limits;
    assert!(
        started.elapsed() < limits.timeout() + TIMEOUT_SLACK,
        "{:?}",
        report.usage
    );
    assert!(
        report.usage.memory_bytes <= limits.memory_bytes,
        "{:?}",
        report.usage
    );
    assert!(
        !matches!(
            report.result,
            Err(CallError::Host { .. } | CallError::Busy { .. })
        ),
        "{:?}",
        report.result
    );
    report.result
}
