//! The modules as MCP tools, as clients see them: raw messages, our own client, the official ones.

mod batches;
mod clients;
mod decisions;
mod http;
mod records;
mod requests;
mod sessions;
mod stateless;
pub mod wire;

use serde_json::{Value, json};
use support::host::Host;
use support::sandbox::component;
use wire::{HttpMcpServer, Stdio};

const MODERN: &str = "2026-07-28";

/// A component whose tools answer, say how far they are, and never end.
fn probe() -> Vec<u8> {
    component(
        r#"(component
          (import "toolhold:module/progress@0.1.0" (instance $progress
            (export "report" (func (param "done" u64) (param "total" u64) (param "note" string)))))
          (import "toolhold:module/log@0.1.0" (instance $log
            (type $l (enum "trace" "debug" "info" "warn" "error"))
            (export "level" (type $level (eq $l)))
            (export "write" (func (param "level" $level) (param "message" string)))))
          (core module $memory (memory (export "memory") 1) (data (i32.const 0) "half way"))
          (core instance $memory (instantiate $memory))
          (core func $report (canon lower (func $progress "report") (memory $memory "memory")))
          (core func $write (canon lower (func $log "write") (memory $memory "memory")))
          (core module $m
            (import "h" "report" (func $report (param i64 i64 i32 i32)))
            (import "h" "write" (func $write (param i32 i32 i32)))
            (func (export "answer") (result i32) (i32.const 42))
            (func (export "steps") (result i32)
              (call $report (i64.const 1) (i64.const 3) (i32.const 0) (i32.const 8))
              (call $write (i32.const 3) (i32.const 0) (i32.const 8))
              (call $write (i32.const 0) (i32.const 0) (i32.const 4))
              (call $report (i64.const 3) (i64.const 3) (i32.const 0) (i32.const 0))
              (i32.const 3))
            (func $while (local $n i32)
              (loop $l (br_if $l (i32.lt_u
                (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 150_000_000)))))
            (func (export "walk") (result i32)
              (call $report (i64.const 1) (i64.const 3) (i32.const 0) (i32.const 8))
              (call $while)
              (call $report (i64.const 2) (i64.const 3) (i32.const 0) (i32.const 8))
              (call $while)
              (i32.const 3))
            (func (export "toil") (result i32)
              (call $report (i64.const 1) (i64.const 0) (i32.const 0) (i32.const 8))
              (loop $l (br $l)) (unreachable))
            (func (export "spin") (result i32) (loop $l (br $l)) (unreachable)))
          (core instance $m (instantiate $m
            (with "h" (instance (export "report" (func $report)) (export "write" (func $write))))))
          (func (export "answer") (result u32) (canon lift (core func $m "answer")))
          (func (export "steps") (result u32) (canon lift (core func $m "steps")))
          (func (export "walk") (result u32) (canon lift (core func $m "walk")))
          (func (export "toil") (result u32) (canon lift (core func $m "toil")))
          (func (export "spin") (result u32) (canon lift (core func $m "spin"))))"#,
    )
}

/// A component whose one tool returns `number`.
fn answers(number: u32) -> Vec<u8> {
    component(&format!(
        r#"(component
          (core module $m (func (export "f") (result i32) (i32.const {number})))
          (core instance $i (instantiate $m))
          (func (export "answer") (result u32) (canon lift (core func $i "f"))))"#
    ))
}

/// A host with the probe and the calculator.
fn host() -> Host {
    let host = Host::new();
    host.ship("calculator").write("modules/probe.wasm", probe());
    host
}

/// Puts a module into the folder as a careful writer does.
fn drop_in(host: &Host, name: &str, bytes: &[u8]) {
    let file = host.path().join(format!("modules/{name}.wasm"));
    let part = file.with_extension("part");
    std::fs::write(&part, bytes).unwrap();
    std::fs::rename(part, file).unwrap();
}

fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

/// A request of the modern era.
pub fn modern(id: impl Into<Value>, method: &str, mut params: Value, capabilities: Value) -> Value {
    let meta = params
        .as_object_mut()
        .unwrap()
        .entry("_meta")
        .or_insert_with(|| json!({}));
    meta["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
    meta["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    request(id, method, params)
}

pub fn call(id: impl Into<Value>, tool: &str, arguments: Value) -> Value {
    request(
        id,
        "tools/call",
        json!({"name": tool, "arguments": arguments}),
    )
}

fn initialize(version: &str, capabilities: Value) -> Value {
    request(
        "hello",
        "initialize",
        json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"},
        }),
    )
}

/// The text of a result.
fn text(reply: &Value) -> &str {
    reply["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text: {reply}"))
}
