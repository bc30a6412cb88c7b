//! A bare wasmtime embedding behind the least server that speaks MCP over stdio: what `cargo xtask bench servers` measures
//! others against. Its one tool is `show` of `tests/components/units`.
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot go on should say so"
)]

#[path = "../benches/bare/mod.rs"]
#[expect(dead_code, reason = "only its configuration is the same here")]
mod bare;
#[path = "../benches/typed/mod.rs"]
mod typed;

use serde_json::{Value, json};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// The product's.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    let component =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/components/units/units.wasm");
    let bytes = std::fs::read(component).unwrap();
    let interface = "example:units/convert@1.0.0";
    let tool = typed::Bare::new(&bare::config(), &bytes, interface, "show");
    let tool = Arc::new(tool);
    let runtime = Runtime::new().unwrap();
    for line in io::stdin().lines() {
        let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let Some(id) = request.get("id").cloned() else {
            continue;
        };
        match request["method"].as_str() {
            Some("tools/call") => {
                let tool = Arc::clone(&tool);
                runtime.spawn(async move {
                    let arguments = request["params"]["arguments"].to_string();
                    let text = tool.call(&arguments).await;
                    answer(&id, &json!({"content": [{"type": "text", "text": text}]}));
                });
            }
            Some("tools/list") => {
                let tool = json!({"name": "show", "inputSchema": {"type": "object"}});
                answer(&id, &json!({"tools": [tool]}));
            }
            Some("initialize") => {
                let version = &request["params"]["protocolVersion"];
                answer(
                    &id,
                    &json!({"protocolVersion": version, "capabilities": {"tools": {}},
                        "serverInfo": {"name": "bare", "version": "1"}}),
                );
            }
            _ => answer(&id, &json!({})),
        }
    }
}

fn answer(id: &Value, result: &Value) {
    let reply = json!({"jsonrpc": "2.0", "id": id, "result": result});
    // One write, so that replies do not mix.
    let mut output = io::stdout().lock();
    output.write_all(format!("{reply}\n").as_bytes()).unwrap();
}
