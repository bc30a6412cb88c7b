//! Hostile components, as WAT. Each exports plain functions, so each becomes tools by its types.

use std::fmt::Write as _;

/// Rows 1, 6, 20: spins, recurses, traps, and leaves something behind in a global and in memory.
pub const COMPUTE: &str = r#"(component
  (core module $m
    (memory (export "memory") 1)
    (global $calls (mut i32) (i32.const 0))
    (func (export "spin") (loop br 0))
    (func $deeper (export "recurse") call $deeper call $deeper)
    (func (export "boom") unreachable)
    (func (export "count") (result i32)
      (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
      (i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (i32.const 1)))
      (i32.add (global.get $calls) (i32.load (i32.const 64)))))
  (core instance $i (instantiate $m))
  (func (export "spin") (canon lift (core func $i "spin")))
  (func (export "recurse") (canon lift (core func $i "recurse")))
  (func (export "boom") (canon lift (core func $i "boom")))
  (func (export "count") (result u32) (canon lift (core func $i "count"))))"#;

/// Rows 2, 3, 7: loops through host calls, sleeps for an hour, opens handles without end.
pub const CLOCKS: &str = r#"(component
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer 1 $pollable (type $outer))
    (export "pollable" (type $p (eq $outer)))
    (export "now" (func (result u64)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core func $subscribe (canon lower (func $clock "subscribe-duration")))
  (core func $now (canon lower (func $clock "now")))
  (core module $m
    (import "h" "block" (func $block (param i32)))
    (import "h" "subscribe" (func $subscribe (param i64) (result i32)))
    (import "h" "now" (func $now (result i64)))
    (func (export "sleep") (call $block (call $subscribe (i64.const 3600000000000))))
    (func (export "ask") (loop (drop (call $now)) (br 0)))
    (func (export "hoard") (loop (drop (call $subscribe (i64.const 1))) (br 0))))
  (core instance $i (instantiate $m (with "h" (instance
    (export "block" (func $block)) (export "subscribe" (func $subscribe)) (export "now" (func $now))))))
  (func (export "sleep") (canon lift (core func $i "sleep")))
  (func (export "ask") (canon lift (core func $i "ask")))
  (func (export "hoard") (canon lift (core func $i "hoard"))))"#;

/// Rows 4, 5: grows memory and tables until refused, then dies of it; fills all it got.
pub const GROWTH: &str = r#"(component
  (core module $m
    (memory (export "memory") 1)
    (table $t 1 funcref)
    (func (export "grow")
      (loop
        (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))
        (br 0)))
    (func (export "fill")
      (block (loop
        (br_if 1 (i32.eq (memory.grow (i32.const 16)) (i32.const -1)))
        (br 0)))
      (memory.fill (i32.const 0) (i32.const 7) (i32.mul (memory.size) (i32.const 65536)))
      unreachable)
    (func (export "table")
      (loop
        (if (i32.eq (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1)) (then unreachable))
        (br 0))))
  (core instance $i (instantiate $m))
  (func (export "grow") (canon lift (core func $i "grow")))
  (func (export "fill") (canon lift (core func $i "fill")))
  (func (export "table") (canon lift (core func $i "table"))))"#;

/// Row 4: wants 1.9 GiB before its first instruction.
pub const HUGE_MEMORY: &str = r#"(component
  (core module $m (memory 30000) (func (export "f")))
  (core instance $i (instantiate $m))
  (func (export "f") (canon lift (core func $i "f"))))"#;

/// Row 4: forty memories of 1 MiB, each below any limit.
pub fn many_memories() -> String {
    let mut text = String::from("(component (core module $m (memory 16) (func (export \"f\")))\n");
    for i in 0..40 {
        let _ = writeln!(text, "(core instance $i{i} (instantiate $m))");
    }
    text + "(func (export \"f\") (canon lift (core func $i0 \"f\"))))"
}

/// Row 5: twenty tables of 15 000 elements in as many instances.
pub fn many_tables() -> String {
    let mut text =
        String::from("(component (core module $m (table 15000 funcref) (func (export \"f\")))\n");
    for i in 0..12 {
        let _ = writeln!(text, "(core instance $i{i} (instantiate $m))");
    }
    text + "(func (export \"f\") (canon lift (core func $i0 \"f\"))))"
}

/// Row 9: writes a terminal escape and then 64 MiB to stdout, 4 KiB at a time, and returns.
pub const FLOOD: &str = r#"(component
  (import "wasi:io/error@0.2.0" (instance $error (export "error" (type (sub resource)))))
  (alias export $error "error" (type $error-type))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (alias outer 1 $error-type (type $outer))
    (export "error" (type $e (eq $outer)))
    (export "output-stream" (type $out (sub resource)))
    (type $stream-error (variant (case "last-operation-failed" (own $e)) (case "closed")))
    (export "stream-error" (type $se (eq $stream-error)))
    (type $done (result (error $se)))
    (export "[method]output-stream.blocking-write-and-flush"
      (func (param "self" (borrow $out)) (param "contents" (list u8)) (result $done)))))
  (alias export $streams "output-stream" (type $stream))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $stream (type $outer))
    (export "output-stream" (type $o (eq $outer)))
    (export "get-stdout" (func (result (own $o))))))
  (core module $storage
    (memory (export "memory") 1)
    (data (i32.const 0) "\1b[2J\1b]0;owned\07"))
  (core instance $s (instantiate $storage))
  (core func $write (canon lower
    (func $streams "[method]output-stream.blocking-write-and-flush") (memory $s "memory")))
  (core func $get (canon lower (func $stdout "get-stdout")))
  (core module $m
    (import "h" "write" (func $write (param i32 i32 i32 i32)))
    (import "h" "get" (func $get (result i32)))
    (func (export "flood") (result i32) (local $stream i32) (local $n i32)
      (local.set $stream (call $get))
      (loop
        (call $write (local.get $stream) (i32.const 0) (i32.const 4096) (i32.const 8192))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br_if 0 (i32.lt_u (local.get $n) (i32.const 16384))))
      (local.get $n)))
  (core instance $i (instantiate $m (with "h" (instance
    (export "write" (func $write)) (export "get" (func $get))))))
  (func (export "flood") (result u32) (canon lift (core func $i "flood"))))"#;
