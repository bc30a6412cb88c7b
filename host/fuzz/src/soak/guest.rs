//! Components by a grammar: one function of random statements over WASI's imports, memory and tables.

use arbitrary::{Result, Unstructured};

/// Deeper nesting only multiplies loops.
const MAX_DEPTH: usize = 3;

/// The imports, lowered; `$s` has the memory that they write to.
const IMPORTS: &str = r#"
  (import "wasi:io/error@0.2.0" (instance $error (export "error" (type (sub resource)))))
  (alias export $error "error" (type $error-type))
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))
    (export "poll" (func (param "in" (list (borrow $pollable))) (result (list u32))))))
  (alias export $poll "pollable" (type $pollable))
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
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer 1 $pollable (type $outer))
    (export "pollable" (type $p (eq $outer)))
    (export "now" (func (result u64)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))
  (import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
  (import "wasi:cli/environment@0.2.0" (instance $environment
    (export "get-environment" (func (result (list (tuple string string)))))))
  (import "wasi:http/types@0.2.0" (instance $http
    (export "fields" (type $fields (sub resource)))
    (export "[constructor]fields" (func (result (own $fields))))))
  (import "wasi:cli/exit@0.2.0" (instance $exit
    (type $status (result))
    (export "exit" (func (param "status" $status)))))
  (core module $storage
    (memory (export "memory") 1)
    (global $next (mut i32) (i32.const 4096))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (local $at i32)
      (local.set $at (global.get $next))
      (global.set $next (i32.and
        (i32.add (i32.add (global.get $next) (local.get 3)) (i32.const 7)) (i32.const -8)))
      (block (loop
        (br_if 1 (i32.le_u (global.get $next) (i32.mul (memory.size) (i32.const 65536))))
        (br_if 1 (i32.eq (memory.grow (i32.const 16)) (i32.const -1)))
        (br 0)))
      (local.get $at)))
  (core instance $s (instantiate $storage))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core func $poll-all (canon lower (func $poll "poll") (memory $s "memory") (realloc (func $s "realloc"))))
  (core func $write (canon lower
    (func $streams "[method]output-stream.blocking-write-and-flush") (memory $s "memory")))
  (core func $stdout (canon lower (func $stdout "get-stdout")))
  (core func $now (canon lower (func $clock "now")))
  (core func $subscribe (canon lower (func $clock "subscribe-duration")))
  (core func $bytes (canon lower
    (func $random "get-random-bytes") (memory $s "memory") (realloc (func $s "realloc"))))
  (core func $environment (canon lower
    (func $environment "get-environment") (memory $s "memory") (realloc (func $s "realloc"))))
  (core func $fields (canon lower (func $http "[constructor]fields")))
  (core func $exit (canon lower (func $exit "exit")))"#;

/// A component with the tool `run`, as WAT.
///
/// # Errors
/// Never; `arbitrary` gives zeros when its bytes are used up.
pub fn component(u: &mut Unstructured) -> Result<String> {
    let mut body = String::new();
    for _ in 0..u.int_in_range(1..=8)? {
        body.push_str(&statement(u, 0)?);
    }
    Ok(format!(
        r#"(component {IMPORTS}
  (core module $m
    (import "h" "memory" (memory 1))
    (import "h" "block" (func $block (param i32)))
    (import "h" "poll" (func $poll (param i32 i32 i32)))
    (import "h" "write" (func $write (param i32 i32 i32 i32)))
    (import "h" "stdout" (func $stdout (result i32)))
    (import "h" "now" (func $now (result i64)))
    (import "h" "subscribe" (func $subscribe (param i64) (result i32)))
    (import "h" "bytes" (func $bytes (param i64 i32)))
    (import "h" "environment" (func $environment (param i32)))
    (import "h" "fields" (func $fields (result i32)))
    (import "h" "exit" (func $exit (param i32)))
    (table $t 1 funcref)
    (func $run (export "run") (param $n i32) (result i32)
      (local $i0 i32) (local $i1 i32) (local $i2 i32) (local $i3 i32)
      {body}
      (local.get $n)))
  (core instance $i (instantiate $m (with "h" (instance
    (export "memory" (memory $s "memory"))
    (export "block" (func $block)) (export "poll" (func $poll-all)) (export "write" (func $write))
    (export "stdout" (func $stdout)) (export "now" (func $now)) (export "subscribe" (func $subscribe))
    (export "bytes" (func $bytes)) (export "environment" (func $environment))
    (export "fields" (func $fields)) (export "exit" (func $exit))))))
  (func (export "run") (param "n" u32) (result u32) (canon lift (core func $i "run"))))"#
    ))
}

