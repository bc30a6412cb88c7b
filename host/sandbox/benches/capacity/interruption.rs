//! What being able to stop a guest costs hot loops: fuel, epochs, both, none; on bare engines.

use crate::measure::{percentile, ratio, row, times};
use std::time::Duration;
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine, Store};

/// `hash` waits for its own last result in every instruction, so counting hides in its shadow; `sum`
/// does next to nothing in a round, so counting is most of it.
const LOOPS: &str = r#"(component
  (core module $m
    (func (export "hash") (param $n i32) (result i64) (local $h i64)
      (local.set $h (i64.const 88172645463325252))
      (loop $again
        (local.set $h (i64.xor (local.get $h) (i64.shl (local.get $h) (i64.const 13))))
        (local.set $h (i64.xor (local.get $h) (i64.shr_u (local.get $h) (i64.const 7))))
        (local.set $h (i64.xor (local.get $h) (i64.shl (local.get $h) (i64.const 17))))
        (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
      (local.get $h))
    (func (export "sum") (param $n i32) (result i64) (local $sum i64)
      (loop $again
        (local.set $sum (i64.add (local.get $sum) (i64.extend_i32_u (local.get $n))))
        (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
      (local.get $sum)))
  (core instance $i (instantiate $m))
  (func (export "hash") (param "n" u32) (result u64) (canon lift (core func $i "hash")))
  (func (export "sum") (param "n" u32) (result u64) (canon lift (core func $i "sum"))))"#;

const ROUNDS: u32 = 5_000_000;

pub fn run() {
    for function in ["hash", "sum"] {
        let mut none = None;
        for (name, fuel, epochs) in [
            ("neither", false, false),
            ("epochs", false, true),
            ("fuel", true, false),
            ("both", true, true),
        ] {
            let p50 = percentile(&loops(function, fuel, epochs), 50);
            let base = *none.get_or_insert(p50);
            row(
                &format!("{ROUNDS} rounds of {function} with {name}"),
                &format!("{p50:.2?}, {:.2} times neither", ratio(p50, base)),
            );
        }
    }
}

fn loops(function: &str, fuel: bool, epochs: bool) -> Vec<Duration> {
    let mut config = Config::new();
    config.consume_fuel(fuel).epoch_interruption(epochs);
    let engine = Engine::new(&config).unwrap();
    let component = Component::new(&engine, wat::parse_str(LOOPS).unwrap()).unwrap();
    let mut store = Store::new(&engine, ());
    if epochs {
        store.set_epoch_deadline(1_000_000);
    }
    if fuel {
        store.set_fuel(u64::MAX).unwrap();
    }
    let instance = Linker::new(&engine)
        .instantiate(&mut store, &component)
        .unwrap();
    let function = instance
        .get_typed_func::<(u32,), (u64,)>(&mut store, function)
        .unwrap();
    times(30, || {
        let (result,) = function.call(&mut store, (ROUNDS,)).unwrap();
        assert_ne!(result, 0);
    })
}
