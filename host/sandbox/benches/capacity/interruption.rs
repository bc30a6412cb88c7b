//! What being able to stop a guest costs a hot loop: fuel, epochs, both, none; on bare engines.

use crate::measure::{percentile, ratio, row, times};
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine, Store};

/// A xorshift over its own result: no memory, no calls, nothing to leave out.
const LOOP: &str = r#"(component
  (core module $m
    (func (export "hash") (param $n i32) (result i64) (local $h i64)
      (local.set $h (i64.const 88172645463325252))
      (loop $again
        (local.set $h (i64.xor (local.get $h) (i64.shl (local.get $h) (i64.const 13))))
        (local.set $h (i64.xor (local.get $h) (i64.shr_u (local.get $h) (i64.const 7))))
        (local.set $h (i64.xor (local.get $h) (i64.shl (local.get $h) (i64.const 17))))
        (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
      (local.get $h)))
  (core instance $i (instantiate $m))
  (func (export "hash") (param "n" u32) (result u64) (canon lift (core func $i "hash"))))"#;

const ROUNDS: u32 = 5_000_000;

pub fn run() {
    let mut none = None;
    for (name, fuel, epochs) in [
        ("neither", false, false),
        ("epochs", false, true),
        ("fuel", true, false),
        ("both", true, true),
    ] {
        let times = hash(fuel, epochs);
        let p50 = percentile(&times, 50);
        let base = *none.get_or_insert(p50);
        row(
            &format!("a hot loop of {ROUNDS} rounds with {name}"),
            &format!("{p50:.1?}, {:.2} times neither", ratio(p50, base)),
        );
    }
}

fn hash(fuel: bool, epochs: bool) -> Vec<std::time::Duration> {
    let mut config = Config::new();
    config.consume_fuel(fuel).epoch_interruption(epochs);
    let engine = Engine::new(&config).unwrap();
    let component = Component::new(&engine, wat::parse_str(LOOP).unwrap()).unwrap();
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
    let hash = instance
        .get_typed_func::<(u32,), (u64,)>(&mut store, "hash")
        .unwrap();
    times(30, || {
        let (hash,) = hash.call(&mut store, (ROUNDS,)).unwrap();
        assert_ne!(hash, 0);
    })
}