fn statement(u: &mut Unstructured, depth: usize) -> Result<String> {
    let number = number(u)?;
    let other = self::number(u)?;
    Ok(match u.int_in_range(0..=19)? {
        0..4 if depth < MAX_DEPTH => {
            let mut inside = String::new();
            for _ in 0..u.int_in_range(1..=4)? {
                inside.push_str(&statement(u, depth + 1)?);
            }
            format!(
                "(local.set $i{depth} (i32.const {number}))
                (loop {inside}
                  (local.set $i{depth} (i32.sub (local.get $i{depth}) (i32.const 1)))
                  (br_if 0 (local.get $i{depth})))"
            )
        }
        0..4 => "(drop (call $now))".to_owned(),
        4 => format!("(call $block (call $subscribe (i64.const {number})))"),
        5 => format!("(drop (call $subscribe (i64.const {number})))"),
        6 => format!(
            "(call $write (call $stdout) (i32.const {number}) (i32.const {other}) (i32.const 16))"
        ),
        7 => format!("(call $bytes (i64.const {number}) (i32.const 32))"),
        8 => "(call $environment (i32.const 32))".to_owned(),
        9 => "(drop (call $fields))".to_owned(),
        10 => format!("(call $poll (i32.const {number}) (i32.const {other}) (i32.const 48))"),
        11 => format!("(drop (memory.grow (i32.const {number})))"),
        12 => format!("(memory.fill (i32.const 0) (i32.const 7) (i32.const {number}))"),
        13 => format!("(drop (table.grow $t (ref.null func) (i32.const {number})))"),
        14 => format!("(i32.store (i32.const {number}) (i32.const {other}))"),
        15 => format!("(call $block (i32.const {number}))"),
        16 => "(drop (call $run (local.get $n)))".to_owned(),
        17 => format!("(call $exit (i32.const {}))", number & 1),
        18 if u.ratio(1, 4)? => "unreachable".to_owned(),
        _ => "(local.set $n (i32.add (local.get $n) (i32.load (i32.const 64))))".to_owned(),
    })
}

/// Small ones mostly; the rest are near limits.
fn number(u: &mut Unstructured) -> Result<i32> {
    Ok(match u.int_in_range(0..=9)? {
        0..6 => u.int_in_range(1..=64)?,
        6 => u.int_in_range(1..=100_000)?,
        7 => 1 << u.int_in_range(0..=30)?,
        8 => u.arbitrary()?,
        _ => -1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_component_is_valid_and_becomes_a_tool() {
        let registry_of = |text: &str| {
            let bytes = wat::parse_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let registry = toolhold_sandbox::Registry::new(
                crate::sandbox::ENGINE.clone(),
                None,
                crate::sandbox::policy(),
            );
            crate::sandbox::RUNTIME
                .block_on(registry.load_bytes("m", bytes))
                .unwrap_or_else(|error| panic!("{error}\n{text}"));
            registry
        };
        for round in 0..40_u8 {
            let entropy: Vec<u8> = (0..600_u32)
                .map(|at| (at.wrapping_mul(2_654_435_761 + u32::from(round) * 97) >> 13) as u8)
                .collect();
            let text = component(&mut Unstructured::new(&entropy)).unwrap();
            assert!(registry_of(&text).tool("m.run").is_some());
        }
    }
}
